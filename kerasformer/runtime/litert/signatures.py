"""The signatures of a TFLite bundle: one for each length, and which of them to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from kerasformer import bundle
from kerasformer.bundle import Manifest, Role, Signature
from kerasformer.errors import BundleError, CapacityError
from kerasformer.runtime import weight_cache
from kerasformer.runtime.litert.engine import Engine, open_engine, runtime_version


def prefill_plan(count: int, capacity: int, lengths: Sequence[int]) -> list[int]:
    """Sizes of the runs that read `count` tokens: prefill lengths, and 1 for a step of `decode`.

    The last run may be wider than what is left (up to two and a half times: it reads the weights once, and several
    narrower runs would read them several times): what it writes too much is overwritten before it is read. It may not
    reach beyond the cache, though: the runtime would move the whole write back over older tokens.
    """
    plan, position = [], 0
    while position < count:
        left = count - position
        fitting = [length for length in sorted(lengths) if position + length <= capacity]
        whole = [length for length in fitting if length <= left]
        enough = [length for length in fitting if length >= left]
        if left == 1 or not fitting:
            size = 1
        elif enough and (enough[0] <= 2.5 * left or not whole):
            size = enough[0]
        else:
            size = whole[-1] if whole else 1
        plan.append(size)
        position += min(size, left)
    return plan


def open_file(
    folder: Path,
    manifest: Manifest,
    num_threads: int | None,
    cache_dir: str | Path | bool | None,
    accelerator: str | None,
) -> Engine:
    """Loads the one file of a TFLite bundle.

    Raises:
        BundleError: there are several, or LiteRT cannot load it.
        InputError: a `cache_dir` that cannot be written, or an unknown accelerator.
    """
    # A tokenizer has a file of its own, which LiteRT alone cannot run.
    models = (signature for signature in manifest.signatures.values() if signature.role != Role.TOKENIZE)
    files = sorted({signature.file for signature in models})
    if len(files) != 1:
        raise BundleError(f"All signatures of a TFLite bundle are in one file. Received: {files}")
    path, folder_of_cache = Path(folder) / files[0], weight_cache.folder_of(cache_dir)
    if folder_of_cache is None:
        return open_engine(path, num_threads, None, accelerator)
    key = weight_cache.key_of("litert", runtime_version(), manifest.files[files[0]])

    def make(file: Path) -> Engine:
        known, engine = file.exists(), open_engine(path, num_threads, file, accelerator)
        # What is kept under a checksum comes from a file that has it; another process may have replaced this one.
        if not known and bundle.sha256(path) != manifest.files[files[0]]:
            file.unlink(missing_ok=True)
            raise BundleError(f"the bundle was replaced while it was opened: {path}. Open it again")
        return engine

    return weight_cache.load(folder_of_cache, key, make)


def by_length(manifest: Manifest, role: Role, needed: bool = True) -> dict[int, tuple[str, Signature]]:
    """Signatures of a role, ascending by the tokens that they read."""
    found = {signature.tokens: (name, signature) for name, signature in manifest.of_role(role).items()}
    if needed and not found:
        raise BundleError(
            f"The bundle needs signatures of the role {role.value!r}. Received: {list(manifest.signatures)}"
        )
    return {length: found[length] for length in sorted(length for length in found if length is not None)}


def smallest(signatures: dict[int, tuple[str, Signature]], length: int, what: str) -> tuple[int, str, Signature]:
    """The first signature that holds `length` tokens: its length, its name and itself.

    Raises:
        CapacityError: none does.
    """
    for size, (name, signature) in signatures.items():
        if size >= length:
            return size, name, signature
    raise CapacityError(f"The {what} has at most {max(signatures)} tokens here. Received: {length}. Shorten it")


def decode_steps(manifest: Manifest) -> dict[int, dict[int, str]]:
    """Steps of one token.

    Returns:
        Names of signatures by number of rows, then by cache length, both ascending.
    """
    steps = manifest.of_role(Role.DECODE).items()
    return _by_cache_length((signature.rows or 1, signature, name) for name, signature in steps)


def verify_steps(manifest: Manifest) -> dict[int, dict[int, str]]:
    """Steps of several tokens of one text, of which a bundle may have none.

    Returns:
        Names of signatures by number of tokens, then by cache length, both ascending.
    """
    steps = manifest.of_role(Role.VERIFY).items()
    return _by_cache_length((signature.tokens or 1, signature, name) for name, signature in steps)


def _by_cache_length(steps: Iterable[tuple[int, Signature, str]]) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = {}
    for size, signature, name in steps:
        found.setdefault(size, {})[signature.cache_length or 0] = name
    return {size: dict(sorted(lengths.items())) for size, lengths in sorted(found.items())}


def rows_at_once(count: int, sizes: Iterable[int]) -> int:
    """How many of `count` rows the next step takes, which may have more room than that.

    A step of several rows reads the weights once, so that up to two and a half times the rows cost less than one step
    for each of them.
    """
    sizes = sorted(sizes)
    enough = [size for size in sizes if count <= size <= 2.5 * count]
    filled = [size for size in sizes if size <= count]
    return enough[0] if enough else filled[-1] if filled else sizes[0]


def row_lengths(mask: np.ndarray) -> list[int]:
    """Tokens of each row up to the last one that is not padding; at least 1."""
    used = mask > 0
    return [int(row.nonzero()[0][-1]) + 1 if row.any() else 1 for row in used]


def per_token(signatures: dict[int, tuple[str, Signature]]) -> set[str]:
    """Outputs with an entry for each token: their second axis is the length, in every signature."""
    found = set()
    for name, info in next(iter(signatures.values()))[1].outputs.items():
        follows = all(
            len(signature.outputs[name].shape) > 1 and signature.outputs[name].shape[1] == size
            for size, (_, signature) in signatures.items()
        )
        # With one length alone, scores of as many classes would look the same.
        if follows and (len(signatures) > 1 or len(info.shape) > 2 or name in ("start_logits", "end_logits")):
            found.add(name)
    return found
