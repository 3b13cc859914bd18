"""Writes a folder that any static web host serves: the page, bundles, their runtimes, and `site.json`, a list of all.

`site.json` has a `version`, which changes with any file, a `title`, the `models`, the files of the page and of each
runtime, and the `names` of all files. A file is `{"path", "bytes", "sha256"}`, the path relative to the folder: a site
works under any address.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kerasformer import bundle
from kerasformer.bundle import MANIFEST, Manifest, Signature
from kerasformer.bundle.interface import CACHES, CROSS_CACHES
from kerasformer.errors import BundleError, InputError, SourceError
from kerasformer.files import local_path, read_json
from kerasformer.publishing import SITE, check_destination, publish, staging
from kerasformer.sample_texts import examples
from kerasformer.tokenization import load_tokenizer
from kerasformer.web.token_check import check_tokens
from kerasformer.web.vendor import vendor

PAGE = Path(__file__).with_name("page")

_ENGINES = {"tflite": "litert", "onnx": "onnx"}
_OF_NO_USE = {"README.md", "references.npz"}
"""What a browser does not read; the references may hold texts that were given at export."""
_MOST_BYTES = 2**31
_READ = {"logits", "start_logits", "last_hidden_state"}
"""Outputs of which the library makes results."""
_NEVER_LISTED = {"service-worker.js", "library/README.md"}


@dataclass(frozen=True)
class _Named:
    """A bundle with the name that the page shows."""

    folder: Path
    manifest: Manifest
    title: str

    @property
    def engine(self) -> str:
        return _ENGINES[self.manifest.format]

    @property
    def variant(self) -> str:
        """Tells the bundles of a model apart."""
        return f"{self.engine}-{self.manifest.recipe.get('name', 'none')}"


def build(
    bundles: Sequence[str | Path],
    destination: str | Path,
    *,
    title: str = "Kerasformer",
    runtime_files: Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a site.

    Args:
        bundles: Folders, or `NAME=FOLDER` for the name that the page shows. Bundles of one model and task become one
            entry with a choice of engines: those with the same manifest of the model and the same tokenizer.
        destination: Of the site; written aside and moved into place.
        title: Of the page.
        runtime_files: See `vendor`.
        overwrite: Replaces a site that is there.

    Returns:
        The absolute destination.

    Raises:
        BundleError: a bundle that is damaged or that no browser can run, a tokenizer that the page reads otherwise than
            the model's own, or a destination that may not be replaced.
        InputError: no bundle.
        SourceError: the runtimes cannot be had; `MissingExtraError` where npm is missing.
    """
    if not bundles:
        raise InputError("A site needs a bundle at least. Received none. Write one with kerasformer export.")
    destination = check_destination(destination, overwrite, SITE)
    models = _grouped([_opened(each) for each in bundles])
    with staging(destination) as folder:
        page = _write_page(folder, title)
        entries = [_write_model(folder, name, members) for name, members in models.items()]
        engines = sorted({engine["engine"] for entry in entries for engine in entry["engines"]})
        runtimes = {engine: _listed(folder, vendor(folder / "vendor", [engine], runtime_files)) for engine in engines}
        content = {"title": title, "models": entries, "page": _listed(folder, page), "runtimes": runtimes}
        for member in (member for members in models.values() for member in members):
            check_tokens(member.folder, folder / "library", folder / "vendor" / "tokenizers" / "tokenizers.min.mjs")
        _write_list(folder, content)
        return publish(folder, destination, overwrite, SITE)


def _opened(given: str | Path) -> _Named:
    """A bundle that a browser can run.

    Raises:
        BundleError: it is none.
    """
    name, source = ("", given) if isinstance(given, Path) else name_of(given)
    folder = local_path(source)
    manifest = bundle.read(folder)
    if manifest.format not in _ENGINES:
        raise BundleError(
            f"a browser runs {' and '.join(_ENGINES)}; a SavedModel needs TensorFlow, which no browser has. "
            f"Received: {folder}, which is {manifest.format}. Export the model with --format tflite or onnx"
        )
    if "tokenizer.json" not in manifest.files:
        raise BundleError(
            f"the page reads texts, and needs a tokenizer. Received: {folder} without tokenizer.json. Set "
            "model.tokenizer = kerasformer.tokenizer(folder) and export again"
        )
    large = [path for path in manifest.files if (folder / path).stat().st_size >= _MOST_BYTES]
    if large:
        raise BundleError(
            f"a browser cannot hold a file of 2 GiB or more. Received: {', '.join(large)} in {folder}. Export the "
            "model with --quantize int8 or int4"
        )
    unreadable = [key for key, signature in manifest.signatures.items() if not _readable(signature)]
    if unreadable:
        raise BundleError(
            f"the page reads {', '.join(sorted(_READ))}. Received: {folder}, made for another runtime, for "
            f"{unreadable[0]} gives {', '.join(manifest.signatures[unreadable[0]].outputs)}. Export the model without "
            "--target"
        )
    return _Named(folder.resolve(), manifest, name)


def _readable(signature: Signature) -> bool:
    """Whether the page can use the outputs of a signature: answers, or caches alone."""
    caches = (*CACHES, *CROSS_CACHES)
    return any(name in _READ or info.kind in caches for name, info in signature.outputs.items())


def name_of(given: str) -> tuple[str, str]:
    """The name and the source in `NAME=SOURCE`; `""` where there is no name."""
    name, equals, source = given.partition("=")
    if not equals or Path(given).expanduser().exists():
        return "", given
    return name.strip(), source


