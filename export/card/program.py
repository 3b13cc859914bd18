"""What the programs on a card are filled with: the names, shapes and ids of one bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from string import Template

from kerasformer.bundle import Manifest, Signature, TensorInfo
from kerasformer.export.card.quoting import Quote


class Program(Template):
    """Source code with `@name` where a bundle's own names and numbers go, and `@@` for an `@`."""

    delimiter = "@"


def kind(manifest: Manifest) -> str | None:
    """`"encoder"`, `"decoder"` or `"encoder-decoder"`, by its signatures; `None` if they are of no such model."""
    names = set(manifest.signatures)
    if names >= {"encoder_model", "decoder_model_merged"} or ("decode" in names and _numbered("encode", names)):
        return "encoder-decoder"
    if "decode" in names or ("model" in names and "position_ids" in manifest.signatures["model"].inputs):
        return "decoder"
    return "encoder" if "model" in names or _numbered("forward", names) else None


def values(manifest: Manifest, quote: Quote) -> dict[str, str]:
    """What programs in every language are told. Names and numbers stand with commas between them.

    Args:
        manifest: Of the bundle.
        quote: Of the language, for `outputs`, which are literals, and for other texts, which stand inside of quotation
            marks or in a comment.
    """
    info, steps = manifest.info, _step(manifest)
    caches = [tensor for name, tensor in steps.inputs.items() if name.startswith(("kv_cache_k", "past_key_values"))]
    heads, size = (caches[0].shape[1], caches[0].shape[3]) if caches else (0, 0)
    lengths = lengths_of(manifest)
    return {
        "file": quote(steps.file)[1:-1],
        "encoder_file": quote(next(iter(manifest.signatures.values())).file)[1:-1],
        "pad": str(info.pad_token_id or 0),
        "ends": numbers(info.eos_token_id),
        "start": str(info.start_token_id),
        "prefix": quote(info.task_prefixes.get(info.task, ""))[1:-1],
        "lengths": numbers(lengths),
        "longest": str(max(lengths, default=info.max_length or 512)),
        "capacity": str(manifest.capacity),
        "encoder_capacity": str(manifest.encoder_capacity),
        "layers": str(_layers(steps)),
        "heads": str(heads),
        "size": str(size),
        "cache": str(_count(caches[0]) if caches and manifest.format == "tflite" else 0),
        "cross": str(_count(steps.inputs["cross_k_0"]) if "cross_k_0" in steps.inputs else 0),
        "vocabulary": str(steps.outputs["logits"].shape[-1] if "logits" in steps.outputs else info.vocab_size),
        "outputs": quoted(steps.outputs, quote),
        "output": quote(next(iter(steps.outputs)))[1:-1],
    }


def main_file(manifest: Manifest) -> str:
    """The model file that answers."""
    return _step(manifest).file


def prefills(manifest: Manifest, pair: str) -> str:
    """Signatures that read a prompt, the longest first and a single token last; `pair` has `{name}` and `{length}`."""
    found = {int(name.split("_")[1]): name for name in manifest.signatures if re.fullmatch(r"prefill_\d+", name)}
    rows = [*sorted(found.items(), reverse=True), (1, "decode")]
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
    found = _numbered("forward", manifest.signatures) or _numbered("encode", manifest.signatures)
    return sorted(int(name.split("_")[1]) for name in found)


def numbers(given: Iterable[int]) -> str:
    """Numbers with commas between them."""
    return ", ".join(map(str, given))


def quoted(names: Iterable[str], quote: Quote) -> str:
    """Names in quotes, with commas between them."""
    return ", ".join(map(quote, names))


def _numbered(prefix: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if re.fullmatch(rf"{prefix}_\d+", name)]


def _step(manifest: Manifest) -> Signature:
    """The signature that answers: a decoder's step, or an encoder on its shortest text."""
    name = next((name for name in ("decode", "decoder_model_merged", "model") if name in manifest.signatures), None)
    return manifest.signatures[name or f"forward_{lengths_of(manifest)[0]}"]


def _layers(step: Signature) -> int:
    names = [name for name in step.inputs if name.startswith(("kv_cache", "past_key_values"))]
    return 1 + max((int(re.findall(r"[._](\d+)", name)[0]) for name in names), default=-1)


def _count(info: TensorInfo) -> int:
    return prod(dim for dim in info.shape if isinstance(dim, int))
