"""Speed in a browser: the engines of our web page, and transformers.js, in the same headless Chromium.

    python -m benchmarks.browser minilm t5 smollm2 --rounds 5
    python -m benchmarks.browser tiny-t5                  # to try the script

Each model is exported by kerasformer for the engines of the page (TFLite with the target litert-web, ONNX with both
profiles), and by optimum for transformers.js, with its weights quantized to 8 bits as in published conversions. All
candidates are open at the same time, each in a worker of a page that is isolated, so that threads work, and answer the
same text in turn with the same number of generated tokens. Every candidate is measured with each number of threads of
`--threads`, transformers.js also: by itself, it takes half of the processors. Answers of our engines are first compared
with the references of their bundles, as in our page. Needs the environments `optimum`, `node`, `web` and `chromium` of
tests/foreign/setup.sh. Folders of an earlier run are used again.

The table has the best and the median time of an answer, the least processor time of all threads of the browser during
an answer (which other programs hardly change, but which counts threads that wait for each other), and the ratio of the
best times to the best one of transformers.js q8 with any number of threads.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shapes import SHAPES, Shape, export_bundles, write_checkpoint
from kerasformer import zoo
from kerasformer.tools.bench.rounds import in_turns
from kerasformer.tools.web.site import build, check_site
from tests.foreign.environments import need
from tests.tools.web.sites import Browser, browser, served_folder

TEXT = "The river runs north past old mills and quiet farms before it reaches a small town where people still meet. "
TOKENS = 32
"""Number of generated tokens."""
_LIBRARY = "npm/@huggingface/transformers/dist/transformers.min.js"

_OPTIMUM = """
import sys
from pathlib import Path
import onnx, optimum.onnxruntime as library
from onnxruntime.quantization import QuantType, quantize_dynamic
source, folder, kind = sys.argv[1:]
onnx_folder = Path(folder) / "onnx"
settings = {"use_merged": True} if "Seq2Seq" in kind else {}
getattr(library, kind).from_pretrained(source, export=True, **settings).save_pretrained(onnx_folder)
for path in sorted(onnx_folder.glob("*.onnx")):
    options = {"DefaultTensorType": onnx.TensorProto.FLOAT, "EnableSubgraph": True, "MatMulConstBOnly": True}
    target = path.with_name(f"{path.stem}_quantized.onnx")
    quantize_dynamic(path, target, weight_type=QuantType.QInt8, extra_options=options)
"""
_KINDS = {"Llama": "CausalLM", "GPT2": "CausalLM", "T5": "Seq2SeqLM", "Bert": "FeatureExtraction"}
_TASKS = {"CausalLM": "text-generation", "Seq2SeqLM": "text2text-generation", "FeatureExtraction": "feature-extraction"}

_OURS = """
async ({ name, engine, base, task, threads, references }) => {
  const { Engine } = await import("/engine.js");
  const opened = new Engine();
  await opened.load({ base: new URL(base, location.href).href, task, engine, threads }, () => {});
  globalThis.candidates ??= {};
  candidates[name] = async (text, tokens) => {
    const settings = { do_sample: false, num_beams: 1, max_new_tokens: tokens, min_new_tokens: tokens };
    const { figures } = await opened.run(text, tokens ? settings : {}, null);
    if (tokens && figures.tokens !== tokens) throw new Error(`${name}: ${figures.tokens} tokens`);
    return figures.memory_bytes;
  };
  return references && opened.check(await (await fetch(references)).json());
}
"""

_PEER_WORKER = """
import { env, pipeline } from "/LIBRARY";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = "/";
env.useBrowserCache = env.useWasmCache = false;
env.backends.onnx.wasm.wasmPaths = "/npm/onnxruntime-web/dist/";
let pipe = null;
const DO = {
  async open({ task, threads }) {
    env.backends.onnx.wasm.numThreads = threads;
    pipe = await pipeline(task, "peer", { dtype: "q8", device: "wasm" });
  },
  async run({ text, tokens }) {
    const settings = { do_sample: false, max_new_tokens: tokens, min_new_tokens: tokens };
    if (tokens) await pipe(text, settings);
    else (await pipe(text, { pooling: "mean", normalize: true })).tolist();
  },
};
onmessage = async ({ data: { name, ...request } }) => {
  const error = await DO[name](request).then(() => "", String);
  postMessage(error);
};
""".replace("LIBRARY", _LIBRARY)

_PEER = """
async ({ name, task, threads }) => {
  const worker = new Worker("/peer.js", { type: "module" });
  const ask = (request) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data ? reject(new Error(`${name}: ${data}`)) : resolve());
    worker.onerror = ({ message }) => reject(new Error(`${name}: ${message}`));
    worker.postMessage(request);
  });
  await ask({ name: "open", task, threads });
  globalThis.candidates ??= {};
  candidates[name] = (text, tokens) => ask({ name: "run", text, tokens });
  return null;
}
"""

_ANSWER = """
async (name, text, tokens) => {
  const start = performance.now();
  const memory = await candidates[name](text, tokens);
  return [performance.now() - start, memory ?? null];
}
"""

_FORMATS: dict[str, dict[str, str]] = {
    "tflite": {"format": "tflite", "target": "litert-web"},
    "ort": {"format": "onnx", "profile": "ort"},
    "portable": {"format": "onnx", "profile": "portable"},
}


def kind_of(shape: Shape) -> str:
    """Returns the end of the name of optimum's class."""
    return next(kind for name, kind in _KINDS.items() if shape.kind.startswith(name))


