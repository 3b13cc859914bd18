"""What the programs on a card are filled with: the names, shapes and ids of one bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from string import Template

from kerasformer.bundle import Kind, Manifest, Role, Signature, TensorInfo
from kerasformer.bundle.interface import DECODE, DECODER_MODEL, LOGITS, MODEL, forward_name
from kerasformer.export.card.quoting import Quote


class Program(Template):
    """Source code with `@name` where a bundle's own names and numbers go, and `@@` for an `@`."""

    delimiter = "@"


def kind(manifest: Manifest) -> str | None:
    """`"encoder"`, `"decoder"` or `"encoder-decoder"`, by its signatures; `None` if they are of no such model."""
    if manifest.of_role(Role.DECODE):
        return "encoder-decoder" if manifest.of_role(Role.ENCODE) else "decoder"
    # The programs call encoders by the names of our own exports.
    named = [forward_name(length) for length in lengths_of(manifest)]
    return "encoder" if MODEL in manifest.signatures or (named and named[0] in manifest.signatures) else None


def values(manifest: Manifest, quote: Quote) -> dict[str, str]:
    """What programs in every language are told. Names and numbers stand with commas between them.

    Args:
        manifest: Of the bundle.
        quote: Of the language, for `outputs`, which are literals, and for other texts, which stand inside of quotation
            marks or in a comment.
    """
    info, steps = manifest.info, _step(manifest)
    caches, crosses = ([steps.inputs[name] for name in steps.named(kind)] for kind in (Kind.KEY, Kind.CROSS_KEY))
    heads, size = (caches[0].shape[1], caches[0].shape[3]) if caches else (0, 0)
    lengths = lengths_of(manifest)
    return {
        "file": quote(steps.file)[1:-1],
        "encoder_file": quote(next(iter(manifest.signatures.values())).file)[1:-1],
        "pad": str(info.pad_token_id or 0),
        "ends": numbers(info.eos_token_id),
        "start": str(info.start_token_id),
        "prefix": quote(info.prefix)[1:-1],
        "lengths": numbers(lengths),
        "longest": str(max(lengths, default=info.max_length or 512)),
        "capacity": str(manifest.capacity),
        "encoder_capacity": str(manifest.encoder_capacity),
        "layers": str(len(caches)),
        "heads": str(heads),
        "size": str(size),
        "cache": str(_count(caches[0]) if caches and manifest.format == "tflite" else 0),
        "cross": str(_count(crosses[0]) if crosses and manifest.format == "tflite" else 0),
        "vocabulary": str(steps.outputs[LOGITS].shape[-1] if LOGITS in steps.outputs else info.vocab_size),
        "outputs": quoted(steps.outputs, quote),
        "output": quote(next(iter(steps.outputs)))[1:-1],
    }


def main_file(manifest: Manifest) -> str:
    """The model file that answers."""
    return _step(manifest).file


def prefills(manifest: Manifest, pair: str) -> str:
    """Signatures that read a prompt, the longest first and a single token last; `pair` has `{name}` and `{length}`."""
    found = {signature.tokens or 0: name for name, signature in manifest.of_role(Role.PREFILL).items()}
    rows = [*sorted(found.items(), reverse=True), (1, DECODE)]
    return ", ".join(pair.format(name=name, length=length) for length, name in rows)


def inputs(manifest: Manifest, lines: Mapping[str, str], indent: str) -> str:
    """The lines of those inputs that an encoder takes, in its order."""
    given = next(iter(manifest.signatures.values())).inputs
    taken = f"\n{indent}".join(lines[name] for name in given if name in lines)
    return Program(taken).substitute(pad=manifest.info.pad_token_id or 0)


def takes_segments(manifest: Manifest) -> bool:
    """Whether an encoder tells two texts apart."""
    return "token_type_ids" in next(iter(manifest.signatures.values())).inputs


def lengths_of(manifest: Manifest) -> list[int]:
    """Token lengths for which an encoder was compiled; none for ONNX, which takes any."""
    found = manifest.of_role(Role.FORWARD) or manifest.of_role(Role.ENCODE)
    return sorted(signature.tokens for signature in found.values() if signature.tokens is not None)


def numbers(given: Iterable[int]) -> str:
    """Numbers with commas between them."""
    return ", ".join(map(str, given))


def quoted(names: Iterable[str], quote: Quote) -> str:
    """Names in quotes, with commas between them."""
    return ", ".join(map(quote, names))


def _step(manifest: Manifest) -> Signature:
    """The signature that answers: a decoder's plain step, or an encoder on its shortest text."""
    steps = manifest.of_role(Role.DECODE)
    name = next((name for name in (DECODE, DECODER_MODEL, MODEL) if name in manifest.signatures), None)
    return steps[name] if name in steps else manifest.signatures[name or forward_name(lengths_of(manifest)[0])]


def _count(info: TensorInfo) -> int:
    return prod(dim for dim in info.shape if isinstance(dim, int))
