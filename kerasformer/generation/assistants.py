"""Assistant models for speculative decoding."""

from __future__ import annotations

from collections.abc import Callable

from kerasformer.engines import Step
from kerasformer.errors import TokenizerError
from kerasformer.tokenization import Tokenizer

AssistantLoader = Callable[[object], tuple[Step, Tokenizer | None]]
"""Maps the value of the argument `assistant` to an engine, and to its tokenizer if it has one."""


def load_assistant(source: object, tokenizer: Tokenizer | None, loader: AssistantLoader) -> Step | None:
    """Loads the engine of an assistant.

    Args:
        source: Value of the argument `assistant`; `None` for no assistant.
        tokenizer: Tokenizer of the model, or `None` if it has none.
        loader: Loads the assistant.
    Raises:
        TokenizerError: the vocabularies of model and assistant differ.
    """
    if source is None:
        return None
    step, assistant_tokenizer = loader(source)
    if tokenizer is not None and assistant_tokenizer is not None:
        _check_equal(tokenizer.get_vocab(), assistant_tokenizer.get_vocab())
    return step


def _check_equal(expected: dict[str, int], received: dict[str, int]) -> None:
    if expected == received:
        return
    tokens = expected.keys() | received.keys()
    token = min((token for token in tokens if expected.get(token) != received.get(token)), key=str)
    raise TokenizerError(
        f"An assistant must have the same vocabulary as the model. Expected: {len(expected)} tokens, with {token!r} "
        f"as {expected.get(token)}. Received: {len(received)} tokens, with {token!r} as {received.get(token)}. "
        "Use a smaller model of the same family."
    )
