"""Values of a bundle that the program templates of a card are filled with: names, shapes and ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from kerasformer.bundle import Kind, Manifest, Role, Signature
from kerasformer.bundle.interface import CACHES, CROSS_CACHES, DECODE, DECODER_MODEL, MODEL, around_layer, forward_name
from kerasformer.export.card.quoting import Quote

FOLDER = "programs"
"""Folder of a bundle with the programs and pages to which its card links."""


@dataclass(frozen=True)
class ProgramFile:
    """A program beside the card.

    Attributes:
        name: Name of the file in `FOLDER`.
        title: Language and platform.
        needs: What to install for it, in Markdown.
        source: Content of the file.
    """

    name: str
    title: str
    needs: str
    source: str

    @property
    def row(self) -> str:
        """Row of the card's table of programs."""
        return f"| {self.title} | [{FOLDER}/{self.name}]({FOLDER}/{self.name}) | {self.needs} |"


def source(name: str) -> str:
    """Returns the text of a program that reads the manifest when it runs, and is the same for every bundle."""
    return (Path(__file__).parent / "programs" / name).read_text(encoding="utf-8")


class Program(Template):
    """Template of source code, with `@name` for the names and numbers of a bundle, and `@@` for an `@`."""

    delimiter = "@"


def kind(manifest: Manifest) -> str | None:
    """Returns `"encoder"`, `"decoder"` or `"encoder-decoder"` by the signatures, or `None` for any other model."""
    if manifest.of_role(Role.DECODE):
        return "encoder-decoder" if manifest.of_role(Role.ENCODE) else "decoder"
    # The programs call encoders by the names of our exports, which differ from those of some targets.
    names = [forward_name(length) for length in lengths_of(manifest)]
    return "encoder" if MODEL in manifest.signatures or (names and names[0] in manifest.signatures) else None


def values(manifest: Manifest, quote: Quote, number: str = "") -> dict[str, str]:
    """Returns the values for programs in all languages; lists are separated by commas.

    Args:
        manifest: Manifest of the bundle.
        quote: Quoting function of the language. `outputs`, `caches`, `cross_caches` and `kinds` are literals; other
            texts are without quotation marks, for use inside of a literal or a comment.
        number: Code that inserts the number of a layer into a literal, for `caches` and `cross_caches`.
    """
    info, steps = manifest.info, _step(manifest)
    keys = [steps.inputs[name] for name in steps.named(Kind.KEY)]
    heads, size = (keys[0].shape[1], keys[0].shape[3]) if keys else (0, 0)
    lengths = lengths_of(manifest)
    logits = steps.output(Kind.LOGITS)
    return {
        **interface_names(manifest, quote),
        **_cache_names(steps, quote, number),
        "file": quote(steps.file)[1:-1],
        "encoder_file": quote(_reader(manifest).file)[1:-1],
        "pad": str(info.input_padding),
        "ends": numbers(info.eos_token_id),
        "start": start_token(manifest),
        "prefix": quote(text_prefix(manifest))[1:-1],
        "with_prefix": f'"{quote(text_prefix(manifest))[1:-1]}" before it and ' if text_prefix(manifest) else "",
        "lengths": numbers(lengths),
        "limit": str(limit(manifest)),
        "capacity": str(manifest.capacity),
        "encoder_capacity": str(manifest.encoder_capacity),
        "layers": str(len(keys)),
        "heads": str(heads),
        "size": str(size),
        "vocabulary": str(info.vocab_size if logits is None else steps.outputs[logits].shape[-1]),
        "outputs": quoted(steps.outputs, quote),
        "output": quote(next(iter(steps.outputs)))[1:-1],
    }


