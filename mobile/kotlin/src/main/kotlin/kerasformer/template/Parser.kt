package kerasformer.template

/** Reads the expressions of a tag. */
internal class Parser(private val tokens: List<Token>) {
    private var next = 0

    val isFinished: Boolean get() = tokens[next].kind == Token.Kind.END

    fun finish() {
        if (!isFinished) fail("unexpected ${tokens[next].text}")
    }

    fun name(): String = tokens[next].takeIf { it.kind == Token.Kind.NAME }?.text?.also { next++ } ?: fail("a name was expected. Received: ${tokens[next].text}")

    /** Whether a name or an operator follows, which is then passed. */
    fun skip(text: String): Boolean {
        val token = tokens[next]
        val matches = token.text == text && (token.kind == Token.Kind.NAME || token.kind == Token.Kind.OPERATOR)
        if (matches) next++
        return matches
    }

    fun expect(text: String) {
        if (!skip(text)) fail("$text was expected. Received: ${tokens[next].text}")
    }

    /** Names that get values, up to a word. */
    fun targets(end: String, optional: Boolean = false): List<String> {
        val isGrouped = skip("(")
        val names = arrayListOf(name())
        while (skip(",")) names += name()
        if (isGrouped) expect(")")
        if (!skip(end) && !optional) fail("$end was expected. Received: ${tokens[next].text}")
        return names
    }

    /** An expression that is the rest of the tag; several with commas are a list. */
    fun whole(): Expression {
        val items = arrayListOf(expression())
        var isTuple = false
        while (skip(",")) {
            isTuple = true
            if (!isFinished) items += expression()
        }
        finish()
        return if (isTuple) tuple(items) else items[0]
    }

    fun expression(ternary: Boolean = true): Expression {
        val value = or()
        if (!ternary || !skip("if")) return value
        val condition = or()
        val otherwise = if (skip("else")) expression() else constant(Undefined("the else branch"))
        return { scope -> if (isTrue(condition(scope))) value(scope) else otherwise(scope) }
    }

    private fun or(): Expression {
        var left = and()
        while (skip("or")) {
            val (first, second) = left to and()
            left = { scope -> first(scope).let { if (isTrue(it)) it else second(scope) } }
        }
        return left
    }

    private fun and(): Expression {
        var left = not()
        while (skip("and")) {
            val (first, second) = left to not()
            left = { scope -> first(scope).let { if (isTrue(it)) second(scope) else it } }
        }
        return left
    }

    private fun not(): Expression {
        if (!skip("not")) return comparison()
        val value = not()
        return { scope -> !isTrue(value(scope)) }
    }

    private fun comparison(): Expression {
        val first = sum()
        val others = ArrayList<Pair<String, Expression>>()
        while (true) {
            val isNegated = tokens[next].text == "not" && tokens.getOrNull(next + 1)?.text == "in"
            if (isNegated) next++
            val operator = COMPARISONS.find { skip(it) } ?: break
            others += (if (isNegated) "not in" else operator) to sum()
        }
        if (others.isEmpty()) return first
        return { scope ->
            var left = first(scope)
            others.all { (operator, value) ->
                val right = value(scope)
                compare(operator, left, right).also { left = right }
            }
        }
    }

    private fun sum(): Expression = operators("+", "-") { operators("~") { operators("*", "//", "/", "%") { unary() } } }

    private fun operators(vararg names: String, operand: () -> Expression): Expression {
        var left = operand()
        while (true) {
            val name = names.find { tokens[next].kind == Token.Kind.OPERATOR && skip(it) } ?: return left
            val (first, second) = left to operand()
            left = { scope -> calculate(name, first(scope), second(scope)) }
        }
    }

    private fun unary(withFilters: Boolean = true): Expression {
        val value: Expression = when {
            skip("-") -> unary(false).let { operand -> { scope -> calculate("-", 0L, operand(scope)) } }
            skip("+") -> unary(false)
            else -> postfix(primary())
        }
        val power: Expression = if (skip("**")) unary(false).let { exponent -> { scope -> calculate("**", value(scope), exponent(scope)) } } else value
        return if (withFilters) filtered(power) else power
    }

    private fun primary(): Expression {
        val token = tokens[next]
        if (token.kind == Token.Kind.NAME) {
            next++
            return when (token.text) {
                "true", "True" -> constant(true)
                "false", "False" -> constant(false)
                "none", "None" -> constant(null)
                else -> variable(token.text)
            }
        }
        if (token.kind == Token.Kind.NUMBER) return constant(token.value).also { next++ }
        if (token.kind == Token.Kind.STRING) {
            val text = StringBuilder()
            while (tokens[next].kind == Token.Kind.STRING) text.append(tokens[next++].value) // neighbouring texts are one
            return constant(text.toString())
        }
        if (skip("(")) {
            val items = list(")")
            return if (items.size == 1 && tokens[next - 2].text != ",") items[0] else tuple(items)
        }
        if (skip("[")) return tuple(list("]"))
        if (skip("{")) {
            val fields = ArrayList<Pair<Expression, Expression>>()
            while (!skip("}")) {
                val key = expression()
                expect(":")
                fields += key to expression()
                if (!skip(",") && tokens[next].text != "}") fail("a comma was expected. Received: ${tokens[next].text}")
            }
            return { scope -> fields.associate { (key, value) -> key(scope) to value(scope) } }
        }
        fail("unexpected ${token.text}")
    }

