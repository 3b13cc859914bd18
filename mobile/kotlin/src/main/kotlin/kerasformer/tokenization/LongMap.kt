package kerasformer.tokenization

/** A hash table from non-negative longs to longs, without an object for each entry. */
internal class LongMap(expected: Int) {
    private var keys = LongArray(Integer.highestOneBit(maxOf(expected, 8)) * 4) { -1 }
    private var values = LongArray(keys.size)
    private var size = 0

    /** The value of a key, or -1. */
    operator fun get(key: Long): Long {
        val slot = slotOf(key)
        return if (keys[slot] == key) values[slot] else -1
    }

    operator fun set(key: Long, value: Long) {
        val slot = slotOf(key)
        if (keys[slot] != key) size++
        keys[slot] = key
        values[slot] = value
        if (size * 2 > keys.size) grow()
    }

    private fun slotOf(key: Long): Int {
        val hash = key * -0x61c8864680b583ebL // 2^64 divided by the golden ratio
        var slot = (hash ushr 32).toInt() and (keys.size - 1)
        while (keys[slot] != key && keys[slot] != -1L) slot = (slot + 1) and (keys.size - 1)
        return slot
    }

    private fun grow() {
        val (oldKeys, oldValues) = keys to values
        keys = LongArray(oldKeys.size * 2) { -1 }
        values = LongArray(keys.size)
        size = 0
        for (index in oldKeys.indices) if (oldKeys[index] != -1L) set(oldKeys[index], oldValues[index])
    }
}

/** Finds the words of a list that begin at a position of a text. Words and texts are arrays of code points. */
internal class Trie(expected: Int) {
    private val children = LongMap(expected)
    private var values = IntArray(64) { -1 }
    private var nodes = 1

    fun add(word: String, value: Int) {
        var node = 0
        word.codePoints().forEach { char ->
            var child = children[key(node, char)].toInt()
            if (child < 0) {
                child = nodes++
                if (child >= values.size) values = values.copyOf(child * 2).also { it.fill(-1, child) }
                children[key(node, char)] = child.toLong()
            }
            node = child
        }
        values[node] = value
    }

    /** Calls [found] with the value and the end of each word that begins at [start], the shortest first. */
    inline fun search(text: IntArray, start: Int, limit: Int, found: (value: Int, end: Int) -> Unit) {
        var node = 0
        for (index in start until limit) {
            node = child(node, text[index])
            if (node < 0) return
            val value = valueOf(node)
            if (value >= 0) found(value, index + 1)
        }
    }

    fun child(node: Int, char: Int): Int = children[key(node, char)].toInt()

    fun valueOf(node: Int): Int = values[node]

    private fun key(node: Int, char: Int): Long = (node.toLong() shl 21) or char.toLong()
}
