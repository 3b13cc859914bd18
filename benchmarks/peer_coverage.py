"""What other libraries export of the hundred most used text models: `python -m benchmarks.peer_coverage setup|run`.

`setup` creates an environment for each library; `run` writes `peer_coverage.json`, of which `docs/zoo.md` shows a
table. Configurations that differ only in sizes, labels or vocabulary are tried once, with two layers, small sizes and
random weights, by this package and by each library; see `peer_exporters.py`. A run that was interrupted continues.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from benchmarks import installed_package
from benchmarks.peer_exporters import HEADS, PEERS, compare
from benchmarks.peers import environments
from benchmarks.peers.catalogue import Library
from kerasformer import zoo
from kerasformer.bundle.recipes import recipe
from kerasformer.errors import KerasformerError
from kerasformer.export import export
from kerasformer.export.formats.tflite.storage import form_of
from kerasformer.files.reading import JsonObject
from kerasformer.layers import Embedding
from kerasformer.tools.interpretability.costs import abstract_model, costs
from kerasformer.tools.testing import Case
from kerasformer.tools.testing.comparison import ragged
from tests.core.zoo.configurations import Row, config_type, hundred, model_type, reduced

OURS = "kerasformer"
RESULTS = Path(__file__).with_suffix(".json")
SECONDS = 120.0
"""Time for the export of a model."""
_TORCH, _ONNX = "torch==2.13.0", ("onnx==1.23.2", "onnxruntime==1.32.0", "onnxscript==0.7.2")
REQUIREMENTS = {
    "transformers.exporters": ("transformers==5.24.0", _TORCH, *_ONNX),
    "mobius-onnx": ("mobius-onnx==0.1.0", "transformers==5.24.0", _TORCH, *_ONNX),
    "litert-torch": ("litert-torch==0.10.0", "transformers==5.24.0"),
    "optimum-onnx": ("optimum-onnx[onnxruntime]==0.1.0", "transformers==4.57.6", _TORCH),
}
_UNIMPORTANT = ("dropout", "label", "initializer", "token_id", "problem", "finetuning", "max_length", "positions")
_RELATIVE = ("embedding_dim", "num_key_value_heads")
"""Sizes of which it matters whether they equal those of the layers."""


@dataclass(frozen=True)
class Kind:
    """Checkpoints whose configurations differ only in sizes, labels and vocabulary.

    Attributes:
        row: Row of the most used one.
        task: Task of its head; empty if the zoo does not have the architecture.
        members: Names of all of them.
    """

    row: Row
    task: str
    members: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the most used one."""
        return str(self.row["checkpoint"])


def task_of(row: Row) -> str:
    """Returns the task of the class that `config.json` names, or that of the row."""
    heads = zoo.architecture(model_type(row)).MODELS.items()
    saved = row["config"].get("architectures") or ()
    return next((task for task, head in heads if head.architecture in saved), row.get("task", "fill-mask"))


def kinds() -> list[Kind]:
    """Returns the kinds of configurations: one of each architecture, then the others, those of most checkpoints first.

    A configuration with `auto_map`, whose model is code in the repository of the checkpoint, belongs to none.
    """
    found: dict[str, Kind] = {}
    for name, row in hundred().items():
        if "auto_map" not in row["config"]:
            task = "" if "refused" in row else task_of(row)
            found.setdefault(_key(row, task), Kind(row, task)).members.append(name)
    first = {model_type(kind.row): kind for kind in reversed(found.values())}
    others = [kind for kind in found.values() if kind is not first[model_type(kind.row)]]
    return [*reversed(first.values()), *sorted(others, key=lambda kind: -len(kind.members))]


def _key(row: Row, task: str) -> str:
    """Returns what the configurations of a kind have in common."""
    if not task:
        return model_type(row)
    config = config_type(row).from_hf(reduced(row))
    values = {each.name: getattr(config, each.name) for each in fields(config)}
    shown = {name: value for name, value in values.items() if not any(word in name for word in _UNIMPORTANT)}
    sizes = {name for name, value in shown.items() if isinstance(value, int) and not isinstance(value, bool)}
    relations = {name: shown[name] in (config.hidden_dim, config.num_heads) for name in _RELATIVE if name in sizes}
    others = {name: value for name, value in shown.items() if name not in sizes}
    return json.dumps([model_type(row), task, others, relations, row.get("tensors")], default=str)


