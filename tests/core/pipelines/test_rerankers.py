"""Rerankers that are language models: the logit of `yes` minus that of `no`, after a pair in a chat template."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer as Backend

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import BundleError, CapacityError, CheckpointError, InputError, UnsupportedConfigError
from kerasformer.tokenization import Tokenizer
from kerasformer.tokenization.truncation import TruncationWarning
from kerasformer.tools.web import site
from tests import tiny_text
from tests.core.pipelines.sentence_folders import QWEN, change

pytestmark = pytest.mark.grid

QUERY = "rain"
DOCUMENTS = [" ".join(text.split()[:6]) for text in (*tiny_text.CORPUS[:5], "Rain.")]
END = "<|endoftext|>"
PAIRS = (
    "{%- for message in messages %}{{ message.role + ': ' + message.content }}\n{% endfor -%}"
    "{%- if false %}{{ 'query' + 'document' }}{% endif -%}{%- if add_generation_prompt %}answer:{% endif -%}"
)
"""A chat template for pairs."""
CHAT = "{%- for message in messages %}{{ message.role + ': ' + message.content }}\n{% endfor -%}"
"""A chat template for conversations alone."""


def write(folder, chat_template=PAIRS, kind="Qwen3", words=("yes", "no"), **settings):
    """Writes a tiny language model with random weights and a tokenizer with these words."""
    backend = Backend.from_str(tiny_text.byte_pairs().backend.to_str())
    backend.add_tokens(list(words))
    names = {"pad_token": END, "eos_token": END}
    tokenizer = Tokenizer(backend, special_tokens=names, padding_side="left", chat_template=chat_template)
    config = {**QWEN, "max_position_embeddings": 320, "tie_word_embeddings": True, **settings}
    config = getattr(transformers, f"{kind}Config")(vocab_size=tokenizer.vocab_size, **config)
    model, generator = getattr(transformers, f"{kind}ForCausalLM")(config), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter.ndim == 1) + 0.3 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A language model without files of sentence-transformers."""
    return write(tmp_path_factory.mktemp("rerankers") / "plain")


@pytest.fixture(scope="module")
def saved(plain):
    """A reranker saved by sentence-transformers, with a default prompt and a variable of the template."""
    options = {"prompts": {"web": "Find 'pages'"}, "default_prompt_name": "web"}
    model = CrossEncoder(str(plain), device="cpu", **options)
    model.save_pretrained(str(plain.with_name("saved")))
    processing = {"chat_template": {"add_generation_prompt": True}}
    change(plain.with_name("saved"), "sentence_bert_config.json", processing_kwargs=processing)
    return plain.with_name("saved")


def assert_same_ranking(received, expected):
    assert [row["corpus_id"] for row in received] == [row["corpus_id"] for row in expected]
    assert [row["score"] for row in received] == pytest.approx([row["score"] for row in expected], abs=2e-5)


def test_a_language_model_ranks_as_in_sentence_transformers(plain):
    theirs, pipe = CrossEncoder(str(plain), device="cpu"), kf.pipeline(plain, "text-ranking")
    assert_same_ranking(pipe.rank(QUERY, DOCUMENTS, batch_size=2), theirs.rank(QUERY, DOCUMENTS))
    prompted = theirs.rank(QUERY, DOCUMENTS, prompt="Find songs")
    assert_same_ranking(pipe.rank(QUERY, DOCUMENTS, prompt="Find songs"), prompted)
    scores = [row["score"] for row in pipe([(QUERY, text) for text in DOCUMENTS])]
    assert scores == pytest.approx(theirs.predict([(QUERY, text) for text in DOCUMENTS]).tolist(), abs=2e-5)
    assert kf.pipeline(plain).task == "text-generation"


def test_the_files_of_sentence_transformers(saved, tmp_path):
    theirs, pipe = CrossEncoder(str(saved), device="cpu"), kf.pipeline(saved)
    assert pipe.task == "text-classification" and pipe.info.labels == ("LABEL_0",)
    expected = theirs.rank(QUERY, DOCUMENTS)
    assert_same_ranking(pipe.rank(QUERY, DOCUMENTS), expected)
    assert max(abs(row["score"] - 0.5) for row in expected) > 0.1
    other = pipe.rank(QUERY, DOCUMENTS, prompt="Find songs")
    assert_same_ranking(other, theirs.rank(QUERY, DOCUMENTS, prompt="Find songs"))
    change(shutil.copytree(saved, tmp_path / "one"), "1_LogitScore/config.json", false_token_id=None)
    assert_same_ranking(
        kf.pipeline(tmp_path / "one").rank(QUERY, DOCUMENTS),
        CrossEncoder(str(tmp_path / "one"), device="cpu").rank(QUERY, DOCUMENTS),
    )


