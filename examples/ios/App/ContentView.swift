import SwiftUI

/// A screen of the app, and the name of the bundle that it needs.
enum Screen: String, CaseIterable, Identifiable {
    case classifier = "Classify"
    case chat = "Chat"
    case translator = "Translate"
    case embedder = "Notes"

    var id: String { rawValue }
    var bundle: String { "\(self)" }

    var icon: String {
        switch self {
        case .classifier: return "tag"
        case .chat: return "bubble.left.and.bubble.right"
        case .translator: return "character.book.closed"
        case .embedder: return "magnifyingglass"
        }
    }

    var hint: String {
        switch self {
        case .classifier: return "Not bad at all!"
        case .chat: return "Write a message"
        case .translator: return "Where is the station?"
        case .embedder: return "How do I get into the house?"
        }
    }
}

struct ContentView: View {
    @EnvironmentObject private var tasks: Tasks

    var body: some View {
        TabView {
            ForEach(Screen.allCases.filter { tasks.has($0.bundle) }) { screen in
                TaskView(screen: screen)
                    .tabItem { Label(screen.rawValue, systemImage: screen.icon) }
                    .onDisappear { tasks.clear() }
            }
        }
    }
}

struct TaskView: View {
    let screen: Screen
    @EnvironmentObject private var tasks: Tasks
    @State private var text = ""

    var body: some View {
        Form {
            if screen == .chat {
                ForEach(Array(tasks.conversation.enumerated()), id: \.offset) { _, message in
                    Text(message.content ?? "").frame(maxWidth: .infinity, alignment: message.role == "user" ? .trailing : .leading)
                }
            }
            if screen == .embedder {
                Section("Notes") { ForEach(tasks.notes, id: \.self) { Text($0) } }
            }
            Section {
                TextField(screen.hint, text: $text)
                    .accessibilityLabel(screen == .embedder ? "Question" : "Text")
                if tasks.isBusy {
                    Button("Stop", role: .cancel) { tasks.stop() }
                } else {
                    Button(screen == .chat ? "Send" : "Run", action: start)
                }
            }
            if tasks.isBusy && tasks.answer.isEmpty { ProgressView() }
            if let problem = tasks.problem { Text(problem).foregroundColor(.red) }
            if !tasks.answer.isEmpty { Text(tasks.answer).textSelection(.enabled) }
        }
    }

    private func start() {
        let given = text.isEmpty ? screen.hint : text
        switch screen {
        case .classifier: tasks.classify(given)
        case .chat:
            tasks.chat(given)
            text = ""
        case .translator: tasks.translate(given)
        case .embedder: tasks.search(given)
        }
    }
}
