"""Exports checkpoints with another library: `python -P benchmarks/peer_exporters.py PEER SECONDS < FOLDERS`.

Each folder has a checkpoint, `inputs.npz` and the answers of PyTorch, `outputs.npz`. For each, a line of JSON is
printed: `error` is the largest difference of an output from PyTorch at real tokens, relative to the largest value of
PyTorch, with `form`, what was exported; or `message` says why there is none. Each checkpoint is exported in a process
of its own, a fork of one that has imported the library, and within so many seconds. The script does not use other files
of this repository, so that it runs in the environment of each library.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
HEADS = "logits", "prediction_logits", "last_hidden_state"
"""Outputs that are compared: the first of them that both models have."""
SAMPLE = 2, 6
"""Texts and tokens with which a graph of any length is traced; the answers are those for other numbers."""


def pytorch_model(folder: Path) -> Any:
    import transformers

    [name] = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(transformers, name).from_pretrained(folder).eval()
    model.config.use_cache = False
    return model


def transformers_exporters(folder: Path, inputs: Arrays, out: Path) -> tuple[Arrays, str]:
    """Exports with any lengths or, if that fails, with those of the inputs."""
    import torch
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    model = pytorch_model(folder)
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    sample = {name: value[: SAMPLE[0], : SAMPLE[1]] for name, value in tensors.items()}
    try:
        exported, form = OnnxExporter().export(model, sample, config=OnnxConfig(dynamic=True)), "any length"
        answers = exported(**tensors)
    except Exception:
        exported, form = OnnxExporter().export(model, tensors, config=OnnxConfig()), "one length"
        answers = exported(**tensors)
    return _arrays(answers), form


def mobius(folder: Path, inputs: Arrays, out: Path) -> tuple[Arrays, str]:
    """Builds the graphs that the library chooses; without a mask, or if they refuse a batch, they read single texts."""
    import onnxruntime
    from mobius import build

    build(str(folder), dtype="f32").save(str(out), progress_bar=False)
    files = sorted(out.rglob("*.onnx"), key=lambda path: "encoder" not in str(path))
    sessions = {str(path.relative_to(out)): onnxruntime.InferenceSession(path) for path in files}
    masks = "attention_mask" in [value.name for value in next(iter(sessions.values())).get_inputs()]
    with contextlib.suppress(Exception if masks else ()):
        if masks:
            return _answers(sessions, inputs), "padded texts"
    return _joined([_answers(sessions, text) for text in _texts(inputs)], inputs), "single texts"


def _answers(sessions: Mapping[str, Any], inputs: Arrays) -> Arrays:
    answers: Arrays = {}
    for file, session in sessions.items():
        feeds = {value.name: _feed(value, {**inputs, **answers}) for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        outputs = dict(zip(names, session.run(names, feeds), strict=True))
        answers |= {"encoder_hidden_states": outputs[names[0]]} if file.startswith("encoder") else outputs
    return answers


def _texts(inputs: Arrays) -> list[Arrays]:
    """Returns the texts of a batch, each without padding."""
    lengths = {name: inputs[name].sum(axis=1) for name in inputs if name.endswith("attention_mask")}
    masks = {name: name.replace("input_ids", "attention_mask") for name in inputs}
    count = len(inputs["input_ids"])
    return [{name: value[i : i + 1, : lengths[masks[name]][i]] for name, value in inputs.items()} for i in range(count)]


def _joined(texts: list[Arrays], inputs: Arrays) -> Arrays:
    """Returns the answers of single texts as those of the batch, with zeros at padding."""
    length = inputs.get("decoder_input_ids", inputs["input_ids"]).shape[1]
    joined = {}
    for name in texts[0]:
        if name in HEADS:
            values = [text[name][0] for text in texts]
            ragged = len({len(value) for value in values}) > 1
            grown = [np.pad(v, [(0, length - len(v))] + [(0, 0)] * (v.ndim - 1)) for v in values] if ragged else values
            joined[name] = np.stack(grown)
    return joined


def _feed(value: Any, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns a value for an input: of a cache, one without tokens."""
    name, kind = value.name, {"tensor(float)": "float32", "tensor(bool)": "bool"}.get(value.type, "int64")
    prefix = "decoder_" if "decoder_input_ids" in arrays and "encoder_hidden_states" in arrays else ""
    for known in (prefix + name, name):
        if known in arrays and not name.startswith("past"):
            return arrays[known].astype(kind)
    ids = arrays[f"{prefix}input_ids"]
    others = {
        "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        "token_type_ids": np.zeros_like(ids),
        "attention_mask": np.ones_like(ids),
        "encoder_attention_mask": arrays["attention_mask"],
    }
    if name in others:
        return others[name].astype(kind)
    if name.startswith("past"):
        sizes = [size if isinstance(size, int) else 0 for size in value.shape]
        return np.zeros((len(ids), *sizes[1:]), kind)
    raise KeyError(f"unknown input {name} {value.shape}")


