from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer.bundle import ModelInfo
from kerasformer.errors import InputError
from kerasformer.pipelines.quality import pipeline_of
from kerasformer.tools.evaluation import examples
from kerasformer.tools.training import MultipleChoice, dataset
from kerasformer.tools.training.shapes import with_different_first

TOLERANCE = 1e-5
"""Of losses: a cross-entropy is a difference of logits, each of which rounds by 6e-8 of its size."""

VOCABULARIES = Path(__file__).parents[3] / "mobile" / "vectors" / "tokenizers"

TEXTS = ["A warm and funny film.", "Dull.", "It is neither good nor bad, and far too long.", "Again!"]


@pytest.fixture(scope="module")
def classifier():
    return kf.load("sentiment-bert", labels=["bad", "good", "mixed"])


def cross_entropy(logits, labels, **options):
    return torch.nn.functional.cross_entropy(torch.tensor(np.asarray(logits)), torch.tensor(labels), **options).item()


def test_texts_are_tokenized_as_by_the_tokenizer(classifier):
    data = dataset(classifier, TEXTS, ["good", "Bad", 2, "1"], batch_size=4, shuffle=False)
    inputs, labels = data[0]
    order = np.argsort(np.array([len(classifier.tokenizer.encode(text)) for text in TEXTS]), kind="stable")
    expected = classifier.tokenizer([TEXTS[index] for index in order], pad_to_multiple_of=16)
    for name, array in expected.inputs.items():
        np.testing.assert_array_equal(inputs[name], array)
    np.testing.assert_array_equal(labels, np.array([1, 0, 2, 1])[order])
    logits = classifier(inputs)
    assert float(data.loss(labels, logits)) == pytest.approx(
        cross_entropy(logits, labels.astype("int64")), abs=TOLERANCE
    )


def test_probabilities_of_classes_are_targets(classifier):
    rows = [[0.2, 0.7, 0.1], [1, 0, 0], [0, 0.5, 0.5], [0.1, 0.1, 0.8]]
    inputs, targets = (data := dataset(classifier, TEXTS, rows, batch_size=4))[0]
    logits = classifier(inputs)
    assert float(data.loss(targets, logits)) == pytest.approx(cross_entropy(logits, targets), abs=TOLERANCE)
    with pytest.raises(InputError, match="Probabilities of 3 classes"):
        dataset(classifier, TEXTS, [[0.5, 0.5]] * 4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["good", "bad", "mixed", "great"], "one of bad, good, mixed.*text 4"),
        ([0, 1, 2, 3], "Received: 3"),
        ([0, 1, None, 2], "none for text 3"),
        ([0, 1], "Each text needs a label"),
    ],
)
def test_labels_that_the_model_lacks_are_refused(classifier, labels, message):
    with pytest.raises(InputError, match=message):
        dataset(classifier, TEXTS, labels)


def test_each_epoch_has_every_text_in_an_order_of_its_own(classifier):
    texts = [f"{'very ' * (index % 7)}good {index}" for index in range(50)]
    labels = [index % 3 for index in range(50)]

    def epochs(seed):
        data = dataset(classifier, texts, labels, batch_size=8, seed=seed)
        for _ in range(2):
            yield [data[index][0]["input_ids"] for index in range(len(data))]
            data.on_epoch_end()

    first, second = epochs(1)
    for epoch in (first, second):
        rows = {tuple(row[row > 0]) for batch in epoch for row in batch}
        assert rows == {tuple(classifier.tokenizer.encode(text)) for text in texts}
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    for epoch, again in zip((first, second), epochs(1), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(epoch, again, strict=True))


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_of_different_lengths_fit(classifier, shuffle):
    """Also with TensorFlow, where Keras takes the lengths of the first two batches for those of all."""
    texts = ["good"] * 23 + ["good " * 30] + ["bad " * 17] * 4
    data = dataset(classifier, texts, [0] * 28, batch_size=4, shuffle=shuffle, pad_to=[8, 32])
    assert [data[index][0]["input_ids"].shape[1] for index in range(2)] == [8, 32]
    model = kf.load("sentiment-bert", labels=["bad", "good", "mixed"])
    model.compile("sgd", data.loss)
    model.fit(data, epochs=2, verbose=0)
    model.evaluate(data, verbose=0)


@pytest.mark.parametrize("columns", [1, 2])
def test_the_first_two_batches_differ_in_each_length(columns):
    rng = np.random.default_rng(0)
    for _ in range(300):
        lengths = rng.integers(1, 4, (rng.integers(1, 6), columns))
        order = with_different_first(range(len(lengths)), lengths)
        assert sorted(order) == list(range(len(lengths)))
        varies = (lengths != lengths[0]).any(axis=0)
        if varies.any():
            assert (lengths[order[0]] != lengths[order[1]])[varies].all()


