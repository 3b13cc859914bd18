"""Writes the project of an app: the example of `examples/`, the library of `mobile/`, and a bundle.

Both are in a clone of the repository and not in an installed package.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kerasformer import bundle
from kerasformer.bundle import ADAPTERS, MANIFEST, PROBABILITIES, Bundle, Manifest, ModelInfo
from kerasformer.errors import InputError, SourceError
from kerasformer.files.publishing import publish, staging
from kerasformer.files.reading import local_path
from kerasformer.tokenization import Tokenizer

ROOT = Path(__file__).parents[3]
SCREENS = {
    "text-classification": "classifier",
    "text-generation": "chat",
    "text2text-generation": "translator",
    "translation": "translator",
    "sentence-similarity": "embedder",
}
"""Screens of the apps, which are also the folders of their bundles, by the task of a model."""
_NOT_COPIED = shutil.ignore_patterns(
    *("README.md", "Tests", "build", "bundles", "local.properties"),
    *(".build", ".gradle", ".idea", ".kotlin", ".swiftpm", "xcuserdata", "DerivedData"),
)
"""What needs the repository, as links of its pages do, and what builds leave."""


@dataclass(frozen=True)
class Platform:
    """A system with an example app.

    Attributes:
        title: Its name.
        format: Format of the bundles that the app runs.
        app: Folder of the app in the repository.
        library: Folder of the library in the repository.
        copy: Folder of the library in the project.
        edits: Texts of files of the project, with what takes their places.
        code: File of the app that calls the library.
        build: Section of the README about the build.
        next: Command to type after the project was written.
    """

    title: str
    format: str
    app: str
    library: str
    copy: str
    edits: Mapping[str, Mapping[str, str]]
    code: str
    build: str
    next: str


PLATFORMS = {
    "android": Platform(
        *("Android", "tflite", "examples/android", "mobile/kotlin", "kerasformer-kotlin"),
        {"settings.gradle.kts": {"../../mobile/kotlin": "kerasformer-kotlin", "of this repository": "in this folder"}},
        "app/src/main/kotlin/io/github/kerasformer/example/TaskViewModel.kt",
        """**Never built or run**: no Android SDK was at hand. The library itself is compiled and tested on a JVM.

Open this folder in Android Studio; or, with a JDK 17 and the Android SDK:

```sh
gradle assembleDebug
adb install app/build/outputs/apk/debug/app-debug.apk
```""",
        "gradle assembleDebug",
    ),
    "ios": Platform(
        *("iOS", "onnx", "examples/ios", "mobile/swift", "kerasformer-swift"),
        {
            "Kerasformer.xcodeproj/project.pbxproj": {
                "relativePath = ../../mobile/swift": 'relativePath = "kerasformer-swift"',
                "../../mobile/swift": "kerasformer-swift",
            },
            # The tests read files of the repository.
            "kerasformer-swift/Package.swift": {
                '        .testTarget(name: "KerasformerTests", dependencies: ["Kerasformer"]),\n': ""
            },
        },
        "App/Tasks.swift",
        """**Never built or run**: no Xcode was at hand.

Open `Kerasformer.xcodeproj` in Xcode 16 or later, choose your team, and run; or, for the simulator:

```sh
xcodebuild -project Kerasformer.xcodeproj -target Example -sdk iphonesimulator
```""",
        "open Kerasformer.xcodeproj",
    ),
}
_README = """# An app for {title}

Written by `kerasformer app {platform}`. The app has a screen for the model in `bundles/{screen}`, which runs on the
device alone; the `README.md` there has its figures. The library that runs it is in `{copy}`.

{build}

It shows a screen for each of the bundles `classifier`, `chat`, `translator` and `embedder` that it finds in `bundles`.
To replace this one, or with another name to add one:

```sh
kerasformer export MODEL bundles/{screen} --format {format} --quantize int8 --overwrite
```

