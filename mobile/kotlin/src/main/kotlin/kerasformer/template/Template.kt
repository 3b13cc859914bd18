package kerasformer.template

import kerasformer.ChatTemplateError

/** The variables of a template, a loop or a macro. */
internal class Scope(private val parent: Scope?, private val run: Run) {
    private val values = HashMap<String, Any?>()

    operator fun get(name: String): Any? = if (name in values) values[name] else if (parent != null) parent[name] else Undefined(name)

    operator fun set(name: String, value: Any?) {
        values[name] = value
    }

    fun inner(): Scope = Scope(this, run)

    fun check() = run.check()

    fun write(out: StringBuilder, text: String) = run.write(out, text)
}

/** The limits of a run: its time, and the size of what it writes. */
internal class Run {
    private val end = System.nanoTime() + MAX_NANOSECONDS

    fun check() {
        if (System.nanoTime() > end) throw TemplateFailure("it runs for more than 2 seconds, the limit")
    }

    fun write(out: StringBuilder, text: String) {
        check()
        if (out.length + text.length > MAX_CHARACTERS) throw TemplateFailure("it creates text of more than 2,000,000 characters, the limit")
        out.append(text)
    }

    companion object {
        const val MAX_CHARACTERS = 2_000_000
        private const val MAX_NANOSECONDS = 2_000_000_000L
    }
}

/** An error of a template while it runs. [refuses] tells that the template refuses the conversation. */
internal class TemplateFailure(message: String, val refuses: Boolean = false) : RuntimeException(message)

/** The name of a variable, key or attribute that does not exist. */
internal class Undefined(val name: String)

/** A function of a template. */
internal fun interface Function {
    fun call(positional: List<Any?>, named: Map<String, Any?>): Any?
}

/** An object whose attributes a template may change. */
internal class Namespace(val values: MutableMap<String, Any?>)

internal typealias Expression = (Scope) -> Any?
internal typealias Statement = (Scope, StringBuilder) -> Unit

private object Break : RuntimeException() {
    private fun readResolve(): Any = Break
}

private object Continue : RuntimeException() {
    private fun readResolve(): Any = Continue
}

/**
 * A template of Jinja, with the part of the language that chat templates use.
 *
 * @throws ChatTemplateError The template is not valid, or uses another part of the language.
 */
internal class Template(source: String) {
    private val parts = Lexer(source).parts()
    private var next = 0
    private val body = statements()

    /** @throws ChatTemplateError The template fails, refuses the conversation, or exceeds a limit. */
    fun render(variables: Map<String, Any?>): String {
        val scope = Scope(null, Run())
        for ((name, value) in globals() + variables) scope[name] = value
        val out = StringBuilder()
        try {
            body(scope.inner(), out)
        } catch (error: TemplateFailure) {
            val what = if (error.refuses) "refuses this conversation" else "failed"
            throw ChatTemplateError("The chat template $what: ${error.message}", error)
        } catch (error: StackOverflowError) {
            throw ChatTemplateError("The chat template failed: its functions call each other too often", error)
        }
        return out.toString()
    }

    /** Reads statements up to one of some names, or to the end of the template. */
    private fun statements(vararg ends: String): Statement {
        val body = ArrayList<Statement>()
        while (next < parts.size) {
            when (val part = parts[next]) {
                is Part.Text -> body += { scope, out -> scope.write(out, part.text) }
                is Part.Expression -> Parser(part.tokens).whole().let { value -> body += { scope, out -> scope.write(out, text(value(scope))) } }
                is Part.Statement -> if (part.tokens[0].text in ends) break else body += statement()
            }
            next++
        }
        if (next == parts.size && ends.isNotEmpty()) fail("${ends.last()} is missing")
        return { scope, out -> body.forEach { it(scope, out) } }
    }

    private fun parser(): Parser = Parser((parts[next] as Part.Statement).tokens)

    private fun statement(): Statement {
        val parser = parser()
        return when (val name = parser.name()) {
            "if" -> branches(parser)
            "for" -> loop(parser)
            "set" -> assignment(parser)
            "macro" -> macro(parser)
            "break" -> jump(Break)
            "continue" -> jump(Continue)
            "generation" -> { // marks the text of an assistant, which only a training reads
                next++
                statements("endgeneration")
            }
            else -> fail("the statement $name is unsupported in this library")
        }
    }

    private fun jump(to: RuntimeException): Statement = { _, _ -> throw to }

