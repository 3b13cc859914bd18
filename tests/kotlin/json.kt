// Of Android's own org.json, what the model cards name, for a compiler that has no Android.
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
