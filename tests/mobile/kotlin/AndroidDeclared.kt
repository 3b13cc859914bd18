// Android's class as far as the library uses it; a variable of a real process cannot be set from Java elsewhere.
package android.system

object Os {
    val set = HashMap<String, String>()

    @JvmStatic
    fun setenv(name: String, value: String, overwrite: Boolean) {
        if (overwrite || name !in set) set[name] = value
    }
}
