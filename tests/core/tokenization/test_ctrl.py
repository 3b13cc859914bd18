"""CTRL's tokenizer, compared with that of transformers, which has no offsets; and the check of control codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import InputError, TokenizerError
from kerasformer.tokenization import Tokenizer, has_tokenizer
from kerasformer.tokenization.ctrl import CONTROL_CODES
from tests.core.tokenization.conftest import write
from tests.core.tokenization.samples import CORPUS, TEXTS

CODES = ("Wikipedia", "Links", "Reviews", "Horror")
PROMPTS = [
    "Wikipedia The Rabbit\nsaid\n\n oh dear",
    "Links https://example.com/page?id=42",
    "<unk>a <unk> b",
    "@@ a@@ b",
]


def files() -> dict[str, Any]:
    """Returns the files of a tiny tokenizer; every seventh piece that merges form is missing in its vocabulary."""
    backend = Backend(models.BPE(end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=420, end_of_word_suffix="</w>", show_progress=False)
    backend.train_from_iterator([*CORPUS, *(f"{code} " * 9 for code in CODES)], trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [rule if isinstance(rule, list) else rule.split(" ") for rule in model["merges"]]
    pieces = [token.removesuffix("</w>") if token.endswith("</w>") else f"{token}@@" for token in model["vocab"]]
    kept = [piece for index, piece in enumerate(dict.fromkeys(pieces)) if index % 7 or len(piece) < 4]
    vocabulary = dict.fromkeys([*kept, *CODES, "<unk>"])
    return {
        "vocab.json": {piece: index for index, piece in enumerate(vocabulary)},
        "merges.txt": "#version: 0.2\n" + "".join(f"{first} {second}\n" for first, second in merges),
        "config.json": {"model_type": "ctrl"},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ctrl"), files())


@pytest.fixture(scope="module")
def both(folder: Path) -> tuple[Any, Tokenizer]:
    return transformers.AutoTokenizer.from_pretrained(str(folder)), Tokenizer.load(folder)


def test_ids_and_texts(both: tuple[Any, Tokenizer]) -> None:
    theirs, ours = both
    assert type(theirs).__name__ == "CTRLTokenizer"
    assert set(theirs.control_codes) == CONTROL_CODES
    for text in [*PROMPTS, *TEXTS, *CORPUS]:
        ids = theirs.encode(text)
        assert ours.encode(text) == ids, text
        assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text
    used = {index for text in PROMPTS for index in ours.encode(text)}
    assert ours.unk_token_id in used and len(used) > 20
    assert ours.get_vocab() == theirs.get_vocab() and ours.all_special_ids == sorted(set(theirs.all_special_ids))


def test_offsets_are_the_parts_of_the_text(both: tuple[Any, Tokenizer]) -> None:
    _, ours = both
    text = PROMPTS[0]
    encoding = ours(text)
    for index, (start, end) in zip(encoding.input_ids[0], encoding.offsets[0], strict=True):
        token = ours.id_to_token(int(index))
        assert token == "<unk>" or token.removesuffix("@@") == text[start:end]
    assert encoding.offsets[0][:, 0].tolist() == sorted(encoding.offsets[0][:, 0].tolist())


def test_a_saved_folder_is_loaded_by_both(both: tuple[Any, Tokenizer], tmp_path: Path) -> None:
    _, ours = both
    ours.save(tmp_path)
    assert has_tokenizer(tmp_path) and not (tmp_path / "tokenizer.json").exists()
    theirs, again = transformers.AutoTokenizer.from_pretrained(str(tmp_path)), Tokenizer.load(tmp_path)
    for text in [*PROMPTS, *CORPUS]:
        assert again.encode(text) == theirs.encode(text) == ours.encode(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"vocab.json": {"a": 0}}, "'<unk>'"), ({"merges.txt": b"\xff"}, "merges.txt cannot be read")],
)
def test_damaged_files(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=message):
        Tokenizer.load(write(tmp_path, {**files(), **changes}))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("Wikipdia The Rabbit", r"one of Horror, Links, Reviews, Wikipedia\. Received: 'Wikipdia'.*mean 'Wikipedia'\?"),
        ("link the Rabbit", r"Received: 'link'\. Did you mean 'Links'\?"),
        ("the Rabbit", r"Received: 'the'\.$"),
    ],
)
def test_prompts_start_with_a_control_code(folder: Path, prompt: str, message: str) -> None:
    model = zoo.build(
        "ctrl", vocab_size=500, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=8, max_length=64
    )
    model.tokenizer = Tokenizer.load(folder)
    pipe = kf.pipeline(model, "text-generation")
    settings: dict[str, Any] = {"max_new_tokens": 2, "do_sample": False}
    text = pipe("Horror the Rabbit", **settings)[0]["generated_text"]
    assert text.startswith("Horror the Rabbit")
    ids = np.array([model.tokenizer.encode(prompt)])
    calls = (
        lambda: pipe(prompt, **settings),
        lambda: pipe(["Links a", prompt], **settings),
        lambda: list(pipe.stream(prompt, **settings)),
        lambda: model.generate(prompt, **settings),
        lambda: model.generate(ids, **settings),
    )
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()
