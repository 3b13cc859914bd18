"""Calibration: the ranges of every product are those computed with NumPy, for every architecture and source."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from kerasformer.engines.fidelity.references import single_texts
from kerasformer.errors import ExportError, InputError
from kerasformer.export import export
from kerasformer.export.quantization.calibration import calibrate
from kerasformer.export.quantization.calibration_texts import ANSWERED
from kerasformer.export.quantization.sample_inputs import (
    MAX_TEXTS,
    as_inputs,
    batches,
    calibration_passages,
    passages,
    read_texts,
)
from kerasformer.export.reference_texts import CONVERSATIONS
from kerasformer.layers.primitives import Primitives, lowering
from tests.core.export.text_models import ROWS, SEVERAL
from tests.core.tokenization.chat_templates.conversations import TEMPLATES

TEXTS = ["Rain is expected.", "The museum is closed on Mondays", "What a waste!"]


class Recorder(Primitives):
    """Records the inputs and outputs of each product."""

    def __init__(self):
        self.seen = {}

    def linear(self, x, kernel, bias=None, *, transposed=False):
        y = super().linear(x, kernel, bias, transposed=transposed)
        inputs, outputs = self.seen.setdefault(kernel.path, ([], []))
        inputs.append(ops.convert_to_numpy(x).ravel())
        outputs.append(ops.convert_to_numpy(y).ravel())
        return y


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.grid
def test_ranges_are_those_of_all_values(name):
    model = ROWS[name].model()
    parts, calls = batches(model, passages(model, TEXTS)), []
    found = calibrate(model, TEXTS, lambda done, total: calls.append((done, total)))
    recorder = Recorder()
    with lowering(recorder):
        for part in parts:
            model(as_inputs(part))
    assert set(found) == set(recorder.seen) and len(found) >= 8
    for path, (inputs, outputs) in recorder.seen.items():
        for received, values in ((found[path].input, inputs), (found[path].output, outputs)):
            joined = np.concatenate(values)
            assert received == pytest.approx((joined.min(), joined.max()), abs=1e-4 * float(np.abs(joined).max()))
    assert calls == [(done, len(parts)) for done in range(1, len(parts) + 1)]


@pytest.mark.parametrize("name", ["gpt2-text-generation", "t5-text2text-generation"])
@pytest.mark.grid
def test_a_generating_model_reads_its_own_continuation(name):
    model = ROWS[name].model()
    arrays = passages(model, TEXTS)
    for row, passage in enumerate(single_texts(arrays)):
        ids = model.tokenizer.encode(TEXTS[row])
        continued = as_inputs(passage)
        written = model.generate([ids], max_new_tokens=16, jit_compile=False)[0].tolist()
        if model.is_encoder_decoder:
            read = continued["decoder_input_ids"][0].tolist()
            assert continued["input_ids"][0].tolist() == ids and read[0] == 0
            assert written[: len(read) - 1] == read[1:] and len(read) > 1
        else:
            more = continued["input_ids"][0].tolist()
            assert more[: len(ids)] == ids and written[: len(more) - len(ids)] == more[len(ids) :]
            assert len(more) > len(ids)


def test_a_model_with_a_chat_template_reads_conversations(monkeypatch):
    """They have answers, so that nothing is generated; four bits need some sampled texts, too."""
    model = ROWS["llama-text-generation"].model()
    monkeypatch.setattr(model.tokenizer, "chat_template", TEMPLATES["chatml"])

    def read(*arguments):
        arrays = calibration_passages(model, *arguments)
        return [ids[used > 0].tolist() for ids, used in zip(*arrays.values(), strict=True)]

    def continued(texts, sampled):
        arrays = passages(model, texts, sampled)
        return [ids[used > 0].tolist() for ids, used in zip(*arrays.values(), strict=True)]

    rows, sampled = read(None), read(None, True)
    chats, texts = rows[: len(ANSWERED)], read_texts()
    assert all(model.tokenizer.decode(ids).startswith("<|im_start|>user") for ids in chats) and len(chats) > 10
    assert rows[len(chats) :] == list(map(model.tokenizer.encode, texts))
    assert max(map(len, rows)) <= model.config.max_length
    assert sampled == [*chats, *continued(texts[::2], True)]
    assert not {question for question, *_ in ANSWERED} & {question for question, *_ in CONVERSATIONS}
    assert read(TEXTS) == continued(TEXTS, False)
    monkeypatch.setattr(model.tokenizer, "chat_template", "{{ raise_exception('no users') }}")
    assert read(None) == continued(texts, False)


@pytest.mark.parametrize("name", ["gpt2-text-generation", "t5-text2text-generation", "bert-text-classification"])
def test_passages_are_read_in_batches_without_padding(name):
    """A decoder reads them as one running text."""
    model = ROWS[name].model()
    texts = ["A b.", "A king and a queen.", "A b.", "The old man looked at the sea.", "A b."]
    arrays = passages(model, texts)
    parts = batches(model, arrays)
    assert all(part["attention_mask"].all() for part in parts)

    def tokens(inputs):
        names = ("input_ids", "decoder_input_ids") if model.is_encoder_decoder else ("input_ids",)
        return [tuple(tuple(inputs[name][row]) for name in names) for row in range(len(inputs["input_ids"]))]

    expected = [row for text in single_texts(arrays) for row in tokens(as_inputs(text))]
    received = [row for part in parts for row in tokens(as_inputs(part))]
    if name.startswith("gpt2"):
        expected, received = ([token for (ids,) in rows for token in ids] for rows in (expected, received))
        assert sorted(expected) == sorted(received) and len(parts) < len(texts)
    else:
        assert sorted(expected) == sorted(received)
        assert max(len(part["input_ids"]) for part in parts) > 1


def test_values_that_are_not_finite_are_an_error():
    model = ROWS["bert-text-classification"].model()
    variable = next(v for v in model.variables if v.path.endswith("layer_1/attention/output/kernel"))
    variable.assign(np.full(variable.shape, np.nan, "float32"))
    with pytest.raises(ExportError, match=r"layer_1/attention/output/kernel"):
        calibrate(model, TEXTS)


def test_sources_of_texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one\n\n  \ntwo\nthree", encoding="utf-8")
    dataset = __import__("tensorflow").data.Dataset.from_tensor_slices(["one", "", "two", "three"])
    array = np.array(["one", "two", "three"])
    for source in (path, str(path), ["one", " ", "two", "three"], iter(array), dataset, dataset.batch(2), array):
        assert read_texts(source) == ["one", "two", "three"]
    assert read_texts(f"text {n}" for n in range(10**9)) == [f"text {n}" for n in range(MAX_TEXTS)]
    assert len(read_texts()) >= 40


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "at least one text"),
        (["", "  "], "at least one text"),
        ("nowhere.txt", "nowhere.txt"),
        (7, "int"),
        ([1, 2], "int"),
        ([("a", 1)], "tuple"),
    ],
    ids=str,
)
def test_invalid_sources(source, message):
    with pytest.raises(InputError, match=message):
        read_texts(source)


@pytest.mark.parametrize(
    ("row", "quantize", "message"),
    [
        ("bert-text-classification", "int8_weights", "such as int8 and int8_static.*'int8_weights'"),
        ("gpt2-text-generation", "int8", "no effect on quantize='int8' for a model that generates"),
    ],
)
def test_calibration_is_refused_where_it_has_no_effect(tmp_path, row, quantize, message):
    with pytest.raises(InputError, match=message):
        export(ROWS[row].model(), tmp_path / "bundle", quantize=quantize, calibration=TEXTS)
    assert not (tmp_path / "bundle").exists()
