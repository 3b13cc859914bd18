"""Functions written as a TFLite file, with the manifest that a runtime needs; no tokenizer, no card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import keras

from kerasformer.bundle import Manifest, ModelInfo, Signature
from kerasformer.export.functions import Function
from kerasformer.export.recipes import recipe
from kerasformer.export.tflite_graph import names, schema
from kerasformer.export.to_tflite import write_tflite


def write(
    folder: Path, model: keras.Model, functions: Sequence[Function], quantize: str, task: str = "", pad: int = 0
) -> Manifest:
    """Writes `model.tflite` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tflite(functions, model.variables, recipe(quantize), folder / "model.tflite")
    signatures = {f.name: Signature("model.tflite", f.inputs, f.outputs) for f in functions}
    info = ModelInfo(task, is_encoder_decoder="encoder_mask" in functions[-1].inputs, pad_token_id=pad)
    return Manifest("tflite", info, signatures, files={"model.tflite": "0" * 64})


def operators(path: Path) -> dict[str, Counter[str]]:
    """How often each operator occurs in each signature."""
    model = schema().ModelT.InitFromPackedBuf(bytearray(path.read_bytes()), 0)
    known = names(schema().BuiltinOperator)
    codes = [known[code.builtinCode] for code in model.operatorCodes]
    return {
        signature.signatureKey.decode(): Counter(
            codes[op.opcodeIndex] for op in model.subgraphs[signature.subgraphIndex].operators
        )
        for signature in model.signatureDefs
    }