def litert_torch(folder: Path, inputs: Arrays, out: Path) -> tuple[Arrays, str]:
    """Converts the call of the PyTorch module for the lengths of the inputs."""
    import litert_torch
    import torch

    model = pytorch_model(folder)
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    with torch.no_grad():
        names = [name for name, value in model(**tensors).items() if isinstance(value, torch.Tensor)]

    class Call(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, **arguments: Any) -> Any:
            outputs = self.model(**arguments)
            return tuple(outputs[name] for name in names)

    converted = litert_torch.convert(Call().eval(), sample_kwargs=tensors)
    converted.export(str(out / "model.tflite"))
    answers = converted(**{name: value.astype("int32") for name, value in inputs.items()})
    answers = answers if isinstance(answers, tuple | list) else [answers]
    return dict(zip(names, map(np.asarray, answers), strict=True)), "one length"


def optimum_onnx(folder: Path, inputs: Arrays, out: Path) -> tuple[Arrays, str]:
    """Exports with the class of the checkpoint's head."""
    import optimum.onnxruntime as classes
    import torch

    [name] = json.loads((folder / "config.json").read_text())["architectures"]
    heads = {
        "ForSequenceClassification": "SequenceClassification",
        "ForTokenClassification": "TokenClassification",
        "ForMaskedLM": "MaskedLM",
        "ForConditionalGeneration": "Seq2SeqLM",
        "MTModel": "Seq2SeqLM",
        "ForCausalLM": "CausalLM",
        "LMHeadModel": "CausalLM",
    }
    head = next((head for ending, head in heads.items() if name.endswith(ending)), "FeatureExtraction")
    generates = {"use_cache": False, "use_io_binding": False} if head.endswith("LM") and head != "MaskedLM" else {}
    model = getattr(classes, f"ORTModelFor{head}").from_pretrained(folder, export=True, **generates)
    return _arrays(model(**{name: torch.tensor(value) for name, value in inputs.items()})), head


def _arrays(outputs: Mapping[str, Any]) -> Arrays:
    return {name: np.asarray(value) for name, value in outputs.items() if hasattr(value, "shape")}


PEERS = {
    "transformers.exporters": (transformers_exporters, "transformers.exporters.exporter_onnx", "onnxruntime", "torch"),
    "mobius-onnx": (mobius, "mobius", "onnxruntime"),
    "litert-torch": (litert_torch, "litert_torch", "transformers"),
    "optimum-onnx": (optimum_onnx, "optimum.onnxruntime", "torch"),
}


def compare(inputs: Arrays, received: Arrays, expected: Arrays) -> dict[str, Any]:
    """Returns the error of the head's output or, if it is missing, of the hidden states."""
    for name in HEADS:
        if name in received and name in expected:
            actual, reference = np.asarray(received[name], "float32"), expected[name]
            if actual.shape != reference.shape:
                return {"message": f"{name} has shape {actual.shape}, PyTorch {reference.shape}"}
            for mask in (inputs[key] for key in ("decoder_attention_mask", "attention_mask") if key in inputs):
                if reference.ndim > 1 and mask.shape == reference.shape[:2]:
                    actual, reference = actual[mask > 0], reference[mask > 0]
                    break
            error = np.abs(actual - reference).max() / np.abs(reference).max()
            head = {} if name == next(iter(expected)) else {"output": name}
            return {"error": float(error) if np.isfinite(error) else None, **head}
    return {"message": f"no output of PyTorch is among {', '.join(received)}"}


def export(peer: str, folder: Path) -> dict[str, Any]:
    """Exports a checkpoint and compares the answers."""
    inputs, expected = ({**np.load(folder / f"{name}.npz")} for name in ("inputs", "outputs"))
    with tempfile.TemporaryDirectory() as out:
        try:
            received, form = PEERS[peer][0](folder, inputs, Path(out))
            return {"form": form, **compare(inputs, received, expected)}
        except BaseException as error:
            return {"message": f"{type(error).__name__}: {_first_sentence(error)}"}


def _first_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()]
    return " ".join(filter(None, lines))[:300]


def _child(peer: str, folder: Path, results: Any) -> None:
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
        results.send(export(peer, folder))


def run(peer: str, seconds: float, folders: Iterable[str]) -> None:
    """Prints the result of each folder."""
    for module in PEERS[peer][1:]:
        importlib.import_module(module)
    context = multiprocessing.get_context("fork")
    for folder in map(str.strip, folders):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(peer, Path(folder), sender))
        process.start()
        sender.close()
        result = {"message": f"no answer after {seconds:.0f} seconds"}
        try:
            if receiver.poll(seconds):
                result = receiver.recv()
        except EOFError:
            process.join()
            result = {"message": f"the process ended with status {process.exitcode}"}
        process.kill()
        process.join()
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    sys.stdin.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    run(sys.argv[1], float(sys.argv[2]), iter(sys.stdin.readline, ""))
