package kerasformer

import java.io.File
import java.io.IOException
import java.security.MessageDigest

/**
 * The folder of an exported model, with its manifest `kerasformer.json`.
 *
 * @property folder The folder.
 * @property signatures The functions of the model, by name.
 * @property format `"tflite"`, `"onnx"` or `"table"`.
 * @property capacity Number of slots of a decoder's cache, in tokens; `null` for other models.
 */
class Bundle private constructor(val folder: File, internal val content: JsonObject) {
    internal val info: JsonObject = content.child("info").orEmpty()
    internal val files: Map<String, String> = content.child("files").orEmpty().mapValues { it.value.toString() }
    val format: String = content.text("format").orEmpty()
    val signatures: Map<String, Signature> = content.child("signatures").orEmpty().mapValues { Signature(it.value.asObject()!!) }
    val capacity: Int? = content.int("capacity")
    internal val encoderCapacity: Int? = content.int("encoder_capacity")

    /** The id that fills the rest of a text's ids, which the mask hides. */
    internal val padding: Int = info.int("pad_token_id")?.takeIf { id -> (info.int("vocab_size") ?: 0).let { it == 0 || id < it } } ?: 0

    internal fun ofRole(role: String): Map<String, Signature> = signatures.filterValues { it.role == role }

    /** The content of a file of the bundle, whose checksum is compared with that of the manifest. */
    internal fun read(name: String): String {
        checkFile(name)
        return File(folder, name).readText()
    }

    /** @throws BundleError The file is missing, or was changed after the export. */
    internal fun checkFile(name: String) {
        val expected = files[name] ?: throw BundleError("the bundle has no $name. Received: $folder. Export it again from a model with a tokenizer")
        val file = File(folder, name)
        if (!file.canonicalPath.startsWith(folder.canonicalPath + File.separator)) throw BundleError("$MANIFEST: files: $name is outside of the folder")
        if (!file.isFile) throw BundleError("the bundle is incomplete: $name is missing. Received: $folder. Export the model again")
        val digest = MessageDigest.getInstance("SHA-256")
        file.inputStream().use { stream ->
            val buffer = ByteArray(1 shl 16)
            while (true) {
                val count = stream.read(buffer)
                if (count < 0) break
                digest.update(buffer, 0, count)
            }
        }
        val received = digest.digest().hexadecimal()
        if (received != expected) {
            throw BundleError(
                "the bundle was changed after its export: $name must have sha256 $expected. Received: $received in $folder. Export the model again",
            )
        }
    }

