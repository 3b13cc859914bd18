// A desktop in the place of an Android device: files and assets are in a folder.
import android.content.AssetManager
import android.content.Context
import java.io.File
import java.io.InputStream

class Desktop(override val filesDir: File) : Context() {
    override val cacheDir = filesDir
    override val assets = object : AssetManager() {
        override fun open(fileName: String): InputStream = File(filesDir, "assets/$fileName").inputStream()
    }
}
