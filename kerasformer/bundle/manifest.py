"""The manifest of an exported bundle: everything that a runtime needs, so that it never reads a model's config.

A bundle is a folder with model files, `tokenizer.json`, `generation_config.json`, `references.npz`, a model card, and
the manifest `kerasformer.json`, which lists every other file with its checksum. This module needs neither Keras nor an
engine.

Called by `builder`, which writes it, and by `opening` and the engines, which read it.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

import numpy as np

from kerasformer.basics import tasks
from kerasformer.basics.arguments import check, kind_of
from kerasformer.bundle.figures import Limits
from kerasformer.bundle.info import ModelInfo
from kerasformer.bundle.interface import (
    CACHES,
    CROSS_CACHES,
    KEY_AND_VALUE,
    LOGITS,
    PROBABILITIES,
    Kind,
    Role,
    Signature,
    TensorInfo,
    described,
    of_role,
)
from kerasformer.errors import BundleError, KerasformerError, SourceError
from kerasformer.files.publishing import MANIFEST, repair, replacing
from kerasformer.files.reading import JsonObject, parse_json
from kerasformer.files.sources import inside, read_json

FORMAT_VERSION = 2
"""Version 2 describes the roles of signatures and the kinds of tensors; version 1 had only names and shapes."""
REFERENCES = "references.npz"
_CHECKSUM = "manifest_sha256"
_Loaded = TypeVar("_Loaded")


_CLASSIFIERS = ("text-classification", "token-classification")
_CACHE_DTYPES = ("float32", "float16", "int8")
_ROLES_IN_USE = frozenset(Role) - {Role.OTHER}
"""Roles of the signatures that engines run; those of other roles, also of earlier versions, are ignored."""


@dataclass(frozen=True)
class GpuFinding:
    """Something in a TFLite file that LiteRT's GPU delegate is known to compute wrongly or to leave to the CPU.

    Attributes:
        rule: Short name of what was found.
        effect: `"wrong"` for other results than on the CPU, without an error; `"unsupported"` for an operator that is
            left to the CPU, or is an error where all of the model must run on the GPU; `"aborts"` for one that ends the
            process when the model is opened for the GPU; `"reported"` for what was right when it was measured, and
            wrong or refused on the devices or in the versions that the source names.
        what: What the delegate does.
        source: Where this is known from: an issue, or a file of LiteRT.
        operators: Number of operators, in all signatures.
        example: The first of them, with the weight that was last used before it, and the signature.
    """

    rule: str
    effect: Literal["wrong", "unsupported", "aborts", "reported"]
    what: str
    source: str
    operators: int
    example: str


@dataclass(frozen=True)
class Manifest:
    """Content of `kerasformer.json`.

    Attributes:
        format: File format of the model.
        info: Properties of the model.
        signatures: Signatures of the model files, by name.
        capacity: Capacity of the decoder's cache in tokens; `None` for an encoder.
        encoder_capacity: Maximum input length of an encoder-decoder in tokens.
        recipe: Quantization recipe and its tolerances.
        profile: `"ort"` or `"portable"`, for ONNX.
        files: SHA-256 of every other file of the bundle, by its path relative to the folder.
        fidelity: Figures of the comparison with the Keras model.
        versions: Versions of the packages used for the export.
        accelerator: `"gpu"` for TFLite files for LiteRT's GPU delegate, whose figures are those of float copies of
            their weights, as a GPU computes; otherwise `"cpu"`.
        gpu_findings: What LiteRT's GPU delegate is known to compute wrongly or to leave to the CPU; `None` for other
            formats, and for files that were not looked at.
        format_version: Version of the manifest format.
    """

    format: Literal["tflite", "onnx", "saved-model", "table"]
    info: ModelInfo
    signatures: dict[str, Signature]
    capacity: int | None = None
    encoder_capacity: int | None = None
    recipe: JsonObject = field(default_factory=dict)
    profile: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    fidelity: JsonObject = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    accelerator: Literal["cpu", "gpu"] = "cpu"
    gpu_findings: tuple[GpuFinding, ...] | None = None
    format_version: int = FORMAT_VERSION

    @property
    def promise(self) -> Limits:
        """The limits of the recipe for this model.

        Raises:
            BundleError: the manifest does not contain them.
        """
        try:
            return Limits.of(self.recipe, self.info.embeds, generates=self.capacity is not None)
        except BundleError as error:
            raise BundleError(f"{MANIFEST}: {error}") from error

    def __post_init__(self) -> None:
        """Adds roles and kinds to signatures of version 1."""
        signatures = {name: described(name, signature) for name, signature in self.signatures.items()}
        object.__setattr__(self, "signatures", signatures)

    def of_role(self, *roles: Role) -> dict[str, Signature]:
        """Returns the signatures of these roles, by name."""
        return dict(of_role(self.signatures, *roles))

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model files with their weights, without tokenizer and documents, in hexadecimal digits."""
        models = {signature.file for signature in self.signatures.values() if signature.role != Role.TOKENIZE}
        sums = sorted(
            (name, checksum)
            for name, checksum in self.files.items()
            # External weights of ONNX files and of a SavedModel.
            if name in models or name.endswith(".onnx_data") or name.startswith("variables/")
        )
        return hashlib.sha256(json.dumps(sums).encode()).hexdigest()

    @property
    def cache_bytes(self) -> int:
        """Size in bytes of a full cache of one text, with the tensors of all layers; 0 for a model without one."""
        sizes = []
        for signature in self.of_role(Role.DECODE, Role.VERIFY).values():
            full = dict.fromkeys(signature.named(*CACHES), self.capacity)
            full |= dict.fromkeys(signature.named(*CROSS_CACHES), self.encoder_capacity)
            sizes.append(
                sum(
                    np.dtype(signature.inputs[name].dtype).itemsize * self._elements(signature, name, length)
                    for name, length in full.items()
                )
            )
        # A step for several texts has the caches of all of them.
        return min((size for size in sizes if size), default=0)

    @property
    def cache_dtype(self) -> str | None:
        """Data type of cached keys and values, such as `"float32"` or `"int8"`; `None` for a model without them."""
        steps = self.of_role(Role.DECODE).values()
        return next((step.inputs[name].dtype for step in steps for name in step.named(*KEY_AND_VALUE)), None)

    @staticmethod
    def _elements(signature: Signature, name: str, length: int | None) -> int:
        """Returns the number of elements of a cache for batch size 1 and the given length."""
        symbols = [1 if axis == 0 else length or 0 for axis in range(len(signature.inputs[name].shape))]
        return prod(
            dim if isinstance(dim, int) else symbols[axis] for axis, dim in enumerate(signature.inputs[name].shape)
        )