READERS = (
    "bert-uncased gpt2 gpt2-bos roberta roberta-prefix qwen2 llama2 llama3 neox gemma byt5 t5 xlm-roberta big-bird "
    "deberta"
)
LABELS = ("O", "PER", "LOC")
NAMES = ("input_ids", "attention_mask")
SENTENCES = {  # \x00 and \u200b have no tokens for BERT
    ("Anna", "(", "U.S.", ")", "saw", "\u200bParis", "unforgettables", "\x00", "don't"): "PER O LOC O O LOC O O O",
    ("Tom",): "PER",
    ("日本", "Ünï", "Zoë\u0301", "🙂"): "LOC O PER O",
}


class Remembering:
    """Returns the labels of the tokens on which it was trained, and another class for tokens without a label."""

    def __init__(self, rows):
        self.labels = {tuple(row.inputs["input_ids"].tolist()): row.target for row in rows}

    def run(self, inputs):
        logits = np.zeros((*inputs["input_ids"].shape, len(LABELS)), "float32")
        for row, ids, mask in zip(logits, inputs["input_ids"], inputs["attention_mask"], strict=True):
            labels = self.labels[tuple(ids[mask > 0].tolist())]
            row[np.flatnonzero(mask), np.where(labels < 0, LABELS.index("LOC"), labels)] = 9
        return {"logits": logits}


@pytest.fixture(scope="module")
def tagger():
    return kf.load("sentiment-bert", "token-classification", labels=LABELS)


@pytest.mark.parametrize("name", READERS.split())
def test_taggers_read_the_tokens_on_which_they_were_trained(name, tagger):
    tokenizer, model = kf.Tokenizer.load(VOCABULARIES / name), tagger
    model.set_tokenizer(tokenizer)
    words, labels = [list(words) for words in SENTENCES], [tags.split() for tags in SENTENCES.values()]
    rows = dataset(model, words, labels).rows
    description = ModelInfo("token-classification", input_names=NAMES, max_length=200, labels=LABELS)
    pipe = pipeline_of(Remembering(rows), description, tokenizer)
    assert kf.evaluate(pipe, examples(words, labels))["accuracy"] == 1
    plain = ["Tom", "saw", "Anna", "go"]
    pipe = pipeline_of(Remembering(dataset(model, [plain], [["PER", "LOC", "PER", "O"]]).rows), description, tokenizer)
    found = pipe(" ".join(plain), aggregation_strategy="first", ignore_labels=())
    assert [(each["entity_group"], each["word"].strip()) for each in found] == [
        ("PER", "Tom"), ("LOC", "saw"), ("PER", "Anna"), ("O", "go"),
    ]  # fmt: skip


def test_classes_of_words_belong_to_their_first_tokens():
    model = kf.load("sentiment-bert", "token-classification", labels=["O", "PER", "LOC"])
    words, labels = [["Anna", "saw", "unforgettables"], ["Tom"]], [["PER", "O", 2], ["PER"]]
    data = dataset(model, words, labels, shuffle=False, batch_size=2)
    inputs, targets = data[0]
    tokens = [model.tokenizer.id_to_token(int(index)) for index in inputs["input_ids"][1]]
    firsts = {token: int(target) for token, target in zip(tokens, targets[1], strict=True) if target >= 0}
    assert list(firsts.values()) == [1, 0, 2] and not any(token.startswith("##") for token in firsts)
    logits = model(inputs)
    flat = np.asarray(logits).reshape(-1, 3)
    expected = cross_entropy(flat, targets.reshape(-1).astype("int64"), ignore_index=-100)
    assert float(data.loss(targets, logits)) == pytest.approx(expected, abs=TOLERANCE)
    with pytest.raises(InputError, match="3 words and 1 labels in text 1"):
        dataset(model, words, [["PER"], ["PER"]])


def test_contexts_are_divided_into_windows_with_the_span_of_the_answer():
    model = kf.load("sentiment-bert", "question-answering", new_head=True)
    context = "The story begins in a small town. " * 6 + "Anna lives in Rome. " + "The end is far away. " * 3
    texts = [{"question": "Where does Anna live?", "context": context}, {"question": "Who?", "context": "Tom is here."}]
    data = dataset(model, texts, ["Rome", ""], max_length=40, stride=8)
    found = [row for row in data.rows if row.target.any()]
    assert found and len(data.rows) > 3 and all(row.lengths[0] <= 40 for row in data.rows)
    for row in found:
        start, end = row.target
        assert model.tokenizer.decode(row.inputs["input_ids"][start : end + 1]) == "rome"
    inputs, spans = data[0]
    logits = np.asarray(model(inputs))
    expected = np.mean([cross_entropy(logits[..., side], spans[:, side].astype("int64")) for side in (0, 1)])
    assert float(data.loss(spans, logits)) == pytest.approx(expected, abs=TOLERANCE)
    for wrong in ("Paris", {"text": ["Rome"], "answer_start": [0]}):
        with pytest.raises(InputError, match="An answer from the context"):
            dataset(model, texts, [wrong, ""])
    twice = {"question": "Where?", "context": "Rome is far from Rome."}
    second = dataset(model, [twice], [{"text": ["Rome"], "answer_start": [17]}]).rows[0].target
    assert second.tolist() > dataset(model, [twice], ["Rome"]).rows[0].target.tolist()
    with pytest.raises(InputError, match="1 answers and 2 positions"):
        dataset(model, [twice], [{"text": "Rome", "answer_start": [0, 17]}])


