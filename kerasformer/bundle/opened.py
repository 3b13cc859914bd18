"""An exported bundle as a value: its folder, its manifest, and the pipeline that runs it. No Keras is needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kerasformer
from kerasformer.bundle.manifest import Manifest, read
from kerasformer.publishing import repair

if TYPE_CHECKING:
    from rich.table import Table


class Bundle(os.PathLike[str]):
    """An exported bundle on this machine.

    It is accepted wherever the path of its folder is: `open(bundle / "README.md")`, `shutil.copytree(bundle, …)`,
    `kf.pipeline(None, bundle)`. It has the methods of that `Path` too, such as `bundle.exists()`.

        out = kf.export.export(model, "out", quantize="int8")
        out.fidelity["agreement"]
        out.pipeline()("A warm and funny film.")

    Args:
        folder: Folder that `kerasformer.export.export` wrote. The presence of its files is checked here, and their
            checksums when the bundle is opened to run.

    Attributes:
        path: Absolute path of the folder.
        manifest: Content of `kerasformer.json`, read once.

    Raises:
        BundleError: the folder is no bundle, or is incomplete.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path: Path = repair(Path(folder))
        self.manifest: Manifest = read(self.path, check=False)

    @property
    def task(self) -> str:
        """Task of the bundle, such as `"text-classification"`."""
        return self.manifest.info.task

    @property
    def fidelity(self) -> dict[str, Any]:
        """Figures of the comparison with the Keras model, by the names of the fields of `Fidelity`."""
        return self.manifest.fidelity

    @property
    def files(self) -> dict[str, int]:
        """Size in bytes of each file but the manifest, by its path relative to the folder."""
        return {name: (self.path / name).stat().st_size for name in sorted(self.manifest.files)}

    @property
    def model_bytes(self) -> int:
        """Size of the model files, with the files of weights beside them."""
        models = {signature.file for signature in self.manifest.signatures.values()}
        weights = tuple(f"{name}_data" for name in models) + ("variables/",)
        return sum(size for name, size in self.files.items() if name in models or name.startswith(weights))

    def pipeline(self, task: str | None = None, **options: Any) -> Any:
        """Opens the bundle in its runtime.

        Args:
            task: Task of the pipeline; that of the bundle by default.
            options: Further arguments of `kerasformer.pipeline`, such as `num_threads`.
        """
        return kerasformer.pipeline(task, self, **options)

    def rows(self) -> list[tuple[str, str]]:
        """What a person asks about a bundle: names of fields and their values."""
        manifest, info = self.manifest, self.manifest.info
        rows = [
            ("format", manifest.format),
            ("model", f"{info.name} ({info.model_type})"),
            ("task", info.task),
            ("labels", ", ".join(info.labels)),
            ("recipe", str(manifest.recipe.get("name", ""))),
            ("cache", f"{manifest.capacity} tokens" if manifest.capacity else ""),
            ("reads up to", f"{manifest.encoder_capacity or info.max_length} tokens"),
            ("signatures", ", ".join(manifest.signatures)),
            ("files", "\n".join(f"{name}: {size:,} bytes" for name, size in self.files.items())),
            ("fidelity", fidelity_line(manifest.fidelity) if manifest.fidelity else ""),
            ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ]
        return [row for row in rows if row[1]]

    def __repr__(self) -> str:
        manifest, info = self.manifest, self.manifest.info
        text = f"{info.name} for {info.task}, {manifest.format} {manifest.recipe.get('name', '')}".rstrip()
        text += f", {self.model_bytes / 1e6:.1f} MB"
        if manifest.fidelity:
            text += f", agreement with Keras {manifest.fidelity['agreement']:.2%}"
        return f"Bundle({str(self.path)!r}: {text})"

    def __rich__(self) -> Table:
        """The table that `rich.print(bundle)` shows."""
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(str(self.path)), title_justify="left", show_header=False)
        for column in ("field", "value"):
            table.add_column(column, overflow="fold")
        for name, value in self.rows():
            table.add_row(escape(name), escape(value))
        return table

    # The folder itself.

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
        """Methods and attributes of the path."""
        if name.startswith("_") or name in ("path", "manifest"):  # not set yet while a copy is being made
            raise AttributeError(name)
        return getattr(self.path, name)


def fidelity_line(figures: Mapping[str, Any]) -> str:
    """The most important figures of a comparison, in a line."""
    generated = figures.get("generated")
    free = "" if generated is None else f", generated tokens equal {generated:.1%}"
    ties, rest = figures.get("near_ties"), ""
    if ties is not None:
        decided = f", {figures['decided_agreement']:.2%} of the others agree" if ties < figures["answers"] else ""
        rest = f" ({ties} are near ties{decided})"
    return (
        f"Against Keras on {figures['answers']} answers: agreement {figures['agreement']:.2%}{rest}, largest error "
        f"{figures['max_error']:.2g} of the scale{free}"
    )