def read(folder: str | Path, *, check: bool = True) -> Manifest:
    """Reads and checks the manifest of a bundle; repairs an interrupted replacement of the folder first.

    Args:
        folder: Folder of the bundle.
        check: Whether to verify checksums; otherwise only the presence of the files is checked.
    Raises:
        BundleError: the manifest is missing, malformed, edited or from a newer version, or a file is missing, modified
            or outside the folder.
    """
    folder = repair(folder)
    try:
        content = read_json(inside(folder, MANIFEST))
    except SourceError as error:
        raise BundleError(f"{error}. A bundle folder was expected. Received: {folder}") from error
    version = content.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BundleError(f"{MANIFEST}: format_version must be a positive integer. Received: {version!r} in {folder}")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"this bundle was written by a newer kerasformer: it has format version {version}, and this version "
            f"supports versions up to {FORMAT_VERSION}. Received: {folder}. Install a newer kerasformer"
        )
    checksum = content.pop(_CHECKSUM, None)
    manifest = _parsed(content)
    _check_signatures(manifest)
    _check_files(folder, manifest, check)
    if checksum is None:
        raise BundleError(
            f"{MANIFEST} lacks the {_CHECKSUM} that every release of kerasformer writes: it was changed after its "
            f"export, or written before the first release. Received: {folder}. Export the model again"
        )
    if checksum != _digest(content):
        raise BundleError(
            f"{MANIFEST} was changed after its export: its fields do not match its {_CHECKSUM}. "
            f"Received: {folder}. Export the model again with the settings that you want"
        )
    return manifest