def write_case(kind: Kind, folder: Path) -> None:
    """Writes a small checkpoint with random weights, texts of different lengths, and what PyTorch answers."""
    folder.mkdir(parents=True)
    reference, content = _known(kind) if kind.task else _unknown(kind.row)
    reference.save_pretrained(folder)
    if further := kind.row.get("tensors"):
        file = folder / "model.safetensors"
        save_file({**load_file(file), **{name: torch.ones(1) for name in further}}, file, {"format": "pt"})
    labels = {key: getattr(reference.config, key) for key in ("id2label", "label2id")}
    content = {**content, **labels, "architectures": [type(reference).__name__], "model_type": model_type(kind.row)}
    content = {key: value for key, value in content.items() if key not in ("dtype", "torch_dtype")}
    (folder / "config.json").write_text(json.dumps(content))
    _write_answers(reference, folder)


def _known(kind: Kind) -> tuple[transformers.PreTrainedModel, JsonObject]:
    content, name = reduced(kind.row), model_type(kind.row)
    config = config_type(kind.row).from_hf(content)
    if transformers.AutoConfig.for_model(**{**content, "model_type": name}).hidden_size != config.hidden_dim:
        content = config.to_hf()  # transformers does not know the names of the sizes
    omitted = ("model_type", "torch_dtype", "id2label", "label2id", "num_labels")
    settings = {key: value for key, value in content.items() if key not in omitted}
    deviation = (1.2 if "d_kv" in content else 1.8) / config.hidden_dim**0.5  # T5's scores are not scaled
    reference = Case(kind.name, name, settings, std=deviation).reference(kind.task)
    if hasattr(reference, "final_logits_bias"):
        reference.final_logits_bias.zero_()  # as in the published models of BART
    return reference, content


