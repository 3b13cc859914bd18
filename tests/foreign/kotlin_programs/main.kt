// Prints the code points of each argument after the guide's `plain`.
fun main(arguments: Array<String>) {
    arguments.forEach { println(plain(it).codePoints().toArray().joinToString(" ")) }
}