    companion object {
        private const val MANIFEST = "kerasformer.json"
        private const val FORMAT_VERSION = 2
        private const val CHECKSUM = "manifest_sha256"

        /**
         * Reads and checks the manifest of a folder.
         *
         * @throws BundleError The folder has no manifest, or one that was changed or written by a newer version.
         */
        fun open(folder: File): Bundle {
            val text = try {
                File(folder, MANIFEST).readText()
            } catch (error: IOException) {
                throw BundleError("$MANIFEST cannot be read. A bundle folder was expected. Received: $folder", error)
            }
            val content = try {
                Json.parse(text).asObject()
            } catch (_: IllegalArgumentException) {
                null
            } ?: throw BundleError("$MANIFEST is not a JSON object. A bundle folder was expected. Received: $folder")
            check(folder, content)
            return Bundle(folder, content)
        }

        private fun check(folder: File, content: JsonObject) {
            val version = content["format_version"]
            if (version !is Long || version < 1) {
                throw BundleError("$MANIFEST: format_version must be a positive integer. Received: ${repr(version)} in $folder")
            }
            if (version > FORMAT_VERSION) {
                throw BundleError(
                    "this bundle was written by a newer kerasformer: it has format version $version, and this version supports versions up " +
                        "to $FORMAT_VERSION. Received: $folder. Install a newer kerasformer",
                )
            }
            if (version < FORMAT_VERSION) {
                throw BundleError("this version supports bundles of format version $FORMAT_VERSION. Received: version $version in $folder. Export the model again")
            }
            val missing = listOf("format", "info", "signatures", "files").filter { content[it] == null }
            if (missing.isNotEmpty()) throw BundleError("$MANIFEST: the fields ${missing.joinToString()} are missing. Received: $folder")
            val checksum = content[CHECKSUM] ?: throw BundleError(
                "$MANIFEST lacks the $CHECKSUM that every release of kerasformer writes: it was changed after its export, or written before " +
                    "the first release. Received: $folder. Export the model again",
            )
            val plain = Json.write(sorted(content - CHECKSUM), ascii = true, comma = ",", colon = ":")
            if (checksum != MessageDigest.getInstance("SHA-256").digest(plain.toByteArray()).hexadecimal()) {
                throw BundleError(
                    "$MANIFEST was changed after its export: its fields do not match its $CHECKSUM. Received: $folder. Export the model again " +
                        "with the settings that you want",
                )
            }
            for ((name, signature) in content.child("signatures").orEmpty()) {
                val file = signature.asObject()?.text("file")
                if (file !in content.child("files").orEmpty()) {
                    throw BundleError("$MANIFEST: signatures.$name.file must be one of files. Received: ${repr(file)} in $folder")
                }
                val inputs = signature.asObject()?.child("inputs").orEmpty()
                inputs.entries.find { it.value.asObject()?.text("kind") == "recurrent" }?.let {
                    throw BundleError(
                        "A model with recurrent states cannot run here. Expected: one that keeps keys, values and the last inputs of " +
                            "convolutions alone. Received: ${it.key} in signatures.$name of $folder. Run the bundle with Python",
                    )
                }
            }
        }

        private fun sorted(value: Any?): Any? = when (value) {
            is Map<*, *> -> value.entries.sortedBy { it.key.toString() }.associate { it.key.toString() to sorted(it.value) }
            is List<*> -> value.map(::sorted)
            else -> value
        }

        private fun ByteArray.hexadecimal(): String = joinToString("") { "%02x".format(it) }
    }
}

/**
 * A function of a model.
 *
 * @property file The file of the model, relative to the folder of the bundle.
 * @property inputs Its inputs by name; likewise [outputs].
 * @property rows Number of texts of a call; `null` for any number.
 * @property tokens Number of tokens of each text of a call; `null` for any number.
 * @property cacheLength Number of slots of the cache that the tokens attend to; `null` for any number.
 */
class Signature internal constructor(config: Map<String, Any?>) {
    val file: String = config.text("file").orEmpty()
    internal val role: String = config.text("role").orEmpty()
    val inputs: Map<String, TensorInfo> = config.child("inputs").orEmpty().mapValues { TensorInfo(it.value.asObject()!!) }
    val outputs: Map<String, TensorInfo> = config.child("outputs").orEmpty().mapValues { TensorInfo(it.value.asObject()!!) }
    val rows: Int? = config.int("rows")
    val tokens: Int? = config.int("tokens")
    val cacheLength: Int? = config.int("cache_length")

    internal fun inputsOf(vararg kinds: String): List<String> = inputs.filterValues { it.kind in kinds }.keys.toList()

    internal fun outputOf(kind: String): String? = outputs.entries.find { it.value.kind == kind }?.key

    /** The output that has the next state of an input. */
    internal fun next(input: String): String? = outputs.entries.find { it.value.continues == input }?.key
}

/**
 * A tensor of a function.
 *
 * @property shape Its dimensions; -1 for one that differs from call to call.
 * @property dtype `"int32"`, `"int64"`, `"float32"` or `"int8"`.
 * @property continues For an output: the input whose next state it is, with which it may share memory.
 */
class TensorInfo internal constructor(config: Map<String, Any?>) {
    val shape: IntArray = (config["shape"] as? List<*>).orEmpty().map { (it as? Number)?.toInt() ?: -1 }.toIntArray()
    val dtype: String = config.text("dtype").orEmpty()
    internal val kind: String? = config.text("kind")
    val continues: String? = config.text("continues")
    internal val margin: Int? = config.int("margin")

    /** Of an input of integers: what fills the rest of a fixed length. */
    internal val fill: Int = config.int("default") ?: 0
}