def _unknown(row: Row) -> tuple[transformers.PreTrainedModel, JsonObject]:
    sizes = [key for key in ("hidden_size", "intermediate_size", "embedding_size") if key in row["config"]]
    content = {**row["config"], **{key: row["config"][key] // 16 for key in sizes}}
    content |= {"num_hidden_layers": 2, "vocab_size": 97}
    [name] = content["architectures"]
    torch.manual_seed(0)
    return getattr(transformers, name)(transformers.AutoConfig.for_model(**content)).eval(), content


def _write_answers(reference: transformers.PreTrainedModel, folder: Path) -> None:
    random, config = np.random.default_rng(0), reference.config
    padding, end = config.pad_token_id or 0, int(np.ravel(config.eos_token_id or 0)[0])  # some have several end tokens
    classifies = "SequenceClassification" in type(reference).__name__
    usual = np.setdiff1d(np.arange(5, config.vocab_size), [padding, end])
    reads = config.is_encoder_decoder and not classifies
    inputs = {}
    for prefix, lengths in (("", (9, 4, 6)), ("decoder_", (3, 7, 5)))[: 1 + reads]:
        mask = ragged(lengths, "right").astype("int64")
        ids = np.where(mask, random.choice(usual, mask.shape), padding)
        if classifies:  # BART reads the state of the end token
            ids[np.arange(len(ids)), mask.sum(axis=1) - 1] = end
        inputs |= {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask}
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    with torch.no_grad():
        outputs = reference(**tensors)
        named = {name: outputs[name].numpy() for name in HEADS if name in outputs}
        if "last_hidden_state" not in named and reference.base_model is not reference:
            named["last_hidden_state"] = reference.base_model(**tensors).last_hidden_state.numpy()
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "outputs.npz", **named)


def measure(folder: Path, task: str) -> dict[str, Any]:
    """Returns the errors of this package: of Keras against PyTorch, and of each format against Keras, as verified."""
    inputs, expected = ({**np.load(folder / f"{name}.npz")} for name in ("inputs", "outputs"))
    try:
        model = zoo.load(folder, task)
    except KerasformerError as error:
        return {"message": f"{type(error).__name__}: {error}"}
    known = {name: value.astype("int32") for name, value in inputs.items() if name in model.input_names}
    outputs = {name: np.asarray(value) for name, value in model.named(model(known)).items()}
    result = compare(inputs, outputs, expected)
    for format in ("litert", "onnx"):
        with tempfile.TemporaryDirectory() as out:
            try:
                result[format] = export(model, Path(out, "bundle"), format, progress=False).manifest.fidelity[
                    "max_error"
                ]
            except KerasformerError as error:
                result[format] = f"{type(error).__name__}: {error}"
    return result


def facts(row: Row) -> dict[str, Any]:
    """Returns what the shapes of a checkpoint tell, or why its configuration is refused.

    `blocks`, `rows` and `bytes` are the numbers of matrices that a recipe of four bits stores in LiteRT with a scale
    for each block of a row, with one for each row, and with eight bits.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(row["config"]))
        try:
            with abstract_model(folder, task_of(row)) as (model, _):
                layers = [layer for layer in model._flatten_layers() if isinstance(layer, Embedding)]
                tables = {variable.path for layer in layers for variable in layer.variables}
                matrices = [variable for variable in model.variables if variable.path not in tables]
                shapes = [(variable.path, tuple(variable.shape)[::-1]) for variable in matrices]
            forms = [form_of(recipe("int4"), path, shape, table=False) for path, shape in shapes]
            counts = Counter(
                "bytes" if form.storage == "int8" else "rows" if form.block is None else "blocks"
                for form in forms
                if form.integer
            )
            return {"parameters": costs(folder, task_of(row)).parameters, **counts}
        except KerasformerError as error:
            return {"message": f"{type(error).__name__}: {error}"}


class Peer:
    """A process that exports with another library.

    Args:
        name: Name of the library.
        python: Interpreter of its environment.
        seconds: Time for an export.
    """

    def __init__(self, name: str, python: Path, seconds: float) -> None:
        command = [str(python), "-P", str(Path(__file__).with_name("peer_exporters.py")), name, str(seconds)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **pipes, text=True, bufsize=1, env=installed_package())

    def export(self, folder: Path) -> dict[str, Any]:
        """Returns the result of a checkpoint."""
        print(folder.resolve(), file=self._process.stdin)
        result: JsonObject = json.loads(next(iter(self._process.stdout or ())))
        return result

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def run(options: argparse.Namespace) -> None:
    """Measures what the results lack, and writes them after each library and kind."""
    results: JsonObject = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results |= {"date": str(datetime.date.today()), "seconds": options.seconds}
    results["versions"] = {OURS: {name: version(name) for name in ("keras", "transformers", "torch")}}
    peers = {}
    for name, requirements in REQUIREMENTS.items():
        python = environments.find(name, _library(requirements), options.envs)
        if python is None:
            raise SystemExit(f"{name} is not installed. Run: python -m benchmarks.peer_coverage setup {name}")
        results["versions"][name] = _versions(python, [requirement.partition("==")[0] for requirement in requirements])
        peers[name] = Peer(name, python, options.seconds)
    known = {} if OURS in options.again else results.get("checkpoints", {})
    results["checkpoints"] = {name: known.get(name) or facts(row) for name, row in hundred().items()}
    for kind, result, lacking in _missing(results, options.again):
        if not (folder := options.folder / kind.name.replace("/", "--")).joinpath("outputs.npz").exists():
            shutil.rmtree(folder, ignore_errors=True)
            write_case(kind, folder)
        for name in lacking:
            result[name] = measure(folder, kind.task) if name == OURS else peers[name].export(folder)
            print(f"{kind.name}: {name}: {result[name]}", flush=True)
            _write(results)
    for peer in peers.values():
        peer.close()
    _write(results)


def _missing(results: JsonObject, again: list[str]) -> Iterator[tuple[Kind, JsonObject, list[str]]]:
    """Yields each kind with its entry in the results, and the libraries that it lacks."""
    done = results.get("kinds", {})
    results["kinds"] = {}
    for kind in kinds():
        entry = {**done.get(kind.name, {}), "task": kind.task, "members": kind.members}
        results["kinds"][kind.name] = entry
    for kind in kinds():
        entry = results["kinds"][kind.name]
        libraries = [name for name in (OURS, *PEERS) if name != OURS or kind.task]
        yield kind, entry, [name for name in libraries if name not in entry or name in again]


def _write(results: JsonObject) -> None:
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _versions(python: Path, requirements: list[str]) -> dict[str, str]:
    names = dict.fromkeys(["torch", *(name.partition("[")[0] for name in requirements)])
    code = "import json, sys; from importlib.metadata import version; "
    code += "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    found: dict[str, str] = json.loads(subprocess.check_output([str(python), "-c", code, *names], text=True))
    return found


def _library(requirements: tuple[str, ...]) -> Library:
    return Library(requirements, "", {}, {})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_coverage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="create the environments")
    setup.add_argument("names", nargs="*", choices=[*REQUIREMENTS, []], help=", ".join(REQUIREMENTS))
    measured = commands.add_parser("run", help="measure what is missing")
    measured.add_argument("--again", nargs="*", default=[], choices=[OURS, *PEERS], help="libraries to measure again")
    measured.add_argument("--seconds", type=float, default=SECONDS, help="time for the export of a model")
    measured.add_argument("--folder", type=Path, default=Path("benchmark-models/coverage"), help="their folder")
    for command in (setup, measured):
        command.add_argument("--envs", type=Path, default=environments.default_folder(), help="of the environments")
    options = parser.parse_args()
    if options.command == "run":
        run(options)
        return
    for name in options.names or REQUIREMENTS:
        print(f"{name}: {environments.setup(name, _library(REQUIREMENTS[name]), options.envs)}")


if __name__ == "__main__":
    main()