    private fun variable(name: String): Expression = { scope -> scope[name] }

    private fun tuple(items: List<Expression>): Expression = { scope -> items.map { it(scope) } }

    private fun list(end: String): List<Expression> {
        val items = ArrayList<Expression>()
        while (!skip(end)) {
            items += expression()
            if (!skip(",") && tokens[next].text != end) fail("a comma was expected. Received: ${tokens[next].text}")
        }
        return items
    }

    private fun postfix(start: Expression): Expression {
        var value = start
        while (true) {
            val of = value
            value = when {
                skip(".") -> {
                    val name = if (tokens[next].kind == Token.Kind.NUMBER) tokens[next++].value else name();
                    { scope -> attribute(of(scope), name) }
                }
                skip("[") -> subscript(of)
                skip("(") -> arguments().let { arguments -> { scope -> called(of(scope), arguments, scope) } }
                else -> return value
            }
        }
    }

    private fun subscript(of: Expression): Expression {
        val bounds = ArrayList<Expression?>()
        var isSlice = false
        while (true) {
            bounds += if (tokens[next].text == ":" || tokens[next].text == "]") null else expression()
            if (!skip(":")) break
            isSlice = true
        }
        expect("]")
        if (!isSlice) return bounds[0]!!.let { key -> { scope -> item(of(scope), key(scope)) } }
        return { scope -> slice(of(scope), bounds.map { it?.invoke(scope) }) }
    }

    private class Arguments(val positional: List<Expression>, val named: Map<String, Expression>)

    private fun arguments(): Arguments {
        val positional = ArrayList<Expression>()
        val named = LinkedHashMap<String, Expression>()
        while (!skip(")")) {
            if (tokens[next].kind == Token.Kind.NAME && tokens[next + 1].text == "=") {
                val name = name()
                next++
                named[name] = expression()
            } else {
                positional += expression()
            }
            if (!skip(",") && tokens[next].text != ")") fail("a comma was expected. Received: ${tokens[next].text}")
        }
        return Arguments(positional, named)
    }

    private fun called(function: Any?, arguments: Arguments, scope: Scope): Any? {
        scope.check()
        if (function is Undefined) throw TemplateFailure("'${function.name}' is undefined")
        val known = function as? Function ?: throw TemplateFailure("${typeName(function)} object is not callable")
        return known.call(arguments.positional.map { it(scope) }, arguments.named.mapValues { it.value(scope) })
    }

    /** Filters `| name(…)` and tests `is name`. */
    private fun filtered(start: Expression): Expression {
        var value = start
        while (true) {
            val of = value
            value = if (tokens[next].kind == Token.Kind.OPERATOR && skip("|")) {
                val name = name()
                if (name !in FILTERS) fail("the filter $name is unsupported in this library")
                val arguments = if (skip("(")) arguments() else Arguments(emptyList(), mapOf());
                { scope ->
                    scope.check()
                    filter(name, of(scope), arguments.positional.map { it(scope) }, arguments.named.mapValues { it.value(scope) })
                }
            } else if (tokens[next].kind == Token.Kind.NAME && skip("is")) {
                val isNegated = skip("not")
                val name = name()
                if (name !in TESTS) fail("the test $name is unsupported in this library")
                val argument = if (skip("(")) arguments().positional.firstOrNull() else if (takesArgument()) postfix(primary()) else null;
                { scope -> test(name, of(scope), argument?.invoke(scope)) != isNegated }
            } else if (tokens[next].text == "(" && value !== start) {
                skip("(")
                arguments().let { arguments -> { scope -> called(of(scope), arguments, scope) } }
            } else {
                return value
            }
        }
    }

    private fun takesArgument(): Boolean = when (tokens[next].kind) {
        Token.Kind.NAME -> tokens[next].text !in KEYWORDS
        Token.Kind.STRING, Token.Kind.NUMBER -> true
        else -> tokens[next].text == "[" || tokens[next].text == "{"
    }

    private companion object {
        val COMPARISONS = arrayOf("==", "!=", "<=", ">=", "<", ">", "in")
        val KEYWORDS = setOf("else", "or", "and", "is", "if", "not", "in")
    }
}