def _grouped(bundles: Sequence[_Named]) -> dict[str, list[_Named]]:
    """The bundles of each model, those of LiteRT first, by a name for its folder and address."""
    groups: dict[Any, list[_Named]] = {}
    for each in bundles:
        key = (
            each.title,
            json.dumps(each.manifest.info.__dict__, sort_keys=True),
            each.manifest.files["tokenizer.json"],
        )
        members = groups.setdefault(key, [])
        if any(member.variant == each.variant for member in members):  # hence another model
            members = groups.setdefault((*key, str(each.folder)), [])
        members.append(each)
    models: dict[str, list[_Named]] = {}
    for members in groups.values():
        members.sort(key=lambda member: member.engine)
        title = members[0].title or _common(member.folder.name for member in members)
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "model"
        taken = sum(name == slug or name.startswith(f"{slug}--") for name in models)
        models[f"{slug}--{taken + 1}" if taken else slug] = [replace(member, title=title) for member in members]
    return models


def _common(names: Iterable[str]) -> str:
    """What folder names have in common: `story` of `story-tflite` and `story-onnx`."""
    names = list(names)
    start = os.path.commonprefix(names).rstrip("-_. ") if len(names) > 1 else names[0]
    return start or names[0]


def _write_page(folder: Path, title: str) -> list[Path]:
    shutil.copytree(PAGE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("README.md", "__pycache__"))
    for name in ("index.html", "manifest.webmanifest"):
        text = (folder / name).read_text(encoding="utf-8")
        shown = json.dumps(title)[1:-1] if name.endswith("manifest") else html.escape(title)
        (folder / name).write_text(text.replace("{{title}}", shown), encoding="utf-8")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.relative_to(folder).as_posix() not in _NEVER_LISTED]


def _write_model(folder: Path, name: str, members: list[_Named]) -> dict[str, Any]:
    info = members[0].manifest.info
    return {
        "name": name,
        "title": members[0].title,
        "task": info.task,
        "model_type": info.model_type,
        "problem_type": info.problem_type,
        "mask_token": load_tokenizer(members[0].folder).mask_token if info.task == "fill-mask" else None,
        "task_prefixes": info.task_prefixes,
        "generation": info.generation,
        "examples": examples(info.task),
        "engines": [_write_bundle(folder, f"models/{name}/{member.variant}/", member) for member in members],
    }


def _write_bundle(folder: Path, base: str, member: _Named) -> dict[str, Any]:
    """Copies what runs, and describes it."""
    names = [MANIFEST, *sorted(set(member.manifest.files) - _OF_NO_USE)]

    def copy(source: Path, manifest: Manifest) -> None:
        if manifest != member.manifest:
            raise BundleError(f"the bundle was replaced while the site was written: {source}. Write the site again")
        for name in names:
            (folder / base / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / base / name)
        if manifest.format_version < bundle.FORMAT_VERSION:
            # The page's library reads descriptions, and takes no names apart.
            (folder / base / MANIFEST).write_text(bundle.encoded(manifest), encoding="utf-8")

    bundle.load(member.folder, copy)
    files = _listed(folder, [folder / base / name for name in names])
    return {
        "engine": member.engine,
        "base": base,
        "bytes": sum(file["bytes"] for file in files),
        "recipe": member.manifest.recipe.get("name", "none"),
        "capacity": member.manifest.capacity,
        "max_length": member.manifest.encoder_capacity or member.manifest.info.max_length,
        "fidelity": member.manifest.fidelity,
        "files": files,
    }


def _listed(folder: Path, paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Files as `site.json` has them."""
    return [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in paths
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_list(folder: Path, content: dict[str, Any]) -> None:
    """Writes `site.json`, and its version into the service worker: a browser updates a worker whose bytes changed."""
    worker = folder / "service-worker.js"
    script = worker.read_text(encoding="utf-8")
    content["names"] = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    version = hashlib.sha256((script + json.dumps(content, sort_keys=True)).encode()).hexdigest()[:16]
    worker.write_text(script.replace("{{version}}", version), encoding="utf-8")
    text = json.dumps({"version": version, **content}, indent=1, ensure_ascii=False) + "\n"
    (folder / SITE).write_text(text, encoding="utf-8")


def check_site(folder: str | Path) -> dict[str, Any]:
    """Reads `site.json`, and looks whether all files are there.

    Raises:
        BundleError: the folder is no site, or a file is missing or has another size.
    """
    folder = local_path(folder, BundleError)
    if not (folder / SITE).is_file():
        hint = " It is a bundle: write a site of it with kerasformer web" if (folder / MANIFEST).is_file() else ""
        raise BundleError(
            f"a folder that kerasformer web wrote was expected. Received: {folder}, without {SITE}.{hint}"
        )
    try:
        content = read_json(folder / SITE)
        listed = [*content["page"], *(file for files in content["runtimes"].values() for file in files)]
        listed += [file for model in content["models"] for engine in model["engines"] for file in engine["files"]]
        wrong = [each["path"] for each in listed if not _is_whole(folder / each["path"], each["bytes"])]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{folder / SITE} is not as kerasformer web writes it: {error!r}. Write the site again"
        ) from error
    if wrong:
        raise BundleError(f"files of the site are missing or truncated: {', '.join(wrong)} in {folder}. Write it again")
    return content


def _is_whole(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