    private fun branches(first: Parser): Statement {
        val branches = ArrayList<Pair<Expression, Statement>>()
        var condition: Expression = first.whole()
        while (true) {
            next++
            branches += condition to statements("elif", "else", "endif")
            val parser = parser()
            condition = when (parser.name()) {
                "elif" -> parser.whole()
                "else" -> constant(true)
                else -> break
            }
        }
        return { scope, out -> branches.find { (condition, _) -> isTrue(condition(scope)) }?.second?.invoke(scope, out) }
    }

    private fun loop(parser: Parser): Statement {
        val names = parser.targets("in")
        val (values, condition) = parser.expression(ternary = false) to if (parser.skip("if")) parser.expression() else null
        if (parser.skip("recursive")) fail("recursive loops are unsupported in this library")
        parser.finish()
        next++
        val body = statements("else", "endfor")
        val otherwise = if (parser().name() == "else") {
            next++
            statements("endfor")
        } else {
            null
        }
        return { scope, out ->
            val items = items(values(scope)).filter { item ->
                condition == null || isTrue(condition(scope.inner().also { assign(it, names, item) }))
            }
            if (items.isEmpty()) otherwise?.invoke(scope, out)
            try {
                for ((index, item) in items.withIndex()) {
                    scope.check()
                    val inner = scope.inner()
                    assign(inner, names, item)
                    inner["loop"] = loopVariables(items, index)
                    try {
                        body(inner, out)
                    } catch (_: Continue) {
                        continue
                    }
                }
            } catch (_: Break) {
                // The loop ends.
            }
        }
    }

    private fun loopVariables(items: List<Any?>, index: Int): Map<String, Any?> = mapOf(
        "index" to index + 1L, "index0" to index.toLong(), "first" to (index == 0), "last" to (index == items.lastIndex),
        "length" to items.size.toLong(), "revindex" to (items.size - index).toLong(), "revindex0" to (items.size - index - 1).toLong(),
        "previtem" to items.getOrElse(index - 1) { Undefined("previtem") }, "nextitem" to items.getOrElse(index + 1) { Undefined("nextitem") },
    )

    private fun assign(scope: Scope, names: List<String>, value: Any?) {
        if (names.size == 1) {
            scope[names[0]] = value
            return
        }
        val parts = items(value)
        if (parts.size != names.size) throw TemplateFailure("${names.size} values were expected. Received: ${parts.size}")
        names.forEachIndexed { index, name -> scope[name] = parts[index] }
    }

    private fun assignment(parser: Parser): Statement {
        val names = parser.targets("=", optional = true)
        val attribute = if (parser.skip(".")) parser.name().also { parser.skip("=") } else null
        val value: Expression = if (parser.isFinished) {
            next++
            val body = statements("endset");
            { scope -> StringBuilder().also { body(scope.inner(), it) }.toString() }
        } else {
            parser.whole()
        }
        if (attribute == null) return { scope, _ -> assign(scope, names, value(scope)) }
        return { scope, _ ->
            val target = scope[names[0]] as? Namespace ?: throw TemplateFailure("cannot assign attribute on non-namespace object")
            target.values[attribute] = value(scope)
        }
    }

    private fun macro(parser: Parser): Statement {
        val name = parser.name()
        val parameters = ArrayList<Pair<String, Expression?>>()
        parser.expect("(")
        while (!parser.skip(")")) {
            parameters += parser.name() to if (parser.skip("=")) parser.expression() else null
            parser.skip(",")
        }
        parser.finish()
        next++
        val body = statements("endmacro")
        return { scope, _ ->
            scope[name] = Function { positional, named ->
                if (positional.size > parameters.size) throw TemplateFailure("macro '$name' takes not more than ${parameters.size} argument(s)")
                val inner = scope.inner()
                parameters.forEachIndexed { index, (parameter, default) ->
                    inner[parameter] = when {
                        index < positional.size -> positional[index]
                        parameter in named -> named[parameter]
                        else -> default?.invoke(inner) ?: Undefined(parameter).takeIf { default == null }
                    }
                }
                (named.keys - parameters.map { it.first }.toSet()).firstOrNull()?.let { throw TemplateFailure("macro '$name' takes no keyword argument '$it'") }
                StringBuilder().also { body(inner, it) }.toString()
            }
        }
    }
}

internal fun constant(value: Any?): Expression = { value }

internal fun fail(problem: String): Nothing = throw ChatTemplateError("The chat template is not valid Jinja: $problem")
