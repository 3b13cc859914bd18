// Android's org.json, as far as the programs and model cards use it, so that they compile and run without Android.
package org.json

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long

class JSONObject(private val content: JsonObject) {
    constructor(json: String) : this(Json.parseToJsonElement(json).jsonObject)

    private fun value(name: String): JsonElement? = content[name]?.takeIf { it != JsonNull }

    fun keys(): Iterator<String> = content.keys.iterator()

    fun isNull(name: String): Boolean = value(name) == null

    fun getString(name: String): String = content.getValue(name).jsonPrimitive.content

    fun getInt(name: String): Int = content.getValue(name).jsonPrimitive.int

    fun getJSONObject(name: String) = JSONObject(content.getValue(name).jsonObject)

    fun getJSONArray(name: String) = JSONArray(content.getValue(name).jsonArray)

    fun optString(name: String): String = value(name)?.jsonPrimitive?.content ?: ""

    fun optInt(name: String): Int = value(name)?.jsonPrimitive?.int ?: 0

    fun optJSONObject(name: String): JSONObject? = value(name)?.let { JSONObject(it.jsonObject) }

    fun optJSONArray(name: String): JSONArray? = value(name)?.let { JSONArray(it.jsonArray) }
}

class JSONArray(private val content: JsonArray) {
    constructor(json: String) : this(Json.parseToJsonElement(json).jsonArray)

    fun length(): Int = content.size

    fun getInt(index: Int): Int = content[index].jsonPrimitive.int

    fun getLong(index: Int): Long = content[index].jsonPrimitive.long

    fun getString(index: Int): String = content[index].jsonPrimitive.content

    fun getJSONObject(index: Int) = JSONObject(content[index].jsonObject)

    fun getJSONArray(index: Int) = JSONArray(content[index].jsonArray)
}
