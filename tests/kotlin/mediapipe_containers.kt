// Of MediaPipe Tasks, as mediapipe/tasks/java declares them.
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
