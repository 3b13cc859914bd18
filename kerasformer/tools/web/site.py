"""Builds a site: a folder with the page, bundles and their runtimes, for any static web host.

`site.json` lists the content: a `version`, which changes with any file, a `title`, the `models`, the files of the page
and of each runtime, and the `names` of all files. A file is `{"path", "bytes", "sha256"}`; the `references` of a bundle
are the path of its reference answers, or null. Paths are relative to the folder, so that a site works at any address.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from kerasformer import bundle
from kerasformer.basics.command_options import SiteOptions
from kerasformer.basics.options import checked, documented
from kerasformer.basics.tasks import VARIANTS, ZERO_SHOT_TOKENS, entailment_class, languages
from kerasformer.bundle import (
    ADAPTERS,
    CACHES,
    CROSS_CACHES,
    MANIFEST,
    SENTENCE_EMBEDDING,
    SPAN_LOGITS,
    Manifest,
    ModelInfo,
    Signature,
    architectures,
    sha256,
)
from kerasformer.bundle.sample_texts import examples
from kerasformer.errors import BundleError, InputError, SourceError
from kerasformer.files.publishing import SITE, check_destination, publish, staging
from kerasformer.files.reading import local_path, read_json
from kerasformer.tokenization import Tokenizer, marks, pair_template, read_templates
from kerasformer.tools.web.model_card import ModelCard
from kerasformer.tools.web.references import page_references
from kerasformer.tools.web.token_check import check_tokens
from kerasformer.tools.web.vendor import vendor

PAGE = Path(__file__).with_name("page")

_ENGINES = {"tflite": "litert", "onnx": "onnx"}
_OMITTED = ("README.md", "MODEL_CARD.md", bundle.REFERENCES, "tensors.md")
"""Files of a bundle that a browser does not need, or needs only in part or in another form."""
_CARD = "model_card.txt"
"""The model card: all web hosts serve it as text, while some convert Markdown and browsers may only download it."""
_REFERENCES = "references.json"
_MAX_BYTES = 2**31
_USED_OUTPUTS = frozenset(
    {"logits", "start_logits", "end_logits", "last_hidden_state", SENTENCE_EMBEDDING, SPAN_LOGITS}
)
"""Outputs from which the page's library computes results."""
_NEVER_LISTED = {"service-worker.js"}
_NOT_OF_PAGE = shutil.ignore_patterns("README.md", "LICENSE", "package.json", "__pycache__")
"""Files of the npm package that the page's library is, too."""


@dataclass(frozen=True)
class _SiteBundle:
    """A bundle, and the title that the page shows for it."""

    folder: Path
    manifest: Manifest
    title: str

    @property
    def engine(self) -> str:
        return _ENGINES[self.manifest.format]

    @property
    def variant(self) -> str:
        """Identifies one of the bundles of a model."""
        profile = "-portable" if self.manifest.profile == "portable" else ""
        return f"{self.engine}-{self.manifest.recipe.get('name', 'none')}{profile}"


@documented(SiteOptions)
def build(
    bundles: Sequence[str | Path],
    destination: str | Path,
    **options: Unpack[SiteOptions],
) -> Path:
    """Builds a site.

    Args:
        bundles: Folders of bundles, or `NAME=FOLDER` to set the name that the page shows. Bundles with equal model
            information and tokenizers become one entry with a choice of engines.
        destination: The folder to write. It is written to a temporary folder first and then moved.
        options: See `SiteOptions`.

    Returns:
        The absolute path of the site.

    Raises:
        BundleError: A bundle is damaged or cannot run in a browser, the page tokenizes texts differently from the
            model, or the destination may not be replaced.
        InputError: `bundles` is empty.
        SourceError: The runtimes are unavailable.
        MissingExtraError: npm is needed but not installed.
    """
    if not bundles:
        raise InputError("A site needs at least one bundle. Received none. Write one with kerasformer export.")
    chosen = checked(SiteOptions, options, "a site")
    title, overwrite, runtime_files = chosen["title"], chosen["overwrite"], chosen.get("runtime_files")
    destination = check_destination(destination, overwrite, SITE)
    models = _grouped([_opened(each) for each in bundles])
    with staging(destination) as folder:
        page = _write_page(folder, title)
        entries = [_write_model(folder, name, members, chosen["given_texts"]) for name, members in models.items()]
        engines = sorted({engine["engine"] for entry in entries for engine in entry["engines"]})
        runtimes = {engine: _listed(folder, vendor(folder / "vendor", [engine], runtime_files)) for engine in engines}
        content: dict[str, object] = {
            "title": title,
            "models": entries,
            "page": _listed(folder, page),
            "runtimes": runtimes,
        }
        for member in (member for members in models.values() for member in members):
            check_tokens(member.folder, folder / "library", folder / "vendor" / "tokenizers" / "tokenizers.min.mjs")
        _write_list(folder, content)
        return publish(folder, destination, overwrite, SITE)


