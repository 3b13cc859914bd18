package io.github.kerasformer.example

import android.app.Application
import androidx.compose.runtime.getValue
import androidx.compose.runtime.mutableStateListOf
import androidx.compose.runtime.mutableStateOf
import androidx.compose.runtime.setValue
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import kerasformer.KerasformerException
import kerasformer.TextModel
import kerasformer.decoding.GenerationSettings
import kerasformer.template.Message
import kotlinx.coroutines.Job
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.launch

/** What the screens show, and the running task. A new task, or leaving the screen, cancels the one before. */
class TaskViewModel(app: Application) : AndroidViewModel(app) {
    private val models = (app as ExampleApp).models
    private var job: Job? = null

    var isBusy by mutableStateOf(false)
        private set
    var answer by mutableStateOf("")
        private set
    var problem by mutableStateOf<String?>(null)
        private set
    val conversation = mutableStateListOf<Message>()
    val notes = mutableStateListOf(
        "The spare key is under the flower pot.",
        "Call the dentist on Monday about the appointment.",
        "Wifi password of the holiday flat: sunflower",
        "Bread: 500 g of flour, 350 g of water, 10 g of salt, a night in the fridge.",
    )

    /** Whether the app was built with a bundle of this name. */
    fun has(name: String) = name in models.names

    fun classify(text: String) = run("classifier") {
        answer = it.classify(text, topK = null).joinToString("\n") { (label, score) -> label + "  %.1f %%".format(100 * score) }
    }

    /** Answers a message; the words appear as they are generated. */
    fun chat(text: String) {
        conversation += Message("user", text)
        run("chat") { model ->
            val asked = conversation.toList()
            conversation += Message("assistant", "")
            var said = ""
            model.chat(asked, GenerationSettings(maxNewTokens = 200)).collect {
                said += it
                conversation[asked.size] = Message("assistant", said)
            }
        }
    }

    fun translate(text: String) = run("translator") { stream(it.translate(text, truncation = true)) }

    /** Orders the notes by their similarity to a question. */
    fun search(question: String) = run("embedder") { model ->
        val best = model.search(question, notes.toList(), topK = 3)
        answer = best.joinToString("\n\n") { (index, score) -> "%.2f  ".format(score) + notes[index] }
    }

    fun clear() {
        stop()
        conversation.clear()
        answer = ""
        problem = null
    }

    /** Ends the running task after its current token. */
    fun stop() {
        job?.cancel()
    }

    private suspend fun stream(pieces: Flow<String>) {
        answer = ""
        pieces.collect { answer += it }
    }

    private fun run(name: String, task: suspend (TextModel) -> Unit) {
        job?.cancel()
        job = viewModelScope.launch {
            isBusy = true
            problem = null
            try {
                task(models.get(name))
            } catch (error: KerasformerException) {
                problem = error.message
            } finally {
                if (job == coroutineContext[Job]) isBusy = false
            }
        }
    }
}