def write_tokenizer(shape: Shape, folder: Path) -> None:
    """Gives a checkpoint with random weights the tokenizer of a preset, with as many tokens as the model has.

    The additional tokens never occur in a text; they are only decoded.
    """
    preset = Path(zoo.__file__).parents[1] / "zoo" / "presets"
    preset = next(
        path for path in preset.iterdir() if path.name == ("summarizer-t5" if "T5" in shape.kind else "story-gpt2")
    )
    for path in preset.glob("*token*.json"):
        shutil.copyfile(path, folder / path.name)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    vocabulary = content["model"]["vocab"]
    start = max(len(vocabulary), 1 + max((token["id"] for token in content["added_tokens"]), default=0))
    for index in range(start, size):
        if isinstance(vocabulary, dict):
            vocabulary[f"unused{index}"] = index
        else:
            vocabulary.append([f"▁unused{index}", -1e3])
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def prepare(name: str, home: Path) -> Path:
    """Writes the checkpoint, all bundles and the site; returns the folder to serve."""
    shape, folder = SHAPES[name], home / name
    checkpoint, kind = folder / "checkpoint", kind_of(SHAPES[name])
    if not checkpoint.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(shape, checkpoint)
        if shape.package is None:
            write_tokenizer(shape, checkpoint)
    settings: dict[str, Any] = {"capacity": 256} if shape.generates else {}
    variants = {f"{name}-int8": {"quantize": "int8", **format, **settings} for name, format in _FORMATS.items()}
    bundles = [f"{name}={bundle}" for bundle in export_bundles(checkpoint, folder, variants)]
    peer = folder / "peer"
    if not (peer / "onnx").is_dir():
        print(f"{name}: export by optimum", file=sys.stderr, flush=True)
        peer.mkdir(exist_ok=True)
        command = [need("optimum"), "-c", _OPTIMUM, checkpoint, peer, f"ORTModelFor{kind}"]
        subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "PYTHONPATH": ""})
        for path in [*checkpoint.glob("*token*.json"), *(peer / "onnx").glob("*.json")]:
            shutil.copyfile(path, peer / path.name)
    site = build(bundles, folder / "site", runtime_files=need("web").parent, overwrite=True)
    for link, target in {"npm": need("node"), "peer": peer.resolve()}.items():
        (site / link).unlink(missing_ok=True)
        (site / link).symlink_to(target)
    (site / "bench.html").write_text("<!doctype html><title>benchmark</title>", encoding="utf-8")
    (site / "peer.js").write_text(_PEER_WORKER, encoding="utf-8")
    return site


