"""LiteRT.js: the plain TFLite file in browsers, without the signatures that a page does not call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest, Role
from kerasformer.errors import ExportError, argument
from kerasformer.export.graph.functions import Function
from kerasformer.export.options import ExportJob
from kerasformer.export.targets.base import Target, refuse_signatures
from kerasformer.export.targets.litert_web import card as litertjs_card

_LARGEST = 2**31
_DTYPES = ("float32", "int32")


class LitertWeb(Target):
    """LiteRT.js, which takes the plain file: encoders, decoders, encoder-decoders.

    It prepares every signature when it loads a file, in memory that a phone's browser is short of, and a page reads one
    text at a time: steps of several rows and of guessed tokens are left out. A bundle with them runs there too.
    """

    name = "litert-web"
    summary = "LiteRT.js: browsers"
    needs = {"format": "tflite"}

    def check(self, job: ExportJob, quantize: str) -> None:
        """Refuses signatures that a page does not call.

        Raises:
            ExportError: with the signatures.
        """
        refuse_signatures(self.name, job, "rows", "verify_lengths")

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """The signatures that a page calls.

        Raises:
            ExportError: one of them takes or gives what LiteRT.js cannot hold.
        """
        signatures = [function.signature() for function in functions]
        kept = [
            function
            for function, signature in zip(functions, signatures, strict=True)
            if signature.role != Role.VERIFY and signature.rows in (1, None)
        ]
        for function in kept:
            _check(function)
        return kept

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Looks at the size of the file; adds nothing.

        Raises:
            ExportError: LiteRT.js cannot load it.
        """
        for name in sorted({signature.file for signature in manifest.signatures.values()}):
            size = (folder / name).stat().st_size
            if size >= _LARGEST:
                raise ExportError(
                    f"LiteRT.js loads files of less than 2 GB, and a browser seldom has more. Received: {name} of "
                    f"{size / 1e9:.1f} GB. Take a smaller model, or {argument('quantize', 'int8')} or 'int4'"
                )
        return ()

    def card(self, manifest: Manifest, folder: Path) -> str:
        """A page that runs the bundle."""
        return litertjs_card.section(manifest)


def _check(function: Function) -> None:
    for name, info in {**function.inputs, **function.outputs}.items():
        if info.dtype not in _DTYPES or not all(isinstance(size, int) for size in info.shape):
            raise ExportError(
                f"LiteRT.js takes {' and '.join(_DTYPES)} of static shapes. Received: {name} of {function.name}, "
                f"{info.dtype} {info.shape}"
            )
