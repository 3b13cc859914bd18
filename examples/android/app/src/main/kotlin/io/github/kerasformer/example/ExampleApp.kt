package io.github.kerasformer.example

import android.app.Application
import android.content.ComponentCallbacks2
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.launch

/** Holds the models, so that they survive a rotation of the screen. */
class ExampleApp : Application() {
    val models by lazy { Models(this) }
    private val scope = CoroutineScope(SupervisorJob() + Dispatchers.Default)

    override fun onTrimMemory(level: Int) {
        super.onTrimMemory(level)
        if (level >= ComponentCallbacks2.TRIM_MEMORY_BACKGROUND) scope.launch { models.close() }
    }
}
