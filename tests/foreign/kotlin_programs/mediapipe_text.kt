// Declarations of MediaPipe Tasks that the guide and the model cards use, as in mediapipe/tasks/java.
package com.google.mediapipe.tasks.text.textclassifier

import android.content.Context
import com.google.mediapipe.tasks.components.containers.ClassificationResult
import com.google.mediapipe.tasks.core.BaseOptions

interface TextClassifierResult {
    fun classificationResult(): ClassificationResult
}

class TextClassifier : AutoCloseable {
    class TextClassifierOptions {
        class Builder {
            fun setBaseOptions(value: BaseOptions): Builder = TODO()

            fun setMaxResults(value: Int): Builder = TODO()

            fun build(): TextClassifierOptions = TODO()
        }

        companion object {
            @JvmStatic fun builder(): Builder = TODO()
        }
    }

    fun classify(inputText: String): TextClassifierResult = TODO()

    override fun close() {}

    companion object {
        @JvmStatic fun createFromOptions(context: Context, options: TextClassifierOptions): TextClassifier = TODO()
    }
}