def load(folder: str | Path, make: Callable[[Path, Manifest], _Loaded]) -> _Loaded:
    """Loads a bundle consistently: all files are from one export, even if another process replaces the folder.

    Args:
        folder: Folder of the bundle.
        make: Function that receives the absolute folder and the checked manifest, and loads the files. It is called
            once more if the bundle was replaced in the meantime.
    Returns:
        The result of `make`.
    Raises:
        BundleError: as for `read`; or the folder was replaced again during the second attempt. Errors of `make` are
            passed on.
    """
    failure: Exception | None = None
    for attempt in (1, 2):
        folder = repair(folder)
        before = _state(folder)
        try:
            loaded = make(folder, read(folder))
            if _state(folder) == before:
                return loaded
        except (KerasformerError, OSError) as error:
            # A folder without a manifest may have been between the two renames of `publish`.
            if _state(folder) == before and (before is not None or attempt == 2):
                raise
            failure = error
    raise BundleError(
        f"the bundle was replaced while it was opened, and again during a second attempt. Received: {folder}. "
        "Open it again when no other program writes there"
    ) from failure


def encoded(manifest: Manifest) -> str:
    """Returns the content of `kerasformer.json`, in the newest format version.

    Raises:
        BundleError: the manifest contains a value that cannot be represented in JSON.
    """
    try:
        content = json.loads(json.dumps(asdict(replace(manifest, format_version=FORMAT_VERSION)), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise BundleError(f"a manifest may contain only numbers, strings, lists and dicts: {error}") from error
    for signature in content["signatures"].values():
        for name in ("inputs", "outputs"):
            signature[name] = {key: _without_nulls(info) for key, info in signature[name].items()}
    return json.dumps({**content, _CHECKSUM: _digest(content)}, indent=2, ensure_ascii=False) + "\n"


def browser_warning(manifest: Manifest, source: str = "CHECKPOINT") -> str:
    """Returns how to run a generating model in browsers, if this file is slow there; else an empty text.

    Args:
        manifest: Manifest of the bundle.
        source: What the model was exported from, for the command.
    """
    if manifest.format != "onnx" or manifest.capacity is None or manifest.profile == "portable":
        return ""
    return (
        "In a browser, ONNX Runtime Web generates slowly with this file: an answer of a model with 100 million "
        f"parameters takes minutes. For a page, write it for LiteRT.js: kerasformer export {source} FOLDER "
        "--target litert-web --quantize int8"
    )


def write(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest. It must be the last file written, since it contains the checksums of the others.

    Raises:
        BundleError: the manifest lists a file that is missing, or contains a value that cannot be represented in JSON.
    """
    text = encoded(manifest)
    # Parse it, so that an invalid manifest fails here and not when it is read.
    content = parse_json(text, MANIFEST)
    content.pop(_CHECKSUM)
    parsed = _parsed(content)
    _check_signatures(parsed)
    _check_files(folder, parsed, check=False)
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _without_nulls(content: JsonObject) -> JsonObject:
    return {name: value for name, value in content.items() if value is not None}


def checksums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file except the manifest, by relative path with `/`, for `Manifest.files`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in paths}


def write_references(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Writes the Keras model's answers to sample inputs, with which `verify` compares a bundle on any machine.

    Raises:
        BundleError: an array has the dtype `object`, which only pickle can store.
    """
    objects = [name for name, array in arrays.items() if array.dtype.hasobject]
    if objects:
        raise BundleError(f"references must be arrays of numbers or strings. Received: arrays of objects in {objects}")
    path = folder / REFERENCES
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    return path


def read_references(folder: Path) -> dict[str, np.ndarray]:
    """Reads the arrays written by `write_references`; never unpickles.

    Raises:
        BundleError: the file is missing or damaged.
    """
    path = folder / REFERENCES
    try:
        # NumPy leaves a damaged file open that it opened itself.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BundleError(
            f"the reference answers cannot be read: {error}. Expected: {path}, as written by export. "
            "Export the model again"
        ) from error


def _parsed(content: JsonObject) -> Manifest:
    parsed: Manifest = check("", content, kind_of(Manifest), error=lambda text: BundleError(f"{MANIFEST}: {text}"))
    return parsed


def _check_signatures(manifest: Manifest) -> None:
    """Checks what engines and pipelines rely on: a label for each class, and the shapes of ids, caches and logits."""
    labels, is_classifier = len(manifest.info.labels), tasks.task_of_model(manifest.info.task) in _CLASSIFIERS
    for name, signature in manifest.signatures.items():
        if signature.role not in _ROLES_IN_USE:
            continue
        for side, infos in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            for tensor, info in infos.items():
                where = f"signatures.{name}.{side}.{tensor}"
                if info.kind in (*CACHES, *CROSS_CACHES):
                    _check_cache(info, where)
                shape = info.shape
                if side == "inputs" and info.kind == Kind.IDS and len(shape) != 2:
                    _refuse_shape(where, "that of token ids, rows and tokens", shape)
                # Only a model that detects replaced tokens has one score for each token.
                of_tokens = len(shape) == 2 and not is_classifier
                if info.kind == Kind.LOGITS and not (of_tokens or isinstance(next(reversed(shape), None), int)):
                    _refuse_shape(where, "that of scores, with their number as its last entry", shape)
        if not is_classifier or signature.role != Role.FORWARD:
            continue
        for scores in (LOGITS, PROBABILITIES):
            shape = signature.outputs[scores].shape if scores in signature.outputs else ()
            if shape and isinstance(shape[-1], int) and shape[-1] > labels:
                raise BundleError(
                    f"{MANIFEST}: info.labels must have a name for each of the {shape[-1]} classes in "
                    f"signatures.{name}.outputs.{scores}. Received: {labels} names. Export the model again"
                )


def _check_cache(info: TensorInfo, where: str) -> None:
    shape = info.shape
    if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
        _refuse_shape(where, "that of a cache: rows, a number of heads, slots and the size of a head", shape)
    if info.layer is None or info.layer < 0:
        raise BundleError(
            f"{MANIFEST}: {where}.layer must be the index of a layer. Received: {info.layer}. Export the model again"
        )
    if info.dtype not in _CACHE_DTYPES:
        raise BundleError(
            f"{MANIFEST}: {where}.dtype must be one of {', '.join(_CACHE_DTYPES)}. Received: {info.dtype!r}. "
            "Export the model again"
        )


def _refuse_shape(where: str, expected: str, shape: tuple[int | str, ...]) -> NoReturn:
    raise BundleError(f"{MANIFEST}: {where}.shape must be {expected}. Received: {list(shape)}. Export the model again")


def _check_files(folder: Path, manifest: Manifest, check: bool) -> None:
    for name, signature in manifest.signatures.items():
        if signature.file not in manifest.files:
            raise BundleError(
                f"{MANIFEST}: signatures.{name}.file must be one of files. Received: {signature.file!r} in {folder}"
            )
    for name, expected in manifest.files.items():
        try:
            path = inside(folder, name)
        except SourceError as error:
            raise BundleError(f"{MANIFEST}: files: {error}") from error
        if not path.is_file():
            raise BundleError(
                f"the bundle is incomplete: {name} is missing. Received: {folder}. Export the model again"
            )
        if check and (received := sha256(path)) != expected:
            raise BundleError(
                f"the bundle was changed after its export: {name} must have sha256 {expected}. "
                f"Received: {received} in {folder}. Export the model again"
            )


def _state(folder: Path) -> tuple[int, ...] | None:
    """Returns numbers that change if a bundle is replaced, also by an equal one; `None` if it has no manifest."""
    with suppress(OSError, ValueError):
        status = (folder / MANIFEST).stat()
        # A copy may have the number of a deleted file and the time of the original, but changed later.
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return None


def _digest(content: JsonObject) -> str:
    """Returns the SHA-256 of a manifest's fields, independent of their order and indentation."""
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
