"""Loading of a TFLite bundle, and selection of the signature to run among those of different lengths."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kerasformer import bundle
from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.engines import weight_cache
from kerasformer.engines.litert.engine import Engine, open_engine, runtime_version
from kerasformer.engines.litert.gpu_rules import gpu_findings
from kerasformer.errors import BundleError, CapacityError, InputError


def prefill_plan(count: int, capacity: int, lengths: Sequence[int], start: int = 0) -> list[int]:
    """Returns the sizes of the runs that process `count` tokens: prefill lengths, and 1 for a `decode` step.

    Args:
        count: Number of tokens.
        capacity: Number of slots of the cache.
        lengths: Lengths of the prefill signatures.
        start: Slot of the first token.

    The last run may be up to 2.5 times longer than the remaining tokens, since several shorter runs would read the
    weights several times; the surplus slots are overwritten before they are read. It must not exceed the cache, though:
    the runtime would shift the whole write back over earlier tokens.
    """
    plan, position, end = [], start, start + count
    while position < end:
        remaining = end - position
        possible = [length for length in sorted(lengths) if position + length <= capacity]
        shorter = [length for length in possible if length <= remaining]
        longer = [length for length in possible if length >= remaining]
        if remaining == 1 or not possible:
            size = 1
        elif longer and (longer[0] <= 2.5 * remaining or not shorter):
            size = longer[0]
        else:
            size = shorter[-1] if shorter else 1
        plan.append(size)
        position += min(size, remaining)
    return plan


def _check_for_gpu(path: Path) -> None:
    """Refuses a file that ends the process in LiteRT's GPU delegate, and warns of one with other results there.

    The rules of this version count, not those of the version that wrote the file.
    """
    findings = [finding for finding in gpu_findings(path) if finding.effect != "reported"]
    listed = "; ".join(f"{each.what} ({each.operators} times, the first: {each.example})" for each in findings)
    if any(finding.effect == "aborts" for finding in findings):
        raise InputError(
            "accelerator='gpu' needs a file without operators that end the process in LiteRT's GPU delegate. "
            f"Received: {path}: {listed}. Export the model again with accelerator='gpu', or run it on the CPU"
        )
    if findings:
        warnings.warn(
            f"LiteRT's GPU delegate computes some of {path} wrongly, or leaves it to the CPU: {listed}. Export the "
            "model again with accelerator='gpu', or run it on the CPU",
            UserWarning,
            stacklevel=2,
        )


def open_file(
    folder: Path,
    manifest: Manifest,
    num_threads: int | None,
    cache_dir: str | Path | bool | None,
    accelerator: str | None,
) -> Engine:
    """Loads the model file of a TFLite bundle.

    Raises:
        BundleError: there are several model files, or LiteRT cannot load the file.
        InputError: a `cache_dir` that cannot be written, an unknown accelerator, or the GPU for a file that would end
            the process there.
    """
    # A tokenizer has a separate file, which LiteRT cannot run without custom operators.
    models = (signature for signature in manifest.signatures.values() if signature.role != Role.TOKENIZE)
    files = sorted({signature.file for signature in models})
    if len(files) != 1:
        raise BundleError(f"All signatures of a TFLite bundle must be in one file. Received: {files}")
    path, folder_of_cache = Path(folder) / files[0], weight_cache.folder_of(cache_dir)
    if accelerator == "gpu":
        _check_for_gpu(path)
    if folder_of_cache is None:
        return open_engine(path, num_threads, None, accelerator)
    key = weight_cache.key_of("litert", runtime_version(), manifest.files[files[0]])

    def make(file: Path) -> Engine:
        existed, engine = file.exists(), open_engine(path, num_threads, file, accelerator)
        # Weights are cached by the checksum of the model file; another process may have replaced that file meanwhile.
        if not existed and bundle.sha256(path) != manifest.files[files[0]]:
            file.unlink(missing_ok=True)
            raise BundleError(f"the bundle was replaced while it was opened: {path}. Open it again")
        return engine

    return weight_cache.load(folder_of_cache, key, make)


def by_length(manifest: Manifest, role: Role, needed: bool = True) -> dict[int, tuple[str, Signature]]:
    """Returns the signatures of a role by their number of tokens, in ascending order."""
    signatures = {signature.tokens: (name, signature) for name, signature in manifest.of_role(role).items()}
    if needed and not signatures:
        raise BundleError(
            f"The bundle needs signatures of the role {role.value!r}. Received: {list(manifest.signatures)}"
        )
    return {length: signatures[length] for length in sorted(length for length in signatures if length is not None)}


def smallest(signatures: dict[int, tuple[str, Signature]], length: int, what: str) -> tuple[int, str, Signature]:
    """Returns length, name and description of the smallest signature for at least `length` tokens.

    Raises:
        CapacityError: there is none.
    """
    for size, (name, signature) in signatures.items():
        if size >= length:
            return size, name, signature
    raise CapacityError(f"The {what} may have at most {max(signatures)} tokens. Received: {length}. Shorten it")


def holding(signatures: dict[int, tuple[str, Signature]], sizes: Mapping[str, int]) -> dict[int, tuple[str, Signature]]:
    """Returns the signatures whose inputs have at least these sizes, by their number of tokens.

    Args:
        signatures: Signatures of `by_length`.
        sizes: Number of entries of inputs that have no entry for each token, by their names.

    Raises:
        CapacityError: there is none.
    """
    for name, size in sizes.items():
        longest = max(_size(signature, name) for _, signature in signatures.values())
        if size > longest:
            raise CapacityError(f"{name} may have at most {longest} entries. Received: {size}")
    return {
        length: each
        for length, each in signatures.items()
        if all(size <= _size(each[1], name) for name, size in sizes.items())
    }


def _size(signature: Signature, name: str) -> int:
    return int(signature.inputs[name].shape[1])


def decode_steps(manifest: Manifest) -> dict[int, dict[int, str]]:
    """Returns the names of single-token signatures by number of rows, then by cache length, both ascending."""
    steps = manifest.of_role(Role.DECODE).items()
    return _by_cache_length((signature.rows or 1, signature, name) for name, signature in steps)


def prefill_steps(manifest: Manifest) -> dict[int, dict[int, str]]:
    """Returns the names of prefill signatures by number of tokens, then by cache length, both ascending."""
    steps = manifest.of_role(Role.SHORT_PREFILL, Role.PREFILL).items()
    return _by_cache_length((signature.tokens or 1, signature, name) for name, signature in steps)


def verify_steps(manifest: Manifest) -> dict[int, dict[int, str]]:
    """Returns the names of multi-token signatures by number of tokens, then by cache length, both ascending."""
    steps = manifest.of_role(Role.VERIFY).items()
    return _by_cache_length((signature.tokens or 1, signature, name) for name, signature in steps)


def _by_cache_length(steps: Iterable[tuple[int, Signature, str]]) -> dict[int, dict[int, str]]:
    names: dict[int, dict[int, str]] = {}
    for size, signature, name in steps:
        names.setdefault(size, {})[signature.cache_length or sys.maxsize] = name
    return {size: dict(sorted(lengths.items())) for size, lengths in sorted(names.items())}


def rows_at_once(count: int, sizes: Iterable[int]) -> int:
    """Returns the number of rows of the signature to run next for `count` rows; some may be unused.

    A step for several rows reads the weights once, so that a step with up to 2.5 times as many rows costs less than one
    step per row.
    """
    sizes = sorted(sizes)
    larger = [size for size in sizes if count <= size <= 2.5 * count]
    smaller = [size for size in sizes if size <= count]
    return larger[0] if larger else smaller[-1] if smaller else sizes[0]


def per_token(signatures: dict[int, tuple[str, Signature]]) -> set[str]:
    """Returns the names of outputs with an entry for each token: their second axis is the length in every signature."""
    names = set()
    for name, info in next(iter(signatures.values()))[1].outputs.items():
        has_token_axis = all(
            len(signature.outputs[name].shape) > 1 and signature.outputs[name].shape[1] == size
            for size, (_, signature) in signatures.items()
        )
        # With a single length, scores for the same number of classes would have the same shape.
        if has_token_axis and (len(signatures) > 1 or len(info.shape) > 2 or name in ("start_logits", "end_logits")):
            names.add(name)
    return names