def test_texts_are_continued_and_packed():
    model = kf.load("story-gpt2")
    tokenizer, end = model.tokenizer, model.tokenizer.eos_token_id
    texts = ["The old man looked at the sea.", "It was late.", "Nobody came."]
    whole = [token for text in texts for token in [*tokenizer.encode(text), end]]
    packed = dataset(model, texts, pack=True, max_length=7)
    labels = [token for row in packed.rows for token in row.target]
    assert labels == whole[1:] and packed.rows[0].inputs["input_ids"].tolist() == whole[:7]

    data = dataset(model, ["The old man"], [" looked at the sea."])
    (row,) = data.rows
    prompt = tokenizer.encode("The old man")
    assert row.target.tolist() == [-100] * (len(prompt) - 1) + [*tokenizer.encode(" looked at the sea."), end]
    with pytest.raises(InputError, match="Texts without labels"):
        dataset(model, texts, texts, pack=True)


def test_written_texts_are_shifted():
    model = kf.load("summarizer-t5")
    data = dataset(model, ["It counts words.", "It draws."], ["word counter", "a drawing program"], batch_size=2)
    inputs, labels = data[0]
    for ids, shifted, target in zip(inputs["input_ids"], inputs["decoder_input_ids"], labels, strict=True):
        real = target[target >= 0]
        assert model.tokenizer.decode(ids, skip_special_tokens=True).startswith("summarize: ")
        assert real[-1] == model.tokenizer.eos_token_id
        assert shifted[: len(real)].tolist() == [model.config.decoder_start_token_id, *real[:-1]]


def test_vectors_of_another_model_are_targets():
    model = kf.load("sentiment-bert", "sentence-similarity")
    vectors = np.random.default_rng(0).normal(size=(4, 384))
    inputs, targets = (data := dataset(model, TEXTS, list(vectors), batch_size=4))[0]
    cosine = torch.nn.functional.cosine_similarity(*(torch.tensor(np.asarray(x)) for x in (model(inputs), targets)))
    assert float(data.loss(targets, model(inputs))) == pytest.approx(-cosine.mean().item(), abs=1e-6)
    with pytest.raises(InputError, match="Vectors of 384 numbers"):
        dataset(model, TEXTS, list(vectors[:, :5]))


def test_rare_classes_have_a_higher_weight(classifier):
    data = dataset(classifier, TEXTS, [0, 0, 0, 1], batch_size=4, class_weights=True, shuffle=False)
    inputs, labels = data[0]
    logits = classifier(inputs)
    weight = torch.tensor([4 / 6, 4 / 2, 1.0])
    expected = cross_entropy(logits, labels.astype("int64"), weight=weight)
    assert float(data.loss(labels, logits)) == pytest.approx(expected, abs=TOLERANCE)


def test_choices_are_scored_as_by_transformers(tmp_path):
    transformers.set_seed(0)
    config = transformers.BertConfig(
        vocab_size=5000, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20
    )
    reference = transformers.BertForMultipleChoice(config).eval()
    reference.save_pretrained(tmp_path)
    model = kf.load(tmp_path, "text-classification", num_labels=1)
    model.set_tokenizer(kf.load("sentiment-bert").tokenizer)
    chooser = MultipleChoice(model)
    texts = [
        {"text": "She opens the door.", "choices": ["It rains and rains.", "No.", "It eats."]},
        {"text": "Again!", "choices": ["Dull.", "A warm and funny film.", "Why?"]},
    ]
    data = dataset(chooser, texts, [2, "Dull."], batch_size=2, shuffle=False)
    inputs, labels = data[0]
    with torch.no_grad():
        tensors = {name: torch.tensor(value, dtype=torch.long) for name, value in inputs.items()}
        expected = reference(**tensors, labels=torch.tensor(labels, dtype=torch.long))
    assert sorted(labels.tolist()) == [0, 2]
    np.testing.assert_allclose(chooser(inputs), expected.logits, atol=1e-5)
    assert float(data.loss(labels, chooser(inputs))) == pytest.approx(expected.loss.item(), abs=TOLERANCE)
    chooser.compile("adamw", data.loss, metrics=data.metrics)
    chooser.fit(data, verbose=0)
    with pytest.raises(InputError, match="A choice or its number"):
        dataset(chooser, texts, [3, 0])
    with pytest.raises(InputError, match="same number of choices"):
        dataset(chooser, [texts[0], {"text": "Yes.", "choices": ["No.", "Why?"]}], [0, 0])
    with pytest.raises(InputError, match="with one class"):
        MultipleChoice(kf.load("sentiment-bert"))
