// The interface of DJL's Hugging Face tokenizer (ai.djl.huggingface:tokenizers) with a mock: one token per character.
package ai.djl.huggingface.tokenizers

import java.nio.file.Path

class Encoding(val ids: LongArray)

class HuggingFaceTokenizer : AutoCloseable {
    fun encode(text: String) = Encoding(text.map { it.code.toLong() }.toLongArray())

    fun decode(ids: LongArray) = ids.joinToString(" ")

    override fun close() {}

    companion object {
        @JvmStatic fun newInstance(path: Path, options: Map<String, String>) = HuggingFaceTokenizer()
    }
}