def interface_names(manifest: Manifest, quote: Quote) -> dict[str, str]:
    """Returns the names of signatures and tensors, without quotation marks.

    Tensors of the signature that computes the answers are found under their kind, such as `ids`, `slots` or `logits`;
    those of the encoder of an encoder-decoder under `text_ids`, `text_mask` and `states`. `step` is the name of that
    signature, and `forward` and `encode` are the beginnings of names that end with a length.
    """
    steps, reader = _step(manifest), _reader(manifest)
    tensors = {info.kind: name for part in (steps.inputs, steps.outputs) for name, info in reversed(part.items())}
    named = {str(kind): name for kind, name in tensors.items()}
    named |= {"text_ids": reader.input(Kind.IDS) or "", "text_mask": reader.input(Kind.MASK) or ""}
    named |= {"states": next(iter(reader.outputs)), "step": DECODE}
    named |= {str(role): _beginning(manifest, role) for role in (Role.FORWARD, Role.ENCODE)}
    return {key: quote(name)[1:-1] for key, name in named.items()}


def limit(manifest: Manifest) -> int | None:
    """Returns the number of tokens that a text may have: that of a prompt and its answer together, for a decoder."""
    if manifest.of_role(Role.DECODE) and not manifest.info.is_encoder_decoder:
        return manifest.capacity
    return manifest.encoder_capacity or max(lengths_of(manifest), default=manifest.info.max_length)


def length_check(manifest: Manifest, lines: str) -> str:
    """Returns the lines of a program that refuse a text of too many tokens, empty if the model has no limit.

    Args:
        manifest: Manifest of the bundle.
        lines: The lines, with `@limit` for the largest number of tokens.
    """
    return "" if limit(manifest) is None else Program(lines).substitute(limit=limit(manifest))


def text_prefix(manifest: Manifest) -> str:
    """Returns what a program puts before a text: the prefix for the task, or the first one of the model's.

    A T5 that was exported for text2text-generation has a prefix for each task that it was trained for.
    """
    info = manifest.info
    return info.prefix or (info.sample_prefix if info.is_encoder_decoder else "")


def main_file(manifest: Manifest) -> str:
    """Returns the model file that computes the answers."""
    return _step(manifest).file


def forbidden_tokens(settings: Mapping[str, Any]) -> list[int]:
    """Returns the tokens that generation settings forbid, except those that only some sequences forbid."""
    words = settings.get("bad_words_ids") or ()
    return [*(settings.get("suppress_tokens") or ()), *(word[0] for word in words if len(word) == 1)]


LANGUAGE = "LANGUAGE_ID"
"""Name in programs for the id of the output's language, which the reader inserts; without it, no program runs."""
_NEUTRAL_SETTINGS = frozenset(
    "bos_token_id decoder_start_token_id eos_token_id max_length max_matching_ngram_size max_new_tokens "
    "num_assistant_tokens pad_token_id prompt_lookup_num_tokens seed".split()
)
"""Generation settings that the programs apply, or that do not change which tokens are chosen."""


def lacks_language(manifest: Manifest) -> bool:
    """Returns whether a multilingual model generates texts, and its settings do not select their language."""
    info = manifest.info
    return info.is_encoder_decoder and info.languages is not None and info.output_language is None


def start_token(manifest: Manifest) -> str:
    """Returns the first token that the decoder of an encoder-decoder reads, or `LANGUAGE` in its place."""
    return LANGUAGE if _awaits(manifest, "decoder_start_token_id") else str(manifest.info.start_token_id)


def unapplied_settings(manifest: Manifest) -> dict[str, Any]:
    """Returns the generation settings of the model that the programs do not apply."""
    given, applied = manifest.info.generation, {*_NEUTRAL_SETTINGS, "suppress_tokens"}
    if manifest.info.is_encoder_decoder:
        applied.add("forced_bos_token_id")
    if len(forbidden_tokens({"bad_words_ids": given.get("bad_words_ids")})) == len(given.get("bad_words_ids") or ()):
        applied.add("bad_words_ids")
    return {name: value for name, value in given.items() if name not in applied}


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
        "forbidden": Program(forbidden).substitute(ids=numbers(ids)) if ids else "",
        "first": "" if begins is None else Program(first).substitute(id=begins),
    }


def _awaits(manifest: Manifest, setting: str) -> bool:
    """Returns whether a setting has to be the id of a language, which is missing."""
    languages = manifest.info.languages
    return lacks_language(manifest) and languages is not None and languages.setting == setting