def _opened(argument: str | Path) -> _SiteBundle:
    """Opens a bundle and checks that a browser can run it.

    Raises:
        BundleError: A browser cannot run the bundle.
    """
    name, source = ("", argument) if isinstance(argument, Path) else name_of(argument)
    folder = local_path(source)
    manifest = bundle.read(folder)
    if manifest.format not in _ENGINES:
        raise BundleError(
            f"the page runs the formats {' and '.join(_ENGINES)}. Received: {folder}, with the format "
            f"{manifest.format}. Export the model with --format tflite or onnx"
        )
    if "tokenizer.json" not in manifest.files and "tokenizer_config.json" in manifest.files:
        kind = read_json(folder / "tokenizer_config.json").get("tokenizer_class")
        raise BundleError(
            f"the page cannot tokenize texts as this model does: the rules of {kind} cannot be written as "
            f"tokenizer.json. Received: {folder}. Run it with kf.pipeline; for translations in a browser, use a model "
            "with a tokenizer.json, such as NLLB, mBART or OPUS-MT"
        )
    if "tokenizer.json" not in manifest.files:
        raise BundleError(
            f"the page needs a tokenizer to read texts. Received: {folder}, without tokenizer.json. Set "
            "model.tokenizer = kerasformer.Tokenizer.load(folder) and export the model again"
        )
    large = [path for path in manifest.files if (folder / path).stat().st_size >= _MAX_BYTES]
    if large:
        raise BundleError(
            f"a browser cannot hold a file of 2 GiB or more. Received: {', '.join(large)} in {folder}. Export the "
            "model with --quantize int8 or int4"
        )
    if manifest.info.task == "zero-shot-classification" and entailment_class(manifest.info.labels) is None:
        raise BundleError(
            "zero-shot classification needs a class whose name starts with 'entail' and at least one other. "
            f"Received: {folder}, with the classes {', '.join(manifest.info.labels) or 'none'}"
        )
    if manifest.info.task in VARIANTS and manifest.info.task != ZERO_SHOT_TOKENS:
        raise BundleError(f"the page has no call for {manifest.info.task}. Received: {folder}. Run it with kf.pipeline")
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and pair_template(read_templates(folder, read_json(settings))) is not None:
        raise BundleError(
            "the page does not convert pairs of texts by a chat template. Received: "
            f"{folder}, a reranker with such a template. Rank with kf.pipeline"
        )
    unreadable = [key for key, signature in manifest.signatures.items() if not _readable(signature)]
    if unreadable:
        raise BundleError(
            f"the page needs one of the outputs {', '.join(sorted(_USED_OUTPUTS))}. Received: {folder}, exported for "
            f"another runtime: the outputs of {unreadable[0]} are "
            f"{', '.join(manifest.signatures[unreadable[0]].outputs)}. Export it without --target"
        )
    if manifest.format == "tflite" and any(each.named(*ADAPTERS) for each in manifest.signatures.values()):
        raise BundleError(
            f"the page passes no adapters, which a TFLite file then needs. Received: {folder}, exported with "
            "lora_rank=…. Export it without, or for ONNX Runtime, which runs the base model"
        )
    if manifest.cache_dtype not in (None, "float32"):
        raise BundleError(
            f"the page passes caches of float32 to a decoder. Received: {folder}, with caches of "
            f"{manifest.cache_dtype}. Export it without cache_dtype=…"
        )
    return _SiteBundle(folder.resolve(), manifest, name)


def _task_of_page(info: ModelInfo, folder: Path) -> str:
    """Returns the task that the page performs with a model.

    Classifiers of pairs of texts can do little with a single text: the page uses models for natural language inference
    for zero-shot classification, and cross-encoders of sentence-transformers for ranking. A model with a chat template
    answers messages. A model whose languages can be chosen translates, and one with only a prefix for summaries
    summarizes, unless it also has prefixes of other tasks.
    """
    settings = folder / "tokenizer_config.json"
    if info.task == "text-generation" and settings.is_file() and read_json(settings).get("chat_template") is not None:
        return "conversation"
    if info.task == "text2text-generation" and _languages(info, folder) is not None:
        return "translation"
    if info.task == "text2text-generation" and info.prefixes("") == info.prefixes("summarization") != {}:
        return "summarization"
    if info.task == "text-classification" and entailment_class(info.labels) is not None:
        return "zero-shot-classification"
    if info.task == "text-classification" and info.score_activation is not None and len(info.labels) == 1:
        return "text-ranking"
    return info.task


