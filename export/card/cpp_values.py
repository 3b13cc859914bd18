"""Values of a bundle that the C++ programs of a card are filled with: names, shapes and ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Template

from kerasformer.bundle import Kind, Manifest, Role, Signature
from kerasformer.bundle.interface import CACHES, CROSS_CACHES, DECODE, around_layer
from kerasformer.export.card.program import (
    LANGUAGE,
    forbidden_tokens,
    lacks_language,
    lengths_of,
    limit,
    step,
    text_prefix,
)
from kerasformer.export.card.quoting import cpp


class Program(Template):
    """Template of source code, with `@name` for the names and numbers of a bundle, and `@@` for an `@`."""

    delimiter = "@"


def values(manifest: Manifest) -> dict[str, str]:
    """Returns the values for all programs; lists are separated by commas.

    `outputs`, `caches`, `cross_caches` and `kinds` are literals; other texts are without quotation marks, for use
    inside of a literal or a comment.
    """
    info, steps = manifest.info, step(manifest)
    keys = [steps.inputs[name] for name in steps.named(Kind.KEY)]
    heads, size = (keys[0].shape[1], keys[0].shape[3]) if keys else (0, 0)
    lengths = lengths_of(manifest)
    logits = steps.output(Kind.LOGITS)
    return {
        **_interface_names(manifest),
        **_cache_names(steps),
        "file": _inner(steps.file),
        "encoder_file": _inner(_reader(manifest).file),
        "pad": str(info.input_padding),
        "ends": _numbers(info.eos_token_id),
        "start": LANGUAGE if _awaits(manifest, "decoder_start_token_id") else str(info.start_token_id),
        "with_prefix": f"{cpp(text_prefix(manifest))} before it and " if text_prefix(manifest) else "",
        "lengths": _numbers(lengths),
        "limit": str(limit(manifest)),
        "capacity": str(manifest.capacity),
        "encoder_capacity": str(manifest.encoder_capacity),
        "layers": str(len(keys)),
        "heads": str(heads),
        "size": str(size),
        "vocabulary": str(info.vocab_size if logits is None else steps.outputs[logits].shape[-1]),
        "outputs": ", ".join(map(cpp, steps.outputs)),
        "output": _inner(next(iter(steps.outputs))),
    }


def _interface_names(manifest: Manifest) -> dict[str, str]:
    """Returns the names of signatures and tensors, without quotation marks.

    Tensors of the signature that computes the answers are found under their kind, such as `ids`, `slots` or `logits`;
    those of the encoder of an encoder-decoder under `text_ids`, `text_mask` and `states`. `step` is the name of that
    signature, and `forward` and `encode` are the beginnings of names that end with a length.
    """
    steps, reader = step(manifest), _reader(manifest)
    tensors = {info.kind: name for part in (steps.inputs, steps.outputs) for name, info in reversed(part.items())}
    named = {str(kind): name for kind, name in tensors.items()}
    named |= {"text_ids": reader.input(Kind.IDS) or "", "text_mask": reader.input(Kind.MASK) or ""}
    named |= {"states": next(iter(reader.outputs)), "step": DECODE}
    named |= {str(role): _beginning(manifest, role) for role in (Role.FORWARD, Role.ENCODE)}
    return {key: _inner(name) for key, name in named.items()}


def length_check(manifest: Manifest, lines: str) -> str:
    """Returns the lines of a program that refuse a text of too many tokens, empty if the model has no limit.

    Args:
        manifest: Manifest of the bundle.
        lines: The lines, with `@limit` for the largest number of tokens.
    """
    return "" if limit(manifest) is None else Program(lines).substitute(limit=limit(manifest))


def rules(manifest: Manifest, forbidden: str, first: str) -> dict[str, str]:
    """Returns the lines of a program that change scores or a token, which are empty for most models.

    Args:
        manifest: Manifest of a model that generates.
        forbidden: Lines that lower the scores of tokens, with `@ids` for these tokens.
        first: Lines that choose the first token of an encoder-decoder's answer, with `@id` for it: in multilingual
            models the language.
    """
    settings = manifest.info.generation
    ids, begins = forbidden_tokens(settings), None
    if manifest.info.is_encoder_decoder:
        begins = LANGUAGE if _awaits(manifest, "forced_bos_token_id") else settings.get("forced_bos_token_id")
    return {
        "forbidden": Program(forbidden).substitute(ids=_numbers(ids)) if ids else "",
        "first": "" if begins is None else Program(first).substitute(id=begins),
    }


def _awaits(manifest: Manifest, setting: str) -> bool:
    """Returns whether a setting has to be the id of a language, which is missing."""
    languages = manifest.info.languages
    return lacks_language(manifest) and languages is not None and languages.setting == setting


def prefills(manifest: Manifest) -> str:
    """Returns the names and lengths of the signatures that read a prompt, from the longest to a single token."""
    lengths = {signature.tokens or 0: name for name, signature in manifest.of_role(Role.PREFILL).items()}
    rows = [*sorted(lengths.items(), reverse=True), (1, DECODE)]
    return ", ".join(f"{{{cpp(name)}, {length}}}" for length, name in rows)


def inputs(manifest: Manifest, lines: Mapping[Kind, str]) -> str:
    """Returns the lines for those inputs that an encoder takes, in its order.

    Args:
        manifest: Manifest of the bundle.
        lines: Code for an input of each kind, with `@name` for its name and `@pad` for the padding token. Inputs of
            the kind `OTHER`, such as the language of each token, are filled with `@default`.
    """
    pad, tensors = manifest.info.input_padding, _reader(manifest).inputs.items()
    code = (
        Program(lines[Kind(info.kind)]).substitute(name=_inner(name), pad=pad, default=info.default or 0)
        for name, info in tensors
        if info.kind is not None and info.kind in lines
    )
    return "\n  ".join(code)


def takes_segments(manifest: Manifest) -> bool:
    """Returns whether an encoder takes the segment of each token."""
    return _reader(manifest).input(Kind.SEGMENTS) is not None


def _numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _inner(text: str) -> str:
    """Returns the inner part of a literal, without quotation marks."""
    return cpp(text)[1:-1]


def _cache_names(steps: Signature) -> dict[str, str]:
    """Returns the names of the caches of a layer.

    `caches` and `cross_caches` are without the number of the layer. For caches with a common beginning, that of the
    inputs is `past`, that of the outputs `present`, and `kinds` are the texts after the number of the layer.
    """
    first = {name: around_layer(name) for name in steps.named(*CACHES, *CROSS_CACHES) if steps.inputs[name].layer == 0}

    def of_layer(kinds: tuple[Kind, ...]) -> str:
        parts = (first[name] for name in steps.named(*kinds) if name in first)
        return ", ".join(cpp(before + after) for before, after in parts)

    past, present = (
        next((around_layer(name)[0] for name, info in tensors.items() if info.kind in CACHES), "")
        for tensors in (steps.inputs, steps.outputs)
    )
    return {
        "caches": of_layer(CACHES),
        "cross_caches": of_layer(CROSS_CACHES),
        "past": _inner(past),
        "present": _inner(present),
        "kinds": ", ".join(cpp(after) for _, after in first.values()),
    }


def _beginning(manifest: Manifest, role: Role) -> str:
    """Returns the names of a role's signatures without the lengths at their ends."""
    signatures = manifest.of_role(role).items()
    return next((name.removesuffix(str(signature.tokens)) for name, signature in signatures), "")


def _reader(manifest: Manifest) -> Signature:
    """Returns the signature that reads a text: the first one, for any bundle."""
    return next(iter(manifest.signatures.values()))
