"""Copies the runtimes of the page from npm packages with pinned versions; the page loads nothing from other sites.

npm is run once, with the checksums of the lock file and without install scripts. The files that pages need, a tenth of
the packages, are kept in the user's cache folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from kerasformer.engines import user_folder
from kerasformer.errors import MissingExtraError, SourceError
from kerasformer.files.sources import read_json

PINS = Path(__file__).with_name("package.json")
LOCK = Path(__file__).with_name("package-lock.json")

_LITERT_BUILDS = ("litert_wasm_internal", "litert_wasm_threaded_internal", "litert_wasm_compat_internal")
"""With relaxed SIMD; with relaxed SIMD and threads; with neither. A browser loads one of them."""

FILES: dict[str, dict[str, str]] = {
    "tokenizers": {
        "tokenizers/tokenizers.min.mjs": "@huggingface/tokenizers/dist/tokenizers.min.mjs",
        "jinja/index.js": "@huggingface/jinja/dist/index.js",
        "licenses/huggingface-tokenizers.txt": "@huggingface/tokenizers/LICENSE",
        "licenses/huggingface-jinja.txt": "@huggingface/jinja/LICENSE",
    },
    "litert": {
        "litert/index.js": "@litertjs/core/dist/index.js",
        "litert/wasm-utils.js": "@litertjs/wasm-utils/dist/index.js",
        **{
            f"litert/wasm/{build}.{kind}": f"@litertjs/core/wasm/{build}.{kind}"
            for build in _LITERT_BUILDS
            for kind in ("js", "wasm")
        },
    },
    "onnx": {
        f"onnxruntime/{name}": f"onnxruntime-web/dist/{name}"
        for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
    },
}
"""For each runtime, the paths of files below `vendor/`, and their paths in the packages."""

_LICENSES = Path(__file__).with_name("licenses")
_NOT_IN_PACKAGE = {
    "@litertjs/core": "Apache-2.0.txt",
    "@litertjs/wasm-utils": "Apache-2.0.txt",
    "onnxruntime-web": "onnxruntime-web.txt",
}
"""Texts in `_LICENSES` for packages that name their licence but do not contain it."""

_BY_HAND = (
    f"To install them by hand, run npm ci --ignore-scripts in a copy of {PINS.parent}, and pass that folder with "
    "--runtime-files"
)

# A worker has no import map, so the import of a package is replaced by a path.
_REWRITTEN = {"litert/index.js": ('"@litertjs/wasm-utils"', '"./wasm-utils.js"')}


def vendor(folder: Path, engines: Iterable[str], runtime_files: str | Path | None = None) -> list[Path]:
    """Copies the runtimes of engines, and the tokenizer library, into `folder`.

    Args:
        folder: The folder `vendor/` of a site.
        engines: Names of engines: `"litert"`, `"onnx"`.
        runtime_files: A folder where `npm ci` was run with the package.json of this module. If `None`, npm is run
            unless its result is in the cache.

    Returns:
        The copied files, among them the licence of each package. `NOTICE.txt`, which lists the packages of all
        engines in `folder`, is not among them.

    Raises:
        MissingExtraError: npm is needed but not installed.
        SourceError: npm failed, or a package is missing or does not have the pinned version.
    """
    source = _installed() if runtime_files is None else Path(runtime_files).expanduser().absolute()
    packages = source if source.name == "node_modules" else source / "node_modules"
    _check_versions(packages)
    files = {name: path for part in ("tokenizers", *engines) for name, path in FILES[part].items()}
    for name, path in files.items():
        _copy(packages / path, folder / name, _REWRITTEN.get(name))
    used = {_package(path) for path in files.values()}
    licenses = {_license(name): _LICENSES / text for name, text in _NOT_IN_PACKAGE.items() if name in used}
    for name, text in licenses.items():
        _copy(text, folder / name, None)
    (folder / "NOTICE.txt").write_text(_notice(packages, folder), encoding="utf-8")
    return [folder / name for name in (*files, *licenses)]


def _package(path: str) -> str:
    """Returns the package of a path in `node_modules`."""
    parts = path.split("/")
    return "/".join(parts[:2]) if path.startswith("@") else parts[0]


def _license(package: str) -> str:
    """Returns the path of a package's licence below `vendor/`."""
    return f"licenses/{package.removeprefix('@').replace('/', '-')}.txt"


def _copy(source: Path, destination: Path, rewritten: tuple[str, str] | None) -> None:
    if not source.is_file():
        raise SourceError(f"a file of the page's runtimes is missing. Expected: {source}. Run npm ci there again")
    destination.parent.mkdir(parents=True, exist_ok=True)
    if rewritten is None:
        shutil.copyfile(source, destination)
        return
    text = source.read_text(encoding="utf-8")
    if rewritten[0] not in text:
        raise SourceError(f"{source} was expected to import {rewritten[0]}; it is not the pinned release")
    changed = f"// Changed by kerasformer: the import of {rewritten[0]} is {rewritten[1]}.\n"
    destination.write_text(changed + text.replace(*rewritten), encoding="utf-8")


def _notice(packages: Path, folder: Path) -> str:
    """Names, versions and licences of the packages of which `folder` has files."""
    names = [name for name in read_json(PINS)["dependencies"] if (folder / _license(name)).is_file()]
    manifests = [read_json(packages / name / "package.json") for name in names]
    return "".join(
        f"{each['name']} {each['version']}, {each['license']}, from npmjs.com, see {_license(each['name'])}\n"
        for each in manifests
    )


def _check_versions(packages: Path) -> None:
    wrong = []
    for name, pinned in read_json(PINS)["dependencies"].items():
        manifest = packages / name / "package.json"
        received = json.loads(manifest.read_text(encoding="utf-8"))["version"] if manifest.is_file() else "nothing"
        if received != pinned:
            wrong.append(f"{name} {pinned}, received {received}")
    if wrong:
        raise SourceError(
            f"the page's runtimes must have the pinned versions. Expected in {packages}: {'; '.join(wrong)}. {_BY_HAND}"
        )


def _installed() -> Path:
    """Returns the folder in the user's cache, which npm fills the first time, and again if other files are needed."""
    contents = LOCK.read_bytes() + "\n".join(_needed()).encode()
    folder = user_folder() / "web" / sha256(contents).hexdigest()[:16]
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise MissingExtraError(
            "npm, which is part of Node.js, is needed to download the page's runtimes, but is not installed. Install "
            f"it, or download the runtimes on another machine. {_BY_HAND}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fetched, needed = Path(temporary) / "fetched", Path(temporary) / "needed"
        fetched.mkdir()
        shutil.copy(PINS, fetched)
        shutil.copy(LOCK, fetched)
        _npm(npm, fetched)
        _copy_needed(fetched / "node_modules", needed / "node_modules")
        if not folder.is_dir():  # another process may have been faster
            needed.rename(folder)
    return folder


def _npm(npm: str, folder: Path) -> None:
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SourceError(
            f"npm could not download the page's runtimes: {(done.stderr or done.stdout).strip()[-500:]}. It needs the "
            f"network once; without a network, download them elsewhere. {_BY_HAND}"
        )


def _copy_needed(packages: Path, destination: Path) -> None:
    """Copies the files that pages need, and the manifests of the packages."""
    for path in _needed():
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(packages / path, destination / path)


def _needed() -> list[str]:
    """Returns the paths of the files in the packages that pages need."""
    paths = {path for part in FILES.values() for path in part.values()}
    return sorted(paths | {f"{name}/package.json" for name in read_json(PINS)["dependencies"]})