@dataclasses.dataclass
class Candidate:
    """An engine with a number of threads, and what was measured of it.

    Attributes:
        name: Name in the tables.
        threads: Number of threads.
        entry: The engine in `site.json`; `None` for transformers.js.
        verdict: How its answers differ from the references; `None` for transformers.js.
        memory: Bytes of its WebAssembly memory; `None` for transformers.js, which does not report them.
        samples: Time of each answer and processor time of all threads of the browser, in milliseconds.
    """

    name: str
    threads: int
    entry: dict[str, Any] | None
    verdict: dict[str, Any] | None = None
    memory: int | None = None
    samples: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.name}, {self.threads}"

    @property
    def best(self) -> float:
        """Time of the fastest answer in milliseconds."""
        return min(time for time, _ in self.samples)

    def cells(self, peer: float) -> list[str]:
        """Returns the row of the table; `peer` is the best time of transformers.js."""
        agreement, memory = "", "" if self.memory is None else f"{self.memory / 1e6:.0f}"
        if self.verdict is not None:
            agreement = f"{self.verdict['answers']} {'agree' if self.verdict['agrees'] else 'DIFFER'}"
        times, processor = zip(*self.samples, strict=True)
        figures = [f"{time:.1f}" for time in (self.best, statistics.median(times), min(processor))]
        return [self.name, str(self.threads), agreement, memory, *figures, f"{peer / self.best:.2f} ×"]


def candidates_of(site: Path, options: argparse.Namespace) -> list[Candidate]:
    [model] = check_site(site)["models"]
    titles = {"litert": "LiteRT.js", "onnx": "ONNX Runtime Web"}
    entries: dict[str, dict[str, Any] | None] = {"transformers.js q8": None}
    for entry in model["engines"]:
        entries[" ".join(filter(None, (titles[entry["engine"]], entry["recipe"], entry["profile"])))] = entry
    return [Candidate(name, threads, entry) for name, entry in entries.items() for threads in options.threads]


def measured(page: Browser, url: str, site: Path, shape: Shape, options: argparse.Namespace) -> list[Candidate]:
    """Opens all candidates, compares answers of ours with their references, and measures all in turn."""
    [model] = check_site(site)["models"]
    tokens = TOKENS if shape.generates else 0
    page.open(f"{url}bench.html")
    candidates = candidates_of(site, options)
    for each in candidates:
        request: dict[str, Any] = {"name": each.key, "threads": each.threads}
        if each.entry is None:
            page.call(_PEER, {**request, "task": _TASKS[kind_of(shape)]})
        else:
            names = ("engine", "base", "references")
            request |= {"task": model["task"], **{name: each.entry[name] for name in names}}
            each.verdict = page.call(_OURS, request)

    def answers(candidate: Candidate) -> list[tuple[float, float]]:
        samples = []
        for _ in range(1 if shape.generates else 8):
            before = processor_time(os.getpid())
            time, candidate.memory = page.call(_ANSWER, candidate.key, TEXT * options.texts, tokens)
            samples.append((time, processor_time(os.getpid()) - before))
        return samples

    rounds = in_turns({each.key: partial(answers, each) for each in candidates}, options.rounds + 1)
    for each in candidates:
        each.samples = [sample for samples in rounds[each.key][1:] for sample in samples]
    page.open("about:blank")
    return candidates


def processor_time(parent: int) -> float:
    """Returns the processor time of the descendants of a process, all threads that live, in milliseconds (Linux)."""
    nanoseconds, waiting = 0, [parent]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*"):
            try:
                children = [int(number) for number in (task / "children").read_text().split()]
                waiting += children
                if int(task.parent.parent.name) != parent:
                    nanoseconds += int((task / "schedstat").read_text().split()[0])
            except OSError:  # the thread has ended
                continue
    return nanoseconds / 1e6


def print_speeds(title: str, candidates: list[Candidate]) -> None:
    names = "model, candidate, threads, answers, MB, best ms, median ms, processor ms, transformers.js q8 takes"
    print(f"| {names.replace(', ', ' | ')} |")
    print("| --- | --- | --: | --- | --: | --: | --: | --: | --: |")
    peer = min(each.best for each in candidates if each.entry is None)
    for each in candidates:
        print(f"| {title} | {' | '.join(each.cells(peer))} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="+", choices=[name for name, shape in SHAPES.items() if shape.kind.startswith(tuple(_KINDS))]
    )
    parser.add_argument("--rounds", type=int, default=5)
    cores = min(os.cpu_count() or 1, 4)
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({cores, 1}, reverse=True))
    parser.add_argument("--texts", type=int, default=2, help="number of repetitions of a sentence of 21 words")
    parser.add_argument("--folder", type=Path, default=Path("browser-benchmark"))
    options = parser.parse_args()
    home = options.folder.resolve()
    sites = {name: prepare(name, home) for name in options.models}
    for name, site in sites.items():
        with browser() as page, served_folder(site) as url:
            candidates = measured(page, url, site, SHAPES[name], options)
        print_speeds(SHAPES[name].title, candidates)


if __name__ == "__main__":
    main()