def _languages(info: ModelInfo, folder: Path) -> dict[str, object] | None:
    """Returns the codes of the languages among which a translation can choose, and the defaults; `None` for others.

    A side is empty if its language cannot be chosen.
    """
    if info.languages is not None:
        codes = list(info.languages.ids)
        return {
            **{"sources": codes, "targets": codes},
            **{"src_lang": info.languages.src_lang, "tgt_lang": info.languages.tgt_lang or info.output_language},
        }
    prefixes = info.prefixes("translation")
    if prefixes and (info.task == "translation" or prefixes == info.prefixes("")):
        sides = zip(*(languages(task) for task in prefixes), strict=True)
        sources, targets = (list(dict.fromkeys(code for code in side if code is not None)) for side in sides)
    else:
        sources, targets = [], list(marks(Tokenizer.load(folder)))
    if max(len(sources), len(targets)) < 2:
        return None
    return {"sources": sources, "targets": targets, "src_lang": None, "tgt_lang": None}


def _readable(signature: Signature) -> bool:
    """Whether the page can use an output of a signature: an answer, or a cache."""
    caches = (*CACHES, *CROSS_CACHES)
    return any(name in _USED_OUTPUTS or info.kind in caches for name, info in signature.outputs.items())


def name_of(argument: str) -> tuple[str, str]:
    """Splits `NAME=SOURCE` into name and source; the name is `""` if there is none."""
    name, equals, source = argument.partition("=")
    if not equals or Path(argument).expanduser().exists():
        return "", argument
    return name.strip(), source


def _grouped(bundles: Sequence[_SiteBundle]) -> dict[str, list[_SiteBundle]]:
    """Groups bundles by models, those for LiteRT first; the keys are names for folders and addresses."""
    groups: dict[Any, list[_SiteBundle]] = {}
    for each in bundles:
        key = (
            each.title,
            json.dumps(asdict(_without_sizes(each.manifest.info)), sort_keys=True),
            each.manifest.files["tokenizer.json"],
        )
        members = groups.setdefault(key, [])
        if any(member.variant == each.variant for member in members):  # so it is another model
            members = groups.setdefault((*key, str(each.folder)), [])
        members.append(each)
    models: dict[str, list[_SiteBundle]] = {}
    for members in groups.values():
        members.sort(key=lambda member: member.engine)
        name = members[0].title or _common(member.folder.name for member in members)
        title = members[0].title or ModelCard.of(members[0].folder).title or name
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "model"
        equal = sum(key == slug or key.startswith(f"{slug}--") for key in models)
        models[f"{slug}--{equal + 1}" if equal else slug] = [replace(member, title=title) for member in members]
    return models


def _without_sizes(info: ModelInfo) -> ModelInfo:
    """Returns the information without the numbers of words and labels, which fixed sizes of a format limit."""
    return info if info.spans is None else replace(info, spans=replace(info.spans, max_words=0, max_labels=None))


def _common(names: Iterable[str]) -> str:
    """The common start of folder names: `story` for `story-tflite` and `story-onnx`."""
    names = list(names)
    start = os.path.commonprefix(names).rstrip("-_. ") if len(names) > 1 else names[0]
    return start or names[0]


def _write_page(folder: Path, title: str) -> list[Path]:
    shutil.copytree(PAGE, folder, dirs_exist_ok=True, ignore=_NOT_OF_PAGE)
    for name in ("index.html", "manifest.webmanifest"):
        text = (folder / name).read_text(encoding="utf-8")
        shown = json.dumps(title)[1:-1] if name.endswith("manifest") else html.escape(title)
        (folder / name).write_text(text.replace("{{title}}", shown), encoding="utf-8")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.relative_to(folder).as_posix() not in _NEVER_LISTED]


