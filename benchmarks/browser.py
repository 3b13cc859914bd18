"""Speed in a browser: the engines of our web page, and transformers.js, in the same headless Chromium.

    python -m benchmarks.browser minilm t5 smollm2 --rounds 5
    python -m benchmarks.browser tiny-t5               # to try the script

Each model is exported by kerasformer for both engines of the page, and by optimum for transformers.js, with its weights
quantized to 8 bits as in published conversions. All candidates are open at the same time, each in a worker (ours) or in
the page (transformers.js), and answer the same text in turn. As in our page, ONNX Runtime Web is also measured with one
thread; transformers.js has as many threads as it takes by default. Needs the environments `optimum`, `node`, `web` and
`chromium` of tests/foreign/setup.sh. Folders of an earlier run are used again.

The table has the best and the median time of an answer, and the ratio of the best times to that of transformers.js q8.
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
from pathlib import Path
from typing import Any

from benchmarks.shapes import SHAPES, Shape, write_checkpoint
from kerasformer import zoo
from kerasformer.export import export, recipe
from kerasformer.web.site import build, check_site
from tests.foreign.environments import need
from tests.web.pages import Page, chromium, served

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

_OPEN = """
async (ours, peer, task, peerThreads) => {
  const { Engine } = await import("/engine.js");
  globalThis.candidates = {};
  for (const { name, engine, base, task, threads } of ours) {
    const opened = new Engine();
    await opened.load({ base: new URL(base, location.href).href, task, engine, threads }, () => {});
    candidates[name] = async (text, tokens) => {
      const settings = { do_sample: false, num_beams: 1, max_new_tokens: tokens, min_new_tokens: tokens };
      const { figures } = await opened.run(text, tokens ? settings : {}, null);
      if (tokens && figures.tokens !== tokens) throw new Error(`${name}: ${figures.tokens} tokens`);
      return figures.prompt_tokens;
    };
  }
  if (!peer.length) return;
  const { env, pipeline } = await import("/" + LIBRARY);
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = "/";
  env.useBrowserCache = env.useWasmCache = false;
  env.backends.onnx.wasm.wasmPaths = "/npm/onnxruntime-web/dist/";
  if (peerThreads) env.backends.onnx.wasm.numThreads = peerThreads;
  for (const dtype of peer) {
    const pipe = await pipeline(task, "peer", { dtype, device: "wasm" });
    candidates[`transformers.js ${dtype}`] = async (text, tokens) => {
      const settings = { do_sample: false, max_new_tokens: tokens, min_new_tokens: tokens };
      if (tokens) await pipe(text, settings);
      else (await pipe(text, { pooling: "mean", normalize: true })).tolist();
    };
  }
}
""".replace("LIBRARY", json.dumps(_LIBRARY))

_ANSWER = """
async (name, text, tokens) => {
  const start = performance.now();
  await candidates[name](text, tokens);
  return performance.now() - start;
}
"""


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


def prepare(name: str, home: Path, formats: list[str]) -> Path:
    """Writes the checkpoint, all bundles and the site; returns the folder to serve."""
    shape, folder = SHAPES[name], home / name
    checkpoint, kind = folder / "checkpoint", kind_of(SHAPES[name])
    if not checkpoint.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(shape, checkpoint)
        if shape.package is None:
            write_tokenizer(shape, checkpoint)
    bundles = []
    settings: dict[str, Any] = {"capacity": 256} if shape.generates else {}
    for format in formats:
        bundle = folder / format
        if not bundle.is_dir():
            print(f"{name}: export for {format}", file=sys.stderr, flush=True)
            # With random weights, the best logit is hardly larger than the next.
            chosen = dataclasses.replace(recipe("int8"), min_agreement=0.0, tolerance=10.0)
            target = "litert-web" if format == "tflite" else None
            export(str(checkpoint), bundle, format, chosen, target=target, progress=False, **settings)
        bundles.append(f"{name}={bundle}")
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
    return site


def measure(page: Page, site: Path, shape: Shape, options: argparse.Namespace) -> dict[str, list[float]]:
    """Returns the times of all answers in milliseconds, by candidate."""
    [model] = check_site(site)["models"]
    task, tokens = _TASKS[kind_of(shape)], TOKENS if shape.generates else 0
    titles = {"litert": "LiteRT.js", "onnx": "ONNX Runtime Web"}
    ours = [
        {
            "name": f"{titles[each['engine']]} {each['recipe']}" + (", one thread" if threads == 1 else ""),
            "engine": each["engine"],
            "base": each["base"],
            "task": model["task"],
            "threads": threads,
        }
        for each in model["engines"]
        for threads in sorted({options.threads, 1 if each["engine"] == "onnx" else options.threads}, reverse=True)
    ]
    with served(site) as url:
        page.open(f"{url}bench.html")
        page.call(_OPEN, ours, options.peer, task, options.peer_threads)
        names = page.call("() => Object.keys(candidates)")
        times: dict[str, list[float]] = {each: [] for each in names}
        for turn in range(options.rounds + 1):
            for each in names:
                for _ in range(1 if shape.generates else 8):
                    time = page.call(_ANSWER, each, TEXT * options.texts, tokens)
                    if turn:
                        times[each].append(time)
        page.open("about:blank")
    return times


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="+", choices=[name for name, shape in SHAPES.items() if shape.kind.startswith(tuple(_KINDS))]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 4))
    parser.add_argument("--peer-threads", type=int, help="threads of transformers.js; half of the cores by default")
    parser.add_argument("--texts", type=int, default=2, help="number of repetitions of a sentence of 21 words")
    parser.add_argument("--peer", nargs="*", default=["q8"], help="precisions of transformers.js: q8, fp32")
    parser.add_argument("--formats", nargs="+", default=["tflite", "onnx"], choices=["tflite", "onnx"])
    parser.add_argument("--folder", type=Path, default=Path("browser-benchmark"))
    options = parser.parse_args()
    sites = {name: prepare(name, options.folder.resolve(), options.formats) for name in options.models}
    print("| model | candidate | best, ms | median, ms | transformers.js q8 takes |\n| --- | --- | --: | --: | --: |")
    for name, site in sites.items():
        with chromium() as page:
            times = measure(page, site, SHAPES[name], options)
        base = min(times.get("transformers.js q8") or [float("nan")])
        for candidate, each in times.items():
            best = min(each)
            cells = [
                SHAPES[name].title,
                candidate,
                f"{best:.1f}",
                f"{statistics.median(each):.1f}",
                f"{base / best:.2f} ×",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
