package io.github.kerasformer.example

import android.content.Context
import java.io.File
import kerasformer.TextModel
import kerasformer.engine.LiteRt
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * The models in the assets. One is open at a time, because a phone's memory may not hold two language models; opening a
 * small one takes less than a second.
 */
class Models(private val context: Context) {
    private val mutex = Mutex()
    private var open: Pair<String, TextModel>? = null

    /** Names of the bundles: the folders in the assets. */
    val names: List<String> = context.assets.list(ASSETS).orEmpty().toList()

    /** Returns a model, which stays open until another one is needed. */
    suspend fun get(name: String): TextModel = mutex.withLock {
        open?.let { (known, model) ->
            if (known == name) return@withLock model
            open = null
            model.close()
        }
        withContext(Dispatchers.IO) { TextModel.open(copied(name), LiteRt()) }.also { open = name to it }
    }

    /** Closes the open model: Android needs the memory, and the model is opened again when it is used. */
    suspend fun close() = mutex.withLock {
        open?.second?.close()
        open = null
    }

    /** Copies a bundle from the assets to files, which the engine maps into memory; once for each version of the app. */
    private fun copied(name: String): File {
        val version = context.packageManager.getPackageInfo(context.packageName, 0).lastUpdateTime
        val target = File(context.filesDir, "$ASSETS/$version/$name")
        if (target.isDirectory) return target
        File(context.filesDir, ASSETS).listFiles()?.filter { it.name != "$version" }?.forEach { it.deleteRecursively() }
        val partial = File("$target.part").apply { deleteRecursively(); mkdirs() }
        for (file in context.assets.list("$ASSETS/$name").orEmpty()) {
            context.assets.open("$ASSETS/$name/$file").use { from -> File(partial, file).outputStream().use(from::copyTo) }
        }
        check(partial.renameTo(target)) { "The bundle could not be moved to $target" }
        return target
    }

    private companion object {
        const val ASSETS = "bundles"
    }
}
