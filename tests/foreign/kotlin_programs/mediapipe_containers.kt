// Declarations of MediaPipe Tasks that the guide and the model cards use, as in mediapipe/tasks/java.
package com.google.mediapipe.tasks.components.containers

interface Category {
    fun score(): Float

    fun index(): Int

    fun categoryName(): String

    fun displayName(): String
}

interface Classifications {
    fun categories(): List<Category>
}

interface ClassificationResult {
    fun classifications(): List<Classifications>
}
