"""Values of a bundle that the program templates of a card are filled with: names, shapes and ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Template

from kerasformer.bundle import Kind, Manifest, Role, Signature
from kerasformer.bundle.interface import DECODE, DECODER_MODEL, LOGITS, MODEL, forward_name
from kerasformer.export.card.quoting import Quote


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


def values(manifest: Manifest, quote: Quote) -> dict[str, str]:
    """Returns the values for programs in all languages; lists are separated by commas.

    Args:
        manifest: Manifest of the bundle.
        quote: Quoting function of the language. `outputs` are literals; other texts are without quotation marks, for
            use inside of a literal or a comment.
    """
    info, steps = manifest.info, _step(manifest)
    caches = [steps.inputs[name] for name in steps.named(Kind.KEY)]
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
        "vocabulary": str(steps.outputs[LOGITS].shape[-1] if LOGITS in steps.outputs else info.vocab_size),
        "outputs": quoted(steps.outputs, quote),
        "output": quote(next(iter(steps.outputs)))[1:-1],
    }


def main_file(manifest: Manifest) -> str:
    """Returns the model file that computes the answers."""
    return _step(manifest).file


def prefills(manifest: Manifest, pair: str) -> str:
    """Returns the signatures that read a prompt, from the longest to a single token.

    Args:
        manifest: Manifest of a decoder.
        pair: Format of an entry, with `{name}` and `{length}`.
    """
    lengths = {signature.tokens or 0: name for name, signature in manifest.of_role(Role.PREFILL).items()}
    rows = [*sorted(lengths.items(), reverse=True), (1, DECODE)]
    return ", ".join(pair.format(name=name, length=length) for length, name in rows)


def inputs(manifest: Manifest, lines: Mapping[str, str], indent: str) -> str:
    """Returns the lines for those inputs that an encoder takes, in its order."""
    names = next(iter(manifest.signatures.values())).inputs
    text = f"\n{indent}".join(lines[name] for name in names if name in lines)
    return Program(text).substitute(pad=manifest.info.pad_token_id or 0)


def takes_segments(manifest: Manifest) -> bool:
    """Returns whether an encoder takes `token_type_ids`."""
    return "token_type_ids" in next(iter(manifest.signatures.values())).inputs


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


def _step(manifest: Manifest) -> Signature:
    """Returns the signature that computes the answers: a decoder's plain step, or an encoder's shortest length."""
    steps = manifest.of_role(Role.DECODE)
    name = next((name for name in (DECODE, DECODER_MODEL, MODEL) if name in manifest.signatures), None)
    return steps[name] if name in steps else manifest.signatures[name or forward_name(lengths_of(manifest)[0])]
