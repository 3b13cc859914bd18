"""Vocabularies of published models, which are not part of the repository, as folders with `tokenizer.json`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from kerasformer.tokenization import Tokenizer
from tests.mobile.tokenizer_vectors import write_tokenizer
from tests.mobile.vectors import FOLDER

_WRITTEN: dict[str, tuple[str, dict[str, str], dict[str, object]]] = {
    "bert-uncased": ("bert", {"vocab.txt": "bert/bert_base_uncased_vocab.txt.gz"}, {}),
    "bert-cased": ("bert", {"vocab.txt": "bert/bert_base_cased_vocab.txt.gz"}, {"do_lower_case": False}),
    "gpt2": ("gpt2", {"encoder.json": "gpt2/encoder.json.gz", "vocab.bpe": "gpt2/vocab.bpe.gz"}, {}),
    "roberta": ("roberta", {"tokenizer.json": "roberta-base/tokenizer.json.gz"}, {}),
    "qwen2": ("qwen2", {"tokenizer.json": "qwen2/tokenizer.json.gz"}, {}),
    "llama3": ("llama", {"tokenizer.json": "llama-bpe/tokenizer.json.gz"}, {}),
    "phi3": ("phi3", {"tokenizer.json": "phi-3/tokenizer.json.gz"}, {}),
    "t5": ("t5", {"spiece.model": "t5-base/spiece.model"}, {}),
    "pegasus": ("pegasus", {"tokenizer.json": "pegasus/tokenizer.json.gz"}, {}),
    "albert": ("albert", {"spiece.model": "albert-style-NOT-google/30k-clean.model"}, {}),
    "marian": (
        "marian",
        {
            "source.spm": "marian-fr-en/source.spm",
            "target.spm": "marian-fr-en/target.spm",
            "vocab.json": "marian-fr-en/vocab.json.gz",
        },
        {},
    ),
    "openai-gpt": (
        "openai-gpt",
        {"vocab.json": "openai-gpt/vocab.json.gz", "merges.txt": "openai-gpt/merges.txt.gz"},
        {},
    ),
}
"""Model type, files and `tokenizer_config.json` of each."""
_OF_TESTS = ("xlm-roberta", "nllb", "gemma", "deberta", "neox", "word-level", "byt5")
"""Families of which only the vectors have a vocabulary."""


def write(data: Path, folder: Path) -> None:
    """Writes a folder for each family.

    Args:
        data: Folder with the files above.
        folder: Where the folders are written.
    """
    for name, (model_type, files, settings) in _WRITTEN.items():
        with TemporaryDirectory() as temporary:
            source = Path(temporary)
            for target, packed in files.items():
                content = (data / packed).read_bytes()
                (source / target).write_bytes(gzip.decompress(content) if packed.endswith(".gz") else content)
            (source / "config.json").write_text(json.dumps({"model_type": model_type}))
            (source / "tokenizer_config.json").write_text(json.dumps(settings))
            write_tokenizer(Tokenizer.load(source), folder / name)
    for name in _OF_TESTS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in (FOLDER / "tokenizers" / name).glob("*.json"):
            (folder / name / path.name).write_bytes(path.read_bytes())