def test_qwen3_reranker_has_the_template_of_its_authors(tmp_path):
    """The expected scores are computed as in the model card of Qwen3-Reranker, from a chat template without roles."""
    folder = write(tmp_path / "model", CHAT, tie_word_embeddings=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    start = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    instruct = "Given a web search query, retrieve relevant passages that answer the query"
    scores = []
    for text in DOCUMENTS[:2]:
        pair = f"{start}<Instruct>: {instruct}\n<Query>: {QUERY}\n<Document>: {text}<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer(f"{pair}<think>\n\n</think>\n\n", return_tensors="pt", add_special_tokens=False)
        answers = model(**ids).logits[0, -1, [tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")]]
        scores.append(answers.softmax(0)[1].item())
    received = kf.pipeline(folder, "text-ranking").rank(QUERY, DOCUMENTS[:2])
    assert {row["corpus_id"]: row["score"] for row in received} == pytest.approx(dict(enumerate(scores)), abs=2e-5)


@pytest.mark.parametrize("format", ["onnx", pytest.param("litert", marks=pytest.mark.grid)])
def test_a_converted_checkpoint_and_its_bundle(saved, tmp_path, format):
    """A saved reranker is a classifier with one class, as published conversions are."""
    model, expected = zoo.load(saved), CrossEncoder(str(saved), device="cpu").rank(QUERY, DOCUMENTS)
    folder = model.save_pretrained(tmp_path / "converted")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForSequenceClassification"] and len(config["id2label"]) == 1
    assert_same_ranking(kf.pipeline(folder).rank(QUERY, DOCUMENTS), expected)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    text = kf.pipeline(folder).tokenizer.apply_pair_template(QUERY, DOCUMENTS[0])
    logit = theirs(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0, 0].sigmoid().item()
    assert {row["corpus_id"]: row["score"] for row in expected}[0] == pytest.approx(logit, abs=2e-5)
    options = {"lengths": (160,)} if format == "litert" else {}
    model.export(tmp_path / "bundle", format=format, **options)
    assert_same_ranking(kf.pipeline(tmp_path / "bundle").rank(QUERY, DOCUMENTS), expected)
    with pytest.raises(BundleError, match="the page does not convert pairs of texts by a chat template"):
        site.build([tmp_path / "bundle"], tmp_path / "site")


def test_a_long_document_is_split_into_parts_each_in_the_template(plain):
    pipe, long = kf.pipeline(plain, "text-ranking"), " ".join(tiny_text.CORPUS[:4])
    tokens = pipe.tokenizer(long, return_offsets_mapping=True)
    space = 90 - len(pipe.tokenizer.encode(pipe.tokenizer.apply_pair_template(QUERY, ""))) - 1
    starts = range(0, len(tokens.input_ids[0]), space - 5)
    parts = [tokens.offsets[0][start : start + space] for start in starts]
    texts = [long[part[0, 0] : part[-1, 1]] for part in parts[: 1 + (len(tokens.input_ids[0]) - 6) // (space - 5)]]
    scores = [pipe.rank(QUERY, [text])[0]["score"] for text in texts]
    options = {"chunk_length": 90, "stride": 5}
    assert len(texts) > 2
    assert pipe.rank(QUERY, [long], **options)[0]["score"] == pytest.approx(max(scores), abs=2e-5)
    mean = np.average(scores, weights=[len(pipe.tokenizer.encode(text)) for text in texts])
    assert pipe.rank(QUERY, [long], combine="mean", **options)[0]["score"] == pytest.approx(mean, abs=5e-3)
    with pytest.warns(TruncationWarning, match="A document was truncated"):
        assert pipe.rank(QUERY, [long], truncation=True, chunk_length=90)[0]["score"] == pytest.approx(
            scores[0], abs=2e-5
        )
    with pytest.raises(CapacityError, match="leave no space for a document"):
        pipe.rank("rain " * 90, [long], chunk_length=90)
    with pytest.raises(CapacityError, match="A pair exceeds the model's maximum length. Expected at most 320"):
        pipe((QUERY, " ".join([long] * 4)))


def test_what_is_not_implemented_is_refused(plain, saved, tmp_path):
    def changed(source, name, **entries):
        folder = shutil.copytree(source, tmp_path / f"{len(list(tmp_path.iterdir()))}")
        change(folder, name, **entries)
        return folder

    message = {"message": {"format": "structured"}}
    for name, entries, error, text in [
        ("1_LogitScore/config.json", {"module_input_name": "logits"}, UnsupportedConfigError, "causal_logits"),
        ("1_LogitScore/config.json", {"true_token_id": None}, UnsupportedConfigError, "must have ids of tokens"),
        (
            "1_LogitScore/config.json",
            {"true_token_id": 4000},
            CheckpointError,
            r"needs the rows \[4000, .*with 322 rows",
        ),
        ("sentence_bert_config.json", {"modality_config": message}, UnsupportedConfigError, "format='flat'"),
    ]:
        with pytest.raises(error, match=text):
            zoo.load(changed(saved, name, **entries))
    with pytest.raises(UnsupportedConfigError, match="a chat template with the roles 'query' and 'document'"):
        zoo.load(write(tmp_path / "llama", CHAT, "Llama"), "text-ranking")
    with pytest.raises(UnsupportedConfigError, match="Gemma2CausalLM have a bias, a factor or a soft limit"):
        zoo.load(write(tmp_path / "gemma", PAIRS, "Gemma2"), "text-ranking")
    with pytest.raises(CheckpointError, match="needs a classifier of pairs.*answers 'yes' or 'no'"):
        zoo.load(write(tmp_path / "words", words=["yes"]), "text-ranking")
    with pytest.raises(InputError, match="A prompt needs a tokenizer whose chat template has the roles"):
        tokenizer = kf.Tokenizer.load(tmp_path / "llama")
        kf.pipeline(zoo.load(saved), tokenizer=tokenizer).rank(QUERY, DOCUMENTS, prompt="Find")