def prefills(manifest: Manifest, pair: str) -> str:
    """Returns the signatures that read a prompt, from the longest to a single token.

    Args:
        manifest: Manifest of a decoder.
        pair: Format of an entry, with `{name}` and `{length}`.
    """
    lengths = {signature.tokens or 0: name for name, signature in manifest.of_role(Role.PREFILL).items()}
    rows = [*sorted(lengths.items(), reverse=True), (1, DECODE)]
    return ", ".join(pair.format(name=name, length=length) for length, name in rows)


def inputs(manifest: Manifest, lines: Mapping[Kind, str], quote: Quote, indent: str) -> str:
    """Returns the lines for those inputs that an encoder takes, in its order.

    Args:
        manifest: Manifest of the bundle.
        lines: Code for an input of each kind, with `@name` for its name and `@pad` for the padding token. Inputs of
            the kind `OTHER`, such as the language of each token, are filled with `@default`.
        quote: Quoting function of the language.
        indent: Indentation of all lines but the first.
    """
    pad, tensors = manifest.info.input_padding, _reader(manifest).inputs.items()
    code = (
        Program(lines[Kind(info.kind)]).substitute(name=quote(name)[1:-1], pad=pad, default=info.default or 0)
        for name, info in tensors
        if info.kind is not None and info.kind in lines
    )
    return f"\n{indent}".join(code)


def takes_segments(manifest: Manifest) -> bool:
    """Returns whether an encoder takes the segment of each token."""
    return _reader(manifest).input(Kind.SEGMENTS) is not None


def lengths_of(manifest: Manifest) -> list[int]:
    """Returns the lengths, in tokens, for which an encoder was compiled; empty for ONNX, which supports any length."""
    signatures = manifest.of_role(Role.FORWARD) or manifest.of_role(Role.ENCODE)
    return sorted(signature.tokens for signature in signatures.values() if signature.tokens is not None)


def numbers(values: Iterable[int]) -> str:
    """Returns numbers separated by commas."""
    return ", ".join(map(str, values))


def quoted(names: Iterable[str], quote: Quote) -> str:
    """Returns quoted names separated by commas."""
    return ", ".join(map(quote, names))


def _cache_names(steps: Signature, quote: Quote, number: str) -> dict[str, str]:
    """Returns the names of the caches of a layer.

    `caches` and `cross_caches` have the number of the layer inserted. For caches with a common beginning, that of the
    inputs is `past`, that of the outputs `present`, and `kinds` are the texts after the number of the layer.
    """
    first = {name: around_layer(name) for name in steps.named(*CACHES, *CROSS_CACHES) if steps.inputs[name].layer == 0}

    def of_layer(kinds: tuple[Kind, ...]) -> str:
        parts = (first[name] for name in steps.named(*kinds) if name in first)
        return ", ".join(quote(before)[:-1] + number + quote(after)[1:] for before, after in parts)

    past, present = (
        next((around_layer(name)[0] for name, info in tensors.items() if info.kind in CACHES), "")
        for tensors in (steps.inputs, steps.outputs)
    )
    return {
        "caches": of_layer(CACHES),
        "cross_caches": of_layer(CROSS_CACHES),
        "past": quote(past)[1:-1],
        "present": quote(present)[1:-1],
        "kinds": quoted((after for _, after in first.values()), quote),
    }


def _beginning(manifest: Manifest, role: Role) -> str:
    """Returns the names of a role's signatures without the lengths at their ends."""
    signatures = manifest.of_role(role).items()
    return next((name.removesuffix(str(signature.tokens)) for name, signature in signatures), "")


def _reader(manifest: Manifest) -> Signature:
    """Returns the signature that reads a text: the first one, for any bundle."""
    return next(iter(manifest.signatures.values()))


def _step(manifest: Manifest) -> Signature:
    """Returns the signature that computes the answers: a decoder's plain step, or an encoder's shortest length."""
    if steps := manifest.of_role(Role.DECODE):
        return next(steps[name] for name in (DECODE, DECODER_MODEL, MODEL) if name in steps)
    return min(manifest.of_role(Role.FORWARD).values(), key=lambda signature: signature.tokens or 0)
