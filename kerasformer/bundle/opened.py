"""The `Bundle` class: folder, manifest and pipeline of an exported bundle, without Keras."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kerasformer
from kerasformer.bundle.figures import figure_line, figure_rows
from kerasformer.bundle.manifest import Manifest, read
from kerasformer.files.publishing import repair
from kerasformer.files.reading import JsonObject

if TYPE_CHECKING:
    from rich.table import Table


class Bundle(os.PathLike[str]):
    """An exported bundle on disk.

    A bundle is accepted wherever the path of its folder is: `open(bundle / "README.md")`,
    `shutil.copytree(bundle, …)`, `kf.pipeline(bundle)`. It also has the methods of `Path`, such as
    `bundle.exists()`.

        out = kf.export.export(model, "out", quantize="int8")
        out.fidelity["agreement"]
        out.pipeline()("A warm and funny film.")

    Args:
        folder: Folder written by `kerasformer.export.export`. Only the presence of its files is checked here;
            checksums are verified when the bundle is opened to run.

    Attributes:
        path: Absolute path of the folder.
        manifest: Content of `kerasformer.json` when the object was created.

    Raises:
        BundleError: the folder is not a bundle, or is incomplete.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path: Path = repair(Path(folder))
        self.manifest: Manifest = read(self.path, check=False)

    @property
    def task(self) -> str:
        """Task of the bundle, such as `"text-classification"`."""
        return self.manifest.info.task

    @property
    def fidelity(self) -> JsonObject:
        """Figures of the comparison with the Keras model, by the field names of `Fidelity`."""
        return self.manifest.fidelity

    @property
    def files(self) -> dict[str, int]:
        """Size in bytes of each file except the manifest, by its path relative to the folder."""
        return {name: (self.path / name).stat().st_size for name in sorted(self.manifest.files)}

    @property
    def model_bytes(self) -> int:
        """Size in bytes of the model files and their external weight files."""
        models = {signature.file for signature in self.manifest.signatures.values()}
        weights = tuple(f"{name}_data" for name in models) + ("variables/",)
        return sum(size for name, size in self.files.items() if name in models or name.startswith(weights))

    def pipeline(self, task: str | None = None, **options: Any) -> Any:
        """Returns a pipeline that runs the bundle in its runtime.

        Args:
            task: Task of the pipeline; defaults to the task of the bundle.
            options: Further arguments of `kerasformer.pipeline`, such as `num_threads`.
        """
        return kerasformer.pipeline(self, task, **options)

    def rows(self) -> list[tuple[str, str]]:
        """Returns a summary of the bundle, as pairs of a name and a value for display."""
        manifest, info = self.manifest, self.manifest.info
        longest = manifest.encoder_capacity or info.max_length
        rows = [
            ("format", manifest.format),
            ("model", f"{info.name} ({info.model_type})"),
            ("task", info.task),
            ("labels", ", ".join(info.labels)),
            ("recipe", str(manifest.recipe.get("name", ""))),
            ("cache", f"{manifest.capacity} tokens" if manifest.capacity else ""),
            ("maximum input", f"{longest} tokens" if longest else ""),
            ("signatures", ", ".join(manifest.signatures)),
            ("files", "\n".join(f"{name}: {size:,} bytes" for name, size in self.files.items())),
            ("fidelity", figure_line(manifest.fidelity)),
            ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ]
        return [row for row in rows if row[1]]

    def __repr__(self) -> str:
        manifest, info = self.manifest, self.manifest.info
        text = f"{info.name} for {info.task}, {manifest.format} {manifest.recipe.get('name', '')}".rstrip()
        text += f", {self.model_bytes / 1e6:.1f} MB"
        if manifest.fidelity:
            text += f", {' '.join(figure_rows(manifest.fidelity)[0])}"
        return f"Bundle({str(self.path)!r}: {text})"

    def __rich__(self) -> Table:
        """Returns the table shown by `rich.print(bundle)`."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(str(self.path)), title_justify="left", show_header=False)
        for column in ("field", "value"):
            table.add_column(column, overflow="fold")
        for name, value in self.rows():
            table.add_row(escape(name), escape(value))
        return table

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return self.path == (other.path if isinstance(other, Bundle) else other)

    def __hash__(self) -> int:
        return hash(self.path)

    def __getattr__(self, name: str) -> Any:
        """Returns a method or attribute of the path."""
        if name.startswith("_") or name in ("path", "manifest"):  # may be unset while the object is copied
            raise AttributeError(name)
        return getattr(self.path, name)
