// Of MediaPipe Tasks, as mediapipe/tasks/java declares them.
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
