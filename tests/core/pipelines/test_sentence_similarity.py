from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer, util

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import ExportError, InputError, UnsupportedConfigError
from kerasformer.layers.sentence import POOLINGS
from kerasformer.models.config import ConfigWarning
from kerasformer.pipelines.vectors import quantized, value_ranges
from kerasformer.tokenization.truncation import TruncationWarning
from tests.core.pipelines import sentence_folders
from tests.core.pipelines.sentence_folders import KINDS, change
from tests.tiny_text import CORPUS

TEXTS = [CORPUS[7], CORPUS[0], "Rain.", CORPUS[10], CORPUS[3]]
PROMPTS = {"query": "the query: ", "passage": "text: ", "other": "rain "}
DECODER_PROMPTS = {
    "embeddinggemma": {"query": "task: search result | query: ", "document": "title: none | text: "},
    "qwen3-embedding": {"query": "Instruct: Retrieve passages\nQuery:", "document": ""},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A function that returns the folder and the reference of a kind."""
    made: dict[str, tuple[Path, SentenceTransformer]] = {}

    def make(kind: str = "mean-normalize") -> tuple[Path, SentenceTransformer]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("sentences") / kind
            options = {} if kind != "cls" else {"prompts": PROMPTS, "default_prompt_name": "other"}
            options |= {"prompts": DECODER_PROMPTS[kind]} if kind in DECODER_PROMPTS else {}
            options |= {"similarity_fn_name": "dot"} if kind == "max" else {}
            made[kind] = folder, sentence_folders.write(folder, kind, **options)
        return made[kind]

    return make


@pytest.fixture(scope="module")
def pipe(written):
    return kf.pipeline(written()[0], "sentence-similarity")


def assert_close(received, expected):
    assert received.shape == expected.shape and received.dtype == expected.dtype
    assert np.abs(received - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_are_those_of_sentence_transformers(written, kind):
    folder, theirs = written(kind)
    pipe = kf.pipeline(folder)
    assert pipe.task == "sentence-similarity"
    expected = theirs.encode(TEXTS, prompt="")
    assert_close(pipe.encode(TEXTS, prompt="", batch_size=2), expected)
    assert_close(pipe.encode(TEXTS[2], prompt=""), expected[2])
    assert pipe.embedding.dimension == theirs.get_embedding_dimension() == expected.shape[1]
    assert pipe.embedding.normalized == np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", ["mean-normalize", "two-poolings-two-layers", "norms-dropout"])
@pytest.mark.grid
def test_a_saved_model_opens_in_sentence_transformers(written, tmp_path, kind):
    folder, theirs = written(kind)
    model = zoo.load(folder)
    again = SentenceTransformer(str(model.save_pretrained(tmp_path / "saved")), device="cpu")
    assert_close(again.encode(TEXTS), theirs.encode(TEXTS))
    assert again.max_seq_length == 48
    assert zoo.load(tmp_path / "saved").sentence.steps == model.sentence.steps
    model.save(tmp_path / "model.keras")
    import keras

    opened = keras.models.load_model(tmp_path / "model.keras")
    assert_close(kf.pipeline(opened).encode(TEXTS), theirs.encode(TEXTS))


def test_older_and_other_settings_are_read_and_written(written, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(written()[0], folder)
    change(folder, "config_sentence_transformers.json", prompts=PROMPTS, default_prompt_name="query", truncate_dim=8)
    change(folder, "config_sentence_transformers.json", similarity_fn_name="euclidean")
    change(folder, "sentence_bert_config.json", max_seq_length=20)
    (folder / "1_Pooling" / "config.json").unlink()
    flags = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "pooling_mode_lasttoken": True}
    change(folder, "1_Pooling/config.json", word_embedding_dimension=32, **flags)
    pipe = kf.pipeline(folder)
    assert (pipe.embedding.similarity, pipe.embedding.truncate_dim, pipe.info.max_length) == ("euclidean", 8, 20)
    assert pipe.embedding.pooling == ("mean", "lasttoken")
    theirs = SentenceTransformer(str(folder), device="cpu")
    saved = zoo.load(folder).save_pretrained(tmp_path / "saved")
    again = SentenceTransformer(str(saved), device="cpu")
    for each in (theirs, again):
        assert (each.prompts["query"], each.default_prompt_name, each.max_seq_length) == ("the query: ", "query", 20)
        expected = util.normalize_embeddings(torch.tensor(each.encode(TEXTS))).numpy()
        with pytest.warns(TruncationWarning):
            assert_close(pipe.encode(TEXTS, truncation=True), expected)
        similar = each.similarity(expected, expected).numpy()
        assert np.abs(pipe.similarity(expected, expected) - similar).max() < 2e-3  # theirs is in single precision


def test_lower_case_is_converted_before_the_tokenizers_own_rules(written, tmp_path):
    folder = tmp_path / "cased"
    shutil.copytree(written()[0], folder)
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    unknown = kf.pipeline(folder).encode("RAIN")
    change(folder, "sentence_bert_config.json", do_lower_case=True)
    pipe = kf.pipeline(folder)
    assert_close(pipe.encode("RAIN"), SentenceTransformer(str(folder), device="cpu").encode("RAIN"))
    assert_close(pipe.encode("RAIN"), pipe.encode("rain"))
    assert np.abs(pipe.encode("RAIN") - unknown).max() > 0.01


def test_prompts(written):
    folder, theirs = written("cls")
    pipe = kf.pipeline(folder)
    assert_close(pipe.encode(TEXTS), theirs.encode(TEXTS))
    assert_close(pipe.encode(TEXTS, prompt_name="query"), theirs.encode(TEXTS, prompt_name="query"))
    assert_close(pipe.encode(TEXTS, prompt="x "), theirs.encode(TEXTS, prompt="x "))
    assert_close(pipe.encode_query(TEXTS[0]), theirs.encode_query(TEXTS[0]))
    assert not np.allclose(pipe.encode(TEXTS[2]), pipe.encode(TEXTS[2], prompt=""), atol=1e-3)
    with pytest.raises(InputError, match="Expected: .*'other'.*'query'. Received: 'absent'"):
        pipe.encode(TEXTS, prompt_name="absent")
    with pytest.raises(InputError, match="Only one of prompt_name and prompt"):
        pipe.encode(TEXTS, prompt_name="query", prompt="x")


@pytest.mark.parametrize("kind", ["mean-normalize", "qwen3-embedding"])
def test_prompts_that_are_not_pooled(written, tmp_path, kind):
    folder = tmp_path / "unpooled"
    shutil.copytree(written(kind)[0], folder)
    change(folder, "1_Pooling/config.json", include_prompt=False, pooling_mode=list(POOLINGS))
    theirs = SentenceTransformer(str(folder), device="cpu")
    model = zoo.load(folder)
    pipe = kf.pipeline(model)
    for prompt in ("", "the old rain: "):
        assert_close(pipe.encode(TEXTS, prompt=prompt, batch_size=2), theirs.encode(TEXTS, prompt=prompt))
    again = SentenceTransformer(str(model.save_pretrained(tmp_path / "saved")), device="cpu")
    assert_close(again.encode(TEXTS, prompt="rain "), pipe.encode(TEXTS, prompt="rain "))
    with pytest.raises(ExportError, match="pooling includes prompts.*include_prompt=False"):
        model.export(tmp_path / "bundle", "onnx")


def test_the_prompt_of_chunks_is_not_pooled(written, tmp_path):
    folder = tmp_path / "unpooled"
    shutil.copytree(written()[0], folder)
    change(folder, "1_Pooling/config.json", include_prompt=False)
    pipe = kf.pipeline(folder)
    prompt, text = "the old rain ", CORPUS[7]
    encoded = pipe.tokenizer(
        prompt + text, truncation="only_first", max_length=6, stride=0, return_overflowing_tokens=True
    )
    unpooled = encoded.positions < 1 + len(pipe.tokenizer.encode(prompt, add_special_tokens=False))
    rows = pipe.model.run({**encoded.inputs, "prompt_mask": unpooled * encoded.attention_mask})["sentence_embedding"]
    mean = np.average(rows, axis=0, weights=((encoded.sequence_ids == 0) & ~unpooled).sum(axis=1))
    received = pipe.encode(text, prompt=prompt, chunk_length=6, stride=0)
    assert_close(received, (mean / np.linalg.norm(mean)).astype("float32"))


@pytest.mark.parametrize("kind", DECODER_PROMPTS)
def test_prompts_of_decoders(written, kind):
    folder, theirs = written(kind)
    pipe = kf.pipeline(folder)
    assert_close(pipe.encode_query(TEXTS, batch_size=2), theirs.encode_query(TEXTS))
    assert_close(pipe.encode_document(TEXTS), theirs.encode_document(TEXTS))
    assert not np.allclose(pipe.encode_query(TEXTS[0]), pipe.encode_document(TEXTS[0]), atol=1e-3)
    similar = theirs.similarity(theirs.encode_query(TEXTS[:2]), theirs.encode_document(TEXTS)).numpy()
    ranking = pipe.rank(TEXTS[0], TEXTS)
    assert [each["corpus_id"] for each in ranking] == np.argsort(-similar[0]).tolist()
    assert [each["score"] for each in ranking] == pytest.approx(sorted(similar[0], reverse=True), abs=1e-5)


@pytest.mark.parametrize("kind", ["embeddinggemma", pytest.param("qwen3-embedding", marks=pytest.mark.grid)])
@pytest.mark.parametrize(("format", "options"), [("litert", {"lengths": (120,)}), ("onnx", {})])
@pytest.mark.grid
def test_exported_decoders(written, tmp_path, kind, format, options):
    folder, theirs = written(kind)
    kf.load(folder).export(tmp_path / "bundle", format=format, **options)
    pipe = kf.pipeline(tmp_path / "bundle")
    assert pipe.task == "sentence-similarity"
    assert_close(pipe.encode_query(TEXTS), theirs.encode_query(TEXTS))
    assert_close(pipe.encode_document(TEXTS), theirs.encode_document(TEXTS))


def test_padding_on_either_side(written):
    """The last token of a text is the last real one, and rotary positions are relative."""
    folder, theirs = written("qwen3-embedding")
    model = zoo.load(folder)
    for side in ("left", "right"):
        vectors = model(model.tokenizer(TEXTS, padding_side=side))
        assert_close(np.asarray(vectors), theirs.encode(TEXTS))


def test_documents_have_the_prompt_that_the_model_has(written, tmp_path):
    folder = tmp_path / "passages"
    shutil.copytree(written()[0], folder)
    change(folder, "config_sentence_transformers.json", prompts={"passage": "text: "}, default_prompt_name="passage")
    pipe = kf.pipeline(folder)
    assert_close(pipe.encode_document(TEXTS), pipe.encode(["text: " + text for text in TEXTS], prompt=""))
    assert_close(pipe.encode_query(TEXTS), pipe.encode(TEXTS, prompt=""))


def test_vectors_of_fewer_entries_have_length_one_again(pipe, written):
    received = pipe.encode(TEXTS, truncate_dim=10)
    expected = written()[1].encode(TEXTS, truncate_dim=10, normalize_embeddings=True)
    assert_close(received, expected)
    assert_close(pipe.encode(TEXTS, truncate_dim=10, normalize=False), written()[1].encode(TEXTS, truncate_dim=10))
    with pytest.raises(InputError, match="truncate_dim must be an integer from 1 to 32"):
        pipe.encode(TEXTS, truncate_dim=33)


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_precisions(pipe, written, precision):
    expected = written()[1].encode(TEXTS, precision=precision)
    received = pipe.encode(TEXTS, precision=precision)
    # A value at the border of two codes may have either of them.
    assert received.dtype == expected.dtype and received.shape == expected.shape
    assert (received == expected).mean() > 0.95 and np.abs(received.astype(int) - expected).max() <= 128
    vectors = pipe.encode(TEXTS)
    ranges = value_ranges(vectors)
    assert (
        util.quantization.quantize_embeddings(vectors, precision, ranges=ranges) == quantized(vectors, precision)
    ).all()
    if precision == "int8":
        alone = pipe.encode(TEXTS[1], precision="int8", ranges=ranges).astype(int)
        assert np.abs(alone - quantized(vectors[1:2], "int8", ranges)[0]).max() <= 1
        with pytest.raises(InputError, match="cannot be inferred from a single embedding"):
            pipe.encode(TEXTS[1], precision="int8")


@pytest.mark.parametrize("kind", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(kind):
    from kerasformer.pipelines.vectors import similarity

    some, others = np.random.default_rng(1).normal(size=(2, 7, 12)).astype("float32")
    expected = util.SimilarityFunction.to_similarity_fn(kind)(some, others).numpy()
    assert np.abs(similarity(some, others, kind) - expected).max() < 1e-5


def test_ranking(pipe):
    ranking = pipe.rank("rain", TEXTS, top_k=3, return_documents=True)
    scores = pipe.similarity("rain", TEXTS)[0]
    assert [each["corpus_id"] for each in ranking] == np.argsort(-scores)[:3].tolist()
    assert ranking[0]["text"] == TEXTS[ranking[0]["corpus_id"]]
    assert ranking[0]["score"] == pytest.approx(scores.max(), abs=1e-5)


def test_a_long_text_is_read_in_chunks_or_cut_with_a_warning(pipe, written):
    long = " ".join(CORPUS[:6])
    received = pipe.encode(long)
    assert np.linalg.norm(received) == pytest.approx(1, abs=1e-6)
    states = pipe.tokenizer(
        long, truncation="only_first", max_length=48, stride=46 // 4, return_overflowing_tokens=True
    )
    assert len(states.input_ids) > 2
    rows = pipe.model.run(states.inputs)["sentence_embedding"]
    mean = np.average(rows, axis=0, weights=states.attention_mask.sum(axis=1) - 2)
    assert_close(received, (mean / np.linalg.norm(mean)).astype("float32"))
    with pytest.warns(TruncationWarning):
        assert_close(pipe.encode(long, truncation=True), written()[1].encode(long))


def test_another_task_of_the_folder(written):
    folder, theirs = written("last")
    states = kf.pipeline(folder, "feature-extraction")(TEXTS[0])
    assert_close(states[-1] / np.linalg.norm(states[-1]), theirs.encode(TEXTS[0]))
    with pytest.raises(InputError, match="This source is for sentence-similarity"):
        kf.pipeline(zoo.load(folder), "feature-extraction")


def test_a_folder_without_settings(checkpoint, caplog, tmp_path):
    """Its pooling is that of sentence-transformers."""
    pipe = kf.pipeline(checkpoint("vectors"), "embeddings")
    assert "has no modules.json" in caplog.text and "'mean'" in caplog.text
    assert_close(pipe.encode(TEXTS), SentenceTransformer(str(checkpoint("vectors")), device="cpu").encode(TEXTS))
    settings = zoo.SentenceSettings(("cls",), ("normalize",))
    own = zoo.load(checkpoint("vectors"), "sentence-similarity", sentence=settings)
    theirs = transformers.pipeline("feature-extraction", str(checkpoint("vectors")))
    first = np.array(theirs(TEXTS[0])[0][0], "float32")
    assert_close(kf.pipeline(own).encode(TEXTS[0]), first / np.linalg.norm(first))
    with pytest.raises(InputError, match="sentence is only for sentence-similarity"):
        zoo.load(checkpoint("vectors"), sentence=settings)


@pytest.mark.parametrize(
    ("file", "entries", "message"),
    [
        (
            "1_Pooling/config.json",
            {"include_prompt": "no"},
            "include_prompt must be True or False. Received: include_prompt='no'",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "sum"}, "pooling_mode='cls'.*Received: pooling_mode='sum'"),
        ("1_Pooling/config.json", {"pooling_mode_attention": True}, "unsupported pooling.*pooling_mode_attention"),
        ("1_Pooling/config.json", {"embedding_dimension": 48}, "embedding_dimension=32. Received.*48"),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Softplus"}, "Received.*Softplus"),
        ("2_Dense/config.json", {"use_residual": True}, "use_residual=False. Received: use_residual=True"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "sentence_embedding.*token_embeddings"),
        ("2_LayerNorm/config.json", {"dimension": 31}, "dimension=32. Received: dimension=31"),
        ("3_Dropout/config.json", {"dropout": 1.5}, "dropout must be a number from 0 to 1. Received: 1.5"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "maxsim"}, "'cosine'.*'maxsim'"),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "absent"},
            "default_prompt_name='document'.*absent",
        ),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task='feature-extraction'"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length must be an integer of at least 1"),
    ],
)
def test_what_is_not_implemented_is_refused(written, tmp_path, file, entries, message):
    folder = tmp_path / "changed"
    kind = "norms-dropout" if "Norm/" in file or "Dropout" in file else "weighted-dense-normalize"
    shutil.copytree(written(kind)[0], folder)
    change(folder, file, **entries)
    with pytest.raises(UnsupportedConfigError, match=message):
        zoo.load(folder, "sentence-similarity")


def test_dropout_acts_in_training_alone(written):
    model = zoo.load(written("norms-dropout")[0])
    inputs = model.tokenizer(TEXTS[:1])
    plain, again, trained = (np.asarray(model(inputs, training=flag)) for flag in (False, False, True))
    assert (plain == again).all() and not np.allclose(plain, trained, atol=1e-3)


def test_other_modules_and_keys(written, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(written()[0], folder)
    change(folder, "1_Pooling/config.json", novelty=1)
    with pytest.warns(ConfigWarning, match="1_Pooling has unsupported keys, which are ignored: novelty"):
        zoo.load(folder)
    modules = json.loads((folder / "modules.json").read_text())
    for kind in ("sentence_transformers.models.LSTM", "own.Normalize"):
        (folder / "modules.json").write_text(json.dumps([*modules[:2], {**modules[2], "type": kind}]))
        with pytest.raises(UnsupportedConfigError, match=f"Expected: Transformer and Pooling.*Received: .*{kind}"):
            zoo.load(folder)
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": "0_Transformer"}, modules[1]]))
    with pytest.raises(UnsupportedConfigError, match="the Transformer must be in the folder itself"):
        zoo.load(folder)
    change(folder, "config_sentence_transformers.json", model_type="SparseEncoder")
    with pytest.raises(UnsupportedConfigError, match="unsupported modules for sparse vectors"):
        zoo.load(folder)
    assert zoo.load(folder, "feature-extraction").task == "feature-extraction"
