import SwiftUI

@main
struct ExampleApp: App {
    @StateObject private var tasks = Tasks()

    var body: some Scene {
        WindowGroup { ContentView().environmentObject(tasks) }
    }
}
