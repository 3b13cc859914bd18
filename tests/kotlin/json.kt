// Declarations of Android's org.json that the model cards use, so that they compile without Android.
package org.json

class JSONObject {
    fun getString(name: String): String = TODO(name)

    fun getJSONArray(name: String): JSONArray = TODO(name)
}

class JSONArray(json: String) {
    private val content = json

    fun length() = content.length

    fun getJSONObject(index: Int): JSONObject = TODO("$index")

    fun getLong(index: Int): Long = TODO("$index")
}