The library is called in `{code}`,
where a translator of several languages needs their codes as arguments of `translate`.
"""


def check_folder(platform: str, folder: str | Path) -> Path:
    """Checks that an app may be written to a folder, before any work is done; returns its absolute path.

    Raises:
        InputError: There is no app for the platform, or the folder is not empty.
        SourceError: The package is not in a clone of the repository.
    """
    if platform not in PLATFORMS:
        raise InputError(f"there is an app for {' and '.join(PLATFORMS)}. Received: {platform!r}")
    known, folder = PLATFORMS[platform], local_path(folder)
    if not all((ROOT / name).is_dir() for name in (known.app, known.library)):
        raise SourceError(
            f"the files of the app are in a clone of kerasformer's repository. Expected: {known.app} and "
            f"{known.library} in {ROOT}. Received: an installed package. In a clone, run: "
            f'pip install -e ".[all]" && kerasformer app {platform} …'
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"a new or an empty folder was expected. Received: {folder}. Choose another, or remove it")
    return folder


def screen(info: ModelInfo, tokenizer: Tokenizer | None) -> str:
    """Returns the name of the screen for a model.

    Raises:
        InputError: The apps have none.
    """
    task, known = info.task, f"the apps have screens for {', '.join(SCREENS)}"
    if info.prefixes("") == info.prefixes("summarization") != {}:
        task = "summarization"
    if task not in SCREENS:
        raise InputError(f"{known}. Received: a model for {task}")
    if task == "text-generation" and not (tokenizer and tokenizer.chat_template):
        raise InputError(f"{known}, which is a chat for text-generation. Received: a model without a chat template")
    return SCREENS[task]


def write(platform: str, source: str | os.PathLike[str], folder: str | Path) -> Bundle:
    """Writes the project of an app with a copy of a bundle, which is returned; in a temporary place first.

    Args:
        platform: A name of `PLATFORMS`.
        source: Folder of the bundle.
        folder: A new or an empty folder.

    Raises:
        BundleError: The bundle is damaged.
        InputError: The app cannot run the bundle; or as `check_folder` and `screen`.
        SourceError: As `check_folder`.
    """
    folder, known, source = check_folder(platform, folder), PLATFORMS[platform], local_path(source)
    manifest = bundle.read(source)
    if not _is_readable(manifest, known.format):
        raise InputError(
            f"the {known.title} app runs bundles in the format {known.format} with tokenizer.json, exported without a "
            f"target. Received: {source}, in the format {manifest.format}. Write one with: kerasformer export MODEL "
            f"FOLDER --format {known.format} --quantize int8"
        )
    name = screen(manifest.info, Tokenizer.load(source))
    with staging(folder, "app") as project:
        shutil.copytree(ROOT / known.app, project, dirs_exist_ok=True, ignore=_NOT_COPIED)
        shutil.copytree(ROOT / known.library, project / known.copy, ignore=_NOT_COPIED)
        shutil.copyfile(ROOT / "LICENSE", project / known.copy / "LICENSE")
        for path, edits in known.edits.items():
            text = (project / path).read_text(encoding="utf-8")
            for old, new in edits.items():
                text = text.replace(old, new)
            (project / path).write_text(text, encoding="utf-8")
        readme = _README.format(platform=platform, screen=name, **asdict(known))
        (project / "README.md").write_text(readme, encoding="utf-8")
        for path in (MANIFEST, *manifest.files):
            target = project / "bundles" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, target)
        return Bundle(publish(project, folder) / "bundles" / name)


def _is_readable(manifest: Manifest, format: str) -> bool:
    """Whether an app has a tokenizer for a bundle, passes all inputs and reads the outputs."""
    signatures = manifest.signatures.values()
    adapts = format == "tflite" and any(each.named(*ADAPTERS) for each in signatures)
    scores = any(PROBABILITIES in each.outputs for each in signatures)
    return manifest.format == format and "tokenizer.json" in manifest.files and not adapts and not scores
