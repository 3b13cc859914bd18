// Declarations of the Android classes that the guide and the model cards use, so that they compile without Android.
package android.content

import java.io.File
import java.io.InputStream

abstract class AssetManager {
    abstract fun open(fileName: String): InputStream
}

abstract class Context {
    abstract val assets: AssetManager
    abstract val cacheDir: File
    abstract val filesDir: File
}
