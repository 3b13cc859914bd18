"""What 8 and 4 bits cost real models: `python -m benchmarks.cost CHECKPOINTS DATA OUT`.

    python -m benchmarks.cost CHECKPOINTS DATA OUT --llama-cpp llama.cpp/build/bin --optimum MINILM_INT8.onnx
    python -m benchmarks.cost CHECKPOINTS DATA OUT --models smollm2 --recipes int8 int4 --fresh --bundles MY_BUNDLE
    python -m benchmarks.cost CHECKPOINTS DATA OUT --models smollm2 --chat first held_out

CHECKPOINTS has the folders `smollm2` (SmolLM2-135M-Instruct or another chat model), `minilm` (all-MiniLM-L6-v2) and
`translator` (`OUT/model` of `benchmarks.translator train`); the presets ship with the package. DATA has the texts:
`wikitext2_valid_test/wiki.test.raw.gz`; `stories-dev.jsonl` and `summaries-dev.jsonl`, which scripts in
examples/presets write; `mrpc/msr-para-test.tsv.gz`; `scitldr_a/dev.jsonl.gz`; `sst2/glue/dev.tsv.gz`; and
`multi30k/test_2016_flickr.{en,de}.gz`. A model without checkpoint or texts is left out, and named.

Bundles are exported to OUT unless they are there, whatever their fidelity is, and run in their runtimes. What was
measured in float32, embeddings and answers are kept there, too, for the same bundle and the same texts. Decoders read
the first half of each window as a prompt, and the rest one token at a time; llama.cpp is compared with its own
float32 by `llama-perplexity --kl-divergence`, which scores the same tokens.

KL is the mean divergence from float32 of the distributions of the next token, in nats, beside its 99th percentile;
same top token, the share of tokens with the same most probable one. Changes from float32 are in parentheses. With
`--chat`, greedy answers to the prompts of `chat_prompts.json` are printed instead: an answer is the same if its text
is, up to 48 tokens, and the loss at the first other token is how much the model in float32 prefers its own, in nats.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cost import chat, llama_cpp
from benchmarks.cost.bundles import NEAREST, RUNTIMES, Settings
from benchmarks.cost.embeddings import Embeddings
from benchmarks.cost.llama_cpp import LlamaCpp
from benchmarks.cost.models import MODELS, Texts
from benchmarks.cost.next_tokens import Comparison
from kerasformer.errors import InputError
from kerasformer.export.quantization.recipes import RECIPES


def main() -> None:
    """Runs the command line."""
    options = _arguments()
    settings = Settings(options.out, options.recipes, options.formats, options.fresh, options.threads, options.bundles)
    texts = Texts(options.data, options.text, options.rows, options.length, options.limit, options.threads)
    for name in options.models:
        model = MODELS[name]
        source = name if model.preset else options.checkpoints / name
        if not model.preset and not source.exists():
            print(f"\n{name} is left out: there is no {source}", file=sys.stderr)
            continue
        peer = _llama_cpp(options, name, source) if name == "smollm2" else None
        reference = settings.reference(name, source, **model.options)
        candidates = settings.candidates(name, source, **model.options)
        if options.chat:
            found = list(candidates)
            for conversations in options.chat:
                print(f"\n## {name}, {conversations}")
                chosen = chat.read_conversations(options.prompts, conversations)
                chat.report(reference, found, chosen, options.threads, peer, options.llama_cpp_types)
            continue
        try:
            measurement = model.measurement(reference, texts)
        except (FileNotFoundError, InputError) as error:
            print(f"\n{name} is left out: {error}", file=sys.stderr)
            continue
        columns = ("MB", *measurement.columns)
        print(f"\n| {name} | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}", flush=True)
        for candidate in (reference, *candidates):
            _print_row(candidate.title, candidate.megabytes, measurement.cells(candidate))
        if peer is not None and isinstance(measurement, Comparison):
            _print_types(peer, options.llama_cpp_types, texts)
        if options.optimum is not None and isinstance(measurement, Embeddings):
            size = options.optimum.stat().st_size / 1e6
            _print_row("optimum, ONNX Runtime int8", size, measurement.cells_of_optimum(options.optimum))


def _print_row(title: str, megabytes: float, cells: Sequence[str]) -> None:
    print(f"| {title} | {megabytes:.1f} | {' | '.join(cells)} |", flush=True)


def _print_types(peer: LlamaCpp, kinds: Sequence[str], texts: Texts) -> None:
    """Prints the rows of llama.cpp."""
    text, plain = texts.read(), None
    for kind in (llama_cpp.REFERENCE, *kinds):
        figures = peer.divergence(kind, text, texts.length, texts.rows)
        plain = plain or figures
        _print_row(f"llama.cpp `{kind}`", peer.megabytes(kind), figures.cells(plain))


def _llama_cpp(options: argparse.Namespace, name: str, source: Path) -> LlamaCpp | None:
    if options.llama_cpp is None:
        return None
    converter = options.converter or options.llama_cpp.parents[1] / "convert_hf_to_gguf.py"
    return LlamaCpp(options.llama_cpp, converter, source, options.out / name / "gguf", options.threads)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, help="folder of the checkpoints")
    parser.add_argument("data", type=Path, help="folder of the texts")
    parser.add_argument("out", type=Path, help="folder of the bundles, which are kept")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="all by default")
    rounded = f"{', '.join(RECIPES)}; with {NEAREST} after the name, rounded to the nearest value"
    parser.add_argument("--recipes", nargs="*", default=["int8", "int8_weights", "int4_mixed", "int4"], help=rounded)
    parser.add_argument("--formats", nargs="*", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--bundles", nargs="*", type=Path, default=[], help="further bundles of the model")
    parser.add_argument("--fresh", action="store_true", help="export the quantized bundles again")
    parser.add_argument("--text", type=Path, help="another text for smollm2, plain or compressed by gzip")
    parser.add_argument("--rows", type=int, default=8, help="windows of a text")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--limit", type=int, help="texts of the other tasks; all by default")
    parser.add_argument("--threads", type=int, help="CPU threads; by default those of the runtimes")
    parser.add_argument("--chat", nargs="+", metavar="SET", help="compare answers to sets of prompts instead")
    parser.add_argument("--prompts", type=Path, default=chat.PROMPTS, help="file of the sets")
    parser.add_argument("--llama-cpp", type=Path, help="folder of the programs of llama.cpp")
    parser.add_argument("--llama-cpp-types", nargs="+", default=llama_cpp.TYPES)
    parser.add_argument("--converter", type=Path, help="its convert_hf_to_gguf.py; above build/bin by default")
    parser.add_argument("--optimum", type=Path, help="ONNX file of minilm by optimum")
    return parser.parse_args()


if __name__ == "__main__":
    main()
