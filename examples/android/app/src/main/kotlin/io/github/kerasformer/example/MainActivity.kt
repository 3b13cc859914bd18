package io.github.kerasformer.example

import android.os.Bundle
import androidx.activity.ComponentActivity
import androidx.activity.compose.setContent
import androidx.activity.enableEdgeToEdge
import androidx.compose.foundation.isSystemInDarkTheme
import androidx.compose.foundation.layout.Arrangement
import androidx.compose.foundation.layout.Column
import androidx.compose.foundation.layout.Row
import androidx.compose.foundation.layout.fillMaxWidth
import androidx.compose.foundation.layout.padding
import androidx.compose.foundation.layout.safeDrawingPadding
import androidx.compose.foundation.rememberScrollState
import androidx.compose.foundation.verticalScroll
import androidx.compose.material3.Button
import androidx.compose.material3.LinearProgressIndicator
import androidx.compose.material3.MaterialTheme
import androidx.compose.material3.OutlinedButton
import androidx.compose.material3.OutlinedTextField
import androidx.compose.material3.PrimaryScrollableTabRow
import androidx.compose.material3.Surface
import androidx.compose.material3.Tab
import androidx.compose.material3.Text
import androidx.compose.material3.darkColorScheme
import androidx.compose.material3.lightColorScheme
import androidx.compose.runtime.Composable
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableIntStateOf
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.saveable.rememberSaveable
import androidx.compose.runtime.setValue
import androidx.compose.ui.Modifier
import androidx.compose.ui.semantics.LiveRegionMode
import androidx.compose.ui.semantics.liveRegion
import androidx.compose.ui.semantics.semantics
import androidx.compose.ui.unit.dp
import androidx.lifecycle.viewmodel.compose.viewModel

/** A screen of the app, and the name of the bundle that it needs. */
private enum class Screen(val title: String, val bundle: String, val hint: String, val action: String) {
    CLASSIFY("Classify", "classifier", "Not bad at all!", "Classify"),
    CHAT("Chat", "chat", "Write a message", "Send"),
    TRANSLATE("Translate", "translator", "Where is the station?", "Translate"),
    NOTES("Notes", "embedder", "How do I get into the house?", "Search"),
}

class MainActivity : ComponentActivity() {
    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        enableEdgeToEdge()
        setContent {
            MaterialTheme(if (isSystemInDarkTheme()) darkColorScheme() else lightColorScheme()) {
                Surface { App() }
            }
        }
    }
}

@Composable
private fun App(model: TaskViewModel = viewModel()) {
    val screens = Screen.entries.filter { model.has(it.bundle) }
    var selected by rememberSaveable { mutableIntStateOf(0) }
    Column(Modifier.safeDrawingPadding()) {
        PrimaryScrollableTabRow(selected) {
            screens.forEachIndexed { index, screen ->
                Tab(
                    selected = index == selected,
                    onClick = {
                        model.clear()
                        selected = index
                    },
                    text = { Text(screen.title) },
                )
            }
        }
        TaskScreen(screens[selected], model)
    }
}

@Composable
private fun TaskScreen(screen: Screen, model: TaskViewModel) {
    var text by rememberSaveable(screen) { mutableStateOf("") }
    Column(
        Modifier.fillMaxWidth().padding(16.dp).verticalScroll(rememberScrollState()),
        verticalArrangement = Arrangement.spacedBy(12.dp),
    ) {
        if (screen == Screen.CHAT) {
            model.conversation.forEach { Text("${if (it.role == "user") "You" else "Model"}: ${it.content.orEmpty()}") }
        }
        if (screen == Screen.NOTES) {
            model.notes.forEach { Text("• $it") }
        }
        OutlinedTextField(
            value = text,
            onValueChange = { text = it },
            label = { Text(if (screen == Screen.NOTES) "Question" else "Text") },
            placeholder = { Text(screen.hint) },
            modifier = Modifier.fillMaxWidth(),
        )
        Row(horizontalArrangement = Arrangement.spacedBy(8.dp)) {
            Button(
                enabled = !model.isBusy,
                onClick = {
                    val given = text.ifBlank { screen.hint }
                    when (screen) {
                        Screen.CLASSIFY -> model.classify(given)
                        Screen.CHAT -> model.chat(given).also { text = "" }
                        Screen.TRANSLATE -> model.translate(given)
                        Screen.NOTES -> model.search(given)
                    }
                },
            ) { Text(screen.action) }
            if (model.isBusy) OutlinedButton(onClick = model::stop) { Text("Stop") }
        }
        if (model.isBusy && model.answer.isEmpty()) LinearProgressIndicator(Modifier.fillMaxWidth())
        model.problem?.let { Text(it, color = MaterialTheme.colorScheme.error) }
        Text(model.answer, Modifier.semantics { liveRegion = LiveRegionMode.Polite })
    }
}