def _write_model(folder: Path, name: str, members: list[_SiteBundle], given_texts: bool) -> dict[str, Any]:
    info = members[0].manifest.info
    task = _task_of_page(info, members[0].folder)
    card = ModelCard.of(members[0].folder)
    architecture = architectures.architectures().get(info.model_type)
    return {
        "name": name,
        "title": members[0].title,
        "task": task,
        "purpose": card.purpose,
        "license": card.license,
        "architecture": architecture.name if architecture else info.model_type,
        "problem_type": info.problem_type,
        "labels": info.labels,
        "embedding": None if info.embedding is None else asdict(info.embedding),
        "mask_token": Tokenizer.load(members[0].folder).mask_token if info.task == "fill-mask" else None,
        "task_prefixes": info.task_prefixes,
        "languages": _languages(info, members[0].folder) if task == "translation" else None,
        "generation": {**info.generation, **(info.task_settings.get(task, {}) if info.is_encoder_decoder else {})},
        "examples": examples(task),
        "engines": [
            _write_bundle(folder, f"models/{name}/{member.variant}/", member, given_texts) for member in members
        ],
    }


def _write_bundle(folder: Path, base: str, member: _SiteBundle, given_texts: bool) -> dict[str, Any]:
    """Copies the files of a bundle that the page needs; returns its entry for `site.json`."""
    names = [MANIFEST, *sorted(name for name in member.manifest.files if not name.startswith(_OMITTED))]
    references = None
    card = ModelCard()

    def copy(source: Path, manifest: Manifest) -> None:
        nonlocal references, card
        if manifest != member.manifest:
            raise BundleError(f"the bundle was replaced while the site was written: {source}. Write the site again")
        for name in names:
            (folder / base / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, folder / base / name)
        if manifest.format_version < bundle.FORMAT_VERSION:
            # The page's library needs the descriptions of tensors, which older manifests lack.
            (folder / base / MANIFEST).write_text(bundle.encoded(manifest), encoding="utf-8")
        references = page_references(source, manifest, _USED_OUTPUTS, given_texts)
        card = ModelCard.of(source)

    bundle.load(member.folder, copy)
    if references is not None:
        names.append(_REFERENCES)
        (folder / base / _REFERENCES).write_text(json.dumps(references, separators=(",", ":")), encoding="utf-8")
    if card.text:
        names.append(_CARD)
        # With a byte order mark: many hosts do not send the encoding of a text.
        (folder / base / _CARD).write_text(card.text, encoding="utf-8-sig")
    files = _listed(folder, [folder / base / name for name in names])
    return {
        "engine": member.engine,
        "base": base,
        "bytes": sum(file["bytes"] for file in files),
        "recipe": member.manifest.recipe.get("name", "none"),
        "profile": member.manifest.profile,
        "gpu": member.manifest.gpu_findings == (),
        "capacity": member.manifest.capacity,
        "max_length": member.manifest.encoder_capacity or member.manifest.info.max_length,
        "fidelity": member.manifest.fidelity,
        "references": None if references is None else base + _REFERENCES,
        "card": base + _CARD if card.text else None,
        "files": files,
    }


def _listed(folder: Path, paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Describes files as in `site.json`."""
    return [
        {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in paths
    ]


def _write_list(folder: Path, content: dict[str, object]) -> None:
    """Writes `site.json`, and its version into the service worker: browsers update a worker if its bytes changed."""
    worker = folder / "service-worker.js"
    script = worker.read_text(encoding="utf-8")
    content["names"] = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    version = hashlib.sha256((script + json.dumps(content, sort_keys=True)).encode()).hexdigest()[:16]
    worker.write_text(script.replace("{{version}}", version), encoding="utf-8")
    text = json.dumps({"version": version, **content}, indent=1, ensure_ascii=False) + "\n"
    (folder / SITE).write_text(text, encoding="utf-8")


def check_site(folder: str | Path) -> dict[str, Any]:
    """Reads `site.json` and checks that all files exist.

    Raises:
        BundleError: The folder is not a site, or a file is missing or has another size.
        SourceError: `site.json` is damaged.
    """
    folder = local_path(folder, BundleError)
    if not (folder / SITE).is_file():
        hint = " It is a bundle: build a site from it with kerasformer web" if (folder / MANIFEST).is_file() else ""
        raise BundleError(
            f"a folder written by kerasformer web was expected. Received: {folder}, without {SITE}.{hint}"
        )
    try:
        content = read_json(folder / SITE)
        listed = [*content["page"], *(file for files in content["runtimes"].values() for file in files)]
        listed += [file for model in content["models"] for engine in model["engines"] for file in engine["files"]]
        incomplete = [each["path"] for each in listed if not _is_complete(folder / each["path"], each["bytes"])]
    except (ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{folder / SITE} is damaged, or was not written by kerasformer web: {error!r}. Write the site again"
        ) from error
    if incomplete:
        raise BundleError(
            f"files of the site are missing or truncated: {', '.join(incomplete)} in {folder}. Write the site again"
        )
    return content


def _is_complete(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
