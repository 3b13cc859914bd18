"""Target LiteRT.js: the TFLite file in browsers, without signatures that a page does not call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kerasformer.bundle import Manifest, Role
from kerasformer.errors import ExportError
from kerasformer.export.attention_support import AttentionSupport
from kerasformer.export.graph.functions import Function
from kerasformer.export.job import ExportJob
from kerasformer.export.targets.base import Target, refuse_signatures

_LARGEST = 2**31
_DTYPES = ("float32", "int32")


class LitertWeb(Target):
    """LiteRT.js, for encoders, decoders and encoder-decoders.

    It keeps a copy of the weights for every signature when it loads a file, in a memory of at most 2 GB, and a page
    processes one text at a time. Steps of several rows and verify steps are therefore omitted. A bundle with them also
    runs there if its copies fit.
    """

    name = "litert-web"
    summary = "LiteRT.js: browsers"
    format = "tflite"
    attention = AttentionSupport(recurrent=False)
    reads_tokenizer = True
    further_outputs = True
    app_files = ("tokenizer.json", "tokenizer_config.json")
    # A page reads one text at a time, for which padding is the largest loss. Each length costs memory: LiteRT.js keeps
    # a copy of the weights for every signature.
    lengths = (16, 32, 48, 64, 96, 128, 256, 512)

    def check(self, job: ExportJob) -> None:
        """Refuses signatures that a page does not call.

        Raises:
            ExportError: The caller requested such signatures.
        """
        refuse_signatures(self.name, job, "batch_sizes", "verify_lengths")

    def functions(self, job: ExportJob, functions: list[Function]) -> list[Function]:
        """Returns the signatures that a page calls.

        Raises:
            ExportError: One of them has a tensor that LiteRT.js does not support.
        """
        signatures = [function.signature() for function in functions]
        selected = [
            function
            for function, signature in zip(functions, signatures, strict=True)
            if signature.role not in (Role.SHORT_PREFILL, Role.VERIFY) and signature.rows in (1, None)
        ]
        for function in selected:
            _check(function)
        return selected

    def finish(self, job: ExportJob, manifest: Manifest, folder: Path) -> Sequence[Path]:
        """Checks the size of the file.

        Raises:
            ExportError: It is too large for LiteRT.js.
        """
        for name in sorted({signature.file for signature in manifest.signatures.values()}):
            size = (folder / name).stat().st_size
            if size >= _LARGEST:
                raise ExportError(
                    f"LiteRT.js loads only files smaller than 2 GB. Received: {name} of {size / 1e9:.1f} GB. Use a "
                    "smaller model, or quantize='int8' or 'int4'"
                )
        return ()


def _check(function: Function) -> None:
    for name, info in {**function.inputs, **function.outputs}.items():
        if info.dtype not in _DTYPES or not all(isinstance(size, int) for size in info.shape):
            raise ExportError(
                f"LiteRT.js supports only {' and '.join(_DTYPES)} tensors with static shapes. Received: {name} of "
                f"{function.name}, {info.dtype} {info.shape}"
            )
