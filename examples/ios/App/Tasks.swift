import Foundation
import Kerasformer
import UIKit

/// What the screens show, and the running task. A new task, or leaving the screen, cancels the one before.
@MainActor
final class Tasks: ObservableObject {
    @Published private(set) var isBusy = false
    @Published private(set) var answer = ""
    @Published private(set) var problem: String?
    @Published private(set) var conversation: [Message] = []
    let notes = [
        "The spare key is under the flower pot.",
        "Call the dentist on Monday about the appointment.",
        "Wifi password of the holiday flat: sunflower",
        "Bread: 500 g of flour, 350 g of water, 10 g of salt, a night in the fridge.",
    ]
    private let models = Models()
    private var running: Task<Void, Never>?

    init() {
        let warning = UIApplication.didReceiveMemoryWarningNotification
        NotificationCenter.default.addObserver(forName: warning, object: nil, queue: .main) { [models] _ in
            Task { await models.close() }
        }
    }

    /// Whether the app was built with a bundle of this name.
    func has(_ name: String) -> Bool { models.names.contains(name) }

    func classify(_ text: String) {
        run("classifier") { model in
            let classes = try await model.classify(text, topK: nil)
            self.answer = classes.map { $0.label + String(format: "  %.1f %%", 100 * $0.score) }.joined(separator: "\n")
        }
    }

    /// Answers a message; the words appear as they are generated.
    func chat(_ text: String) {
        conversation.append(Message(role: "user", content: text))
        run("chat") { model in
            let asked = self.conversation
            var said = ""
            for try await piece in model.chat(asked, settings: GenerationSettings { $0.maxNewTokens = 200 }) {
                said += piece.text
                self.conversation = asked + [Message(role: "assistant", content: said)]
            }
        }
    }

    func translate(_ text: String) {
        run("translator") { model in
            for try await piece in model.translate(text, truncation: true) { self.answer += piece.text }
        }
    }

    /// Orders the notes by their similarity to a question.
    func search(_ question: String) {
        run("embedder") { model in
            let best = try await model.search(question, self.notes, topK: 3)
            self.answer = best.map { String(format: "%.2f  ", $0.score) + self.notes[$0.index] }.joined(separator: "\n\n")
        }
    }

    func clear() {
        stop()
        conversation = []
        answer = ""
        problem = nil
    }

    /// Ends the running task after its current token.
    func stop() {
        running?.cancel()
    }

    private func run(_ name: String, _ task: @escaping @MainActor (TextModel) async throws -> Void) {
        let previous = running
        previous?.cancel()
        running = Task {
            await previous?.value
            if Task.isCancelled { return }
            isBusy = true
            answer = ""
            problem = nil
            do {
                try await task(models.get(name))
            } catch is CancellationError {
                // The user asked for it.
            } catch {
                problem = error.localizedDescription
            }
            isBusy = false
        }
    }
}
