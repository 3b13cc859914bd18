"""What 8 and 4 bits cost real models: `python -m benchmarks.cost CHECKPOINTS DATA OUT [MODEL…]`.

    python -m benchmarks.cost CHECKPOINTS DATA OUT smollm2 --llama-cpp llama.cpp/build/bin
    python -m benchmarks.cost CHECKPOINTS DATA OUT smollm2 --recipes int8 int4 --fresh --bundles MY_BUNDLE
    python -m benchmarks.cost CHECKPOINTS DATA OUT smollm2 --chat first held_out --llama-cpp llama.cpp/build/bin
"""

from __future__ import annotations

import argparse
from pathlib import Path

import kerasformer as kf
from benchmarks.cost import chat, llama_cpp, next_tokens
from benchmarks.cost.bundles import RUNTIMES, Settings
from benchmarks.cost.llama_cpp import LlamaCpp
from kerasformer.export.quantization.recipes import RECIPES


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, help="folder of the bundles, which are kept")
    parser.add_argument("models", nargs="*", default=["smollm2"])
    parser.add_argument("--text", type=Path)
    parser.add_argument("--rows", type=int, default=8, help="windows of the text")
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--chat", nargs="+", metavar="SET", help="compare chat answers instead")
    parser.add_argument("--prompts", type=Path, default=chat.PROMPTS)
    parser.add_argument("--recipes", nargs="*", choices=RECIPES, default=["int8", "int8_weights", "int4"])
    parser.add_argument("--formats", nargs="*", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--bundles", nargs="*", type=Path, default=[], help="further bundles to compare")
    parser.add_argument("--fresh", action="store_true", help="export the quantized bundles again")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--llama-cpp", type=Path, help="folder of the programs of llama.cpp")
    parser.add_argument("--llama-cpp-types", nargs="+", default=llama_cpp.TYPES)
    parser.add_argument("--converter", type=Path, help="its convert_hf_to_gguf.py; beside the build folder by default")
    options = parser.parse_args()
    settings = Settings(
        options.out, options.recipes, options.formats, options.fresh, options.threads, options.bundles
    )
    for model in options.models:
        source = options.checkpoints / model
        peer = None
        if options.llama_cpp:
            converter = options.converter or options.llama_cpp.parents[1] / "convert_hf_to_gguf.py"
            peer = LlamaCpp(options.llama_cpp, converter, source, options.out / model / "gguf", options.threads)
        reference = settings.reference(model, source)
        if options.chat:
            for name in options.chat:
                conversations = chat.read_conversations(options.prompts, name)
                print(f"\n## {model}, {name}")
                candidates = list(settings.candidates(model, source))
                chat.report(reference, candidates, conversations, options.threads, peer, options.llama_cpp_types)
            continue
        path = options.text or options.data / "wikitext2_valid_test/wiki.test.raw.gz"
        text = next_tokens.read_text(path, 12 * options.length * options.rows)
        rows = next_tokens.windows(kf.tokenizer(reference.folder), text, options.length, options.rows)
        comparison = next_tokens.Comparison("text-generation", reference, rows, options.threads)
        plain = comparison.plain.perplexity
        print(f"\n| {model} | {' | '.join(next_tokens.COLUMNS)} |\n|---|{'--:|' * len(next_tokens.COLUMNS)}", flush=True)
        print(comparison.plain.cells(reference.title, reference.megabytes, plain), flush=True)
        for candidate in settings.candidates(model, source):
            print(comparison.of(candidate).cells(candidate.title, candidate.megabytes, plain), flush=True)
        if peer:
            for kind in (llama_cpp.REFERENCE, *options.llama_cpp_types):
                figures = peer.divergence(kind, text, options.length, options.rows)
                print(figures.cells(f"llama.cpp `{kind}`", peer.megabytes(kind), plain), flush=True)


if __name__ == "__main__":
    main()
