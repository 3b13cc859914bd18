"""Grammars in the JSON form of `llguidance`, from what a caller gives: a regular expression, a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kerasformer.arguments import TEXT, check, shown
from kerasformer.errors import GenerationError, require


def regex(pattern: Any) -> str:
    r"""A regular expression that the whole text matches; `\d` is a digit from 0 to 9, as in JavaScript.

    There are more digits in Unicode, more than the `re` of any one Python knows.
    """
    text = check("regex", pattern, TEXT, error=GenerationError)
    return lark(f"start: /{require('llguidance', 'grammar').regex_to_lark(text, 'd')}/")


_SPACES = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
"""As Python's `json` writes it: small models that may write any whitespace do so without end."""


def json_schema(schema: Any) -> str:
    """JSON that follows a schema; options of the library under its key `x-guidance` win over ours."""
    try:
        content = json.loads(schema) if isinstance(schema, str) else schema
        if content is not True and not isinstance(content, Mapping):
            raise TypeError("expected an object, or true for any JSON")
        text = json.dumps({} if content is True else dict(content))
        library = require("llguidance", "grammar")
        return str(library.LLMatcher.grammar_from_json_schema(text, defaults=_SPACES))
    except (TypeError, ValueError, RecursionError) as error:
        raise GenerationError(f"json_schema must be a JSON schema: {error}. Received: {shown(schema)}") from error


def lark(grammar: Any) -> str:
    """A context-free grammar in the syntax of Lark."""
    return json.dumps({"grammars": [{"lark_grammar": check("grammar", grammar, TEXT, error=GenerationError)}]})


GRAMMARS: Mapping[str, Callable[[Any], str]] = {
    "regex": regex,
    "json_schema": json_schema,
    "grammar": lark,
}
"""By the arguments that ask for them."""


def spoken(grammar: str, eats_space: bool) -> str:
    """The grammar as tokens say it.

    Args:
        grammar: Of the text.
        eats_space: Decoding drops a space before the text, so that there may be one.
    """
    content = json.loads(grammar)
    content["grammars"][0]["name"] = "text"
    start = 'start: " "? @text' if eats_space else "start: @text"
    # Where only one text can follow, the library would allow but one way to spell it.
    content["grammars"].insert(0, {"lark_grammar": f'%llguidance {{"no_forcing": true}}\n{start}'})
    return json.dumps(content)
