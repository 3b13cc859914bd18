// Declarations of MediaPipe Tasks that the guide and the model cards use, as in mediapipe/tasks/java.
package com.google.mediapipe.tasks.core

class BaseOptions {
    class Builder {
        fun setModelAssetPath(value: String): Builder = TODO()

        fun build(): BaseOptions = TODO()
    }

    companion object {
        @JvmStatic fun builder(): Builder = TODO()
    }
}
