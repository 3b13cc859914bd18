"""Tokens that remain of a vocabulary: `python -m benchmarks.vocabularies TOKENIZER… --texts FILE… --others FILE…`.

Each tokenizer is pruned for the texts with different options. The other texts show what this costs for texts that were
not counted: how many keep all of their tokens, and how many more tokens they have together.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kerasformer.evaluation import read_examples
from kerasformer.tokenization import Tokenizer, load_tokenizer
from kerasformer.tokenization.pruning import prune_tokenizer

OPTIONS = ({}, {"min_count": 2}, {"min_count": 5}, {"coverage": 0.99})


def texts_of(paths: Sequence[Path]) -> list[str]:
    """Returns the texts of files."""
    return [example.text for path in paths for example in read_examples(path)]


def tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """Returns the tokens of each text."""
    return [tokenizer.tokenize(text) for text in texts]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizers", nargs="+", help="folders of tokenizers")
    parser.add_argument("--texts", nargs="+", type=Path, required=True, help="files of texts to count")
    parser.add_argument("--others", nargs="+", type=Path, required=True, help="files of other texts")
    arguments = parser.parse_args()
    texts, others = texts_of(arguments.texts), texts_of(arguments.others)
    columns = ("tokenizer", "options", "tokens", "kept", "other texts unchanged", "more tokens in them")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for source in arguments.tokenizers:
        tokenizer = load_tokenizer(source)
        before = tokens_of(tokenizer, others)
        for options in OPTIONS:
            pruned = prune_tokenizer(tokenizer, texts, **options)
            after = tokens_of(pruned.tokenizer, others)
            unchanged = sum(a == b for a, b in zip(before, after, strict=True)) / len(others)
            growth = sum(map(len, after)) / sum(map(len, before)) - 1
            named = ", ".join(f"`{name}={value}`" for name, value in options.items()) or "–"
            sizes = f"{tokenizer.vocab_size:,} | {len(pruned.ids):,}"
            print(f"| {Path(source).name} | {named} | {sizes} | {unchanged:.1%} | {growth:.2%} |", flush=True)


if __name__ == "__main__":
    main()
