"""Conversion of regular expressions, JSON schemas and Lark grammars to the JSON format of `llguidance`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kerasformer.basics.arguments import TEXT, check, shown
from kerasformer.errors import GenerationError
from kerasformer.extras import require


def regex(pattern: object) -> str:
    r"""Converts a regular expression that the whole text must match.

    `\d` matches the digits from 0 to 9, as in JavaScript, because the set of Unicode digits depends on the version of
    Unicode.
    """
    text = check("regex", pattern, TEXT, error=GenerationError)
    return lark(f"start: /{require('llguidance', 'grammar').regex_to_lark(text, 'd')}/")


_SPACES = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""Whitespace of Python's `json`: if any whitespace is allowed, small models generate it endlessly."""


def json_schema(schema: object) -> str:
    """Converts a JSON schema; options of `llguidance` under the key `x-guidance` take precedence over our defaults."""
    try:
        content = json.loads(schema) if isinstance(schema, str) else schema
        if content is not True and not isinstance(content, Mapping):
            raise TypeError("expected an object, or true for any JSON")
        text = json.dumps({} if content is True else dict(content))
        library = require("llguidance", "grammar")
        return str(library.LLMatcher.grammar_from_json_schema(text, defaults=_SPACES))
    except (TypeError, ValueError, RecursionError) as error:
        raise GenerationError(f"json_schema must be a JSON schema: {error}. Received: {shown(schema)}") from error


def lark(grammar: object) -> str:
    """Converts a context-free grammar in the syntax of Lark."""
    return json.dumps({"grammars": [{"lark_grammar": check("grammar", grammar, TEXT, error=GenerationError)}]})


GRAMMARS: Mapping[str, Callable[[object], str]] = {
    "regex": regex,
    "json_schema": json_schema,
    "grammar": lark,
}
"""Conversion functions by the name of the argument."""


def wrapped(grammar: str, drops_space: bool) -> str:
    """Wraps the grammar of a text into a grammar of its tokens.

    Args:
        grammar: Grammar of the text, in the JSON format of `llguidance`.
        drops_space: Whether decoding drops a space at the start of the text, which is then optional.
    """
    content = json.loads(grammar)
    content["grammars"][0]["name"] = "text"
    start = 'start: " "? @text' if drops_space else "start: @text"
    # With forcing, the library would allow only one tokenization where only one text can follow.
    content["grammars"].insert(0, {"lark_grammar": f'%llguidance {{"no_forcing": true}}\n{start}'})
    return json.dumps(content)
