"""Which answers the verification of an export compares."""

from __future__ import annotations

import numpy as np
import pytest

from kerasformer.bundle import Manifest, Signature, TensorInfo
from kerasformer.engines.fidelity.comparison import compare
from kerasformer.engines.fidelity.references import record_forward, record_step
from kerasformer.export import reference_texts as texts
from kerasformer.export.quantization.sample_inputs import single_pass_references
from kerasformer.export.references import record
from kerasformer.models.keras_forward import KerasForward
from kerasformer.tools.evaluation import examples
from tests.core.generation.engines import Toy

pytestmark = pytest.mark.grid


def recorded(model, *lengths: int, given=None):
    ids = {length: TensorInfo((1, length), "int32") for length in lengths}
    signatures = {f"forward_{length}": Signature("", {"input_ids": info}, {}) for length, info in ids.items()}
    return record(model, Manifest("tflite", model.info(), signatures), given)


class Changed:
    """A model whose scores differ at some positions of each text."""

    def __init__(self, model, where):
        self.model, self.where = KerasForward(model), where

    def run(self, inputs):
        outputs = {name: np.array(array) for name, array in self.model.run(inputs).items()}
        for array in outputs.values():
            array[:, self.where(inputs["input_ids"][0])] *= -1
        return outputs


def test_fill_mask_counts_masked_tokens_of_real_texts(models):
    model = models("bert-fill-mask")
    mask = model.tokenizer.mask_token_id
    references = recorded(model, 12, 64)
    ids, asked, made_up = (references[name] for name in ("input.input_ids", "asked", "made_up"))
    assert ((ids == mask) == (asked > 0))[made_up == 0].all()
    assert made_up.sum() == 1 and asked[made_up > 0].any()  # one text for the length 12
    answers = int(asked[made_up == 0].sum())
    assert answers > 100
    found = compare(Changed(model, lambda row: row != mask), references)
    assert (found.agreement, found.answers) == (1.0, answers) and found.mean_error < 1e-5
    assert compare(Changed(model, lambda row: row == mask), references).agreement < 0.1


def test_masked_texts_are_not_masked_again(models):
    model = models("bert-fill-mask")
    given = examples(["The [MASK] was hot, the bread was [MASK].", "Rain is [MASK]."])
    references = recorded(model, given=given)
    assert references["input.input_ids"].shape[0] == 2
    assert references["asked"].sum(axis=1).tolist() == [2, 1]


def test_a_made_up_text_counts_only_for_the_largest_error(models):
    model = models("distilbert-text-classification")
    references = recorded(model, 12, 64)
    (row,) = np.flatnonzero(references["made_up"])
    length = int(references["input.attention_mask"][row].sum())

    forward = KerasForward(model)

    class Broken:
        def run(self, inputs):
            sign = -1 if inputs["input_ids"].shape[1] == length else 1
            return {name: sign * array for name, array in forward.run(inputs).items()}

    found = compare(Broken(), references)
    assert found.agreement == 1 and found.max_error > 0.1 and found.mean_error < 1e-5


def test_entities_are_compared_only_at_words(models):
    model = models("bert-token-classification")
    special = [model.tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]")]
    references = recorded(model, 64)
    assert compare(Changed(model, lambda row: np.isin(row, special)), references).agreement == 1
    assert compare(Changed(model, lambda row: ~np.isin(row, special)), references).agreement < 0.5


def test_questions_are_compared_by_spans_of_the_context(models):
    model = models("bert-question-answering")
    references = recorded(model, 64)
    real = references["made_up"] == 0
    assert real.sum() == 2 * len(texts.QUESTIONS) == 2 * len(texts.READING)

    forward = KerasForward(model)

    class Outside:
        """Wrong in the question and at special tokens."""

        def run(self, inputs):
            outputs = {name: np.array(array) for name, array in forward.run(inputs).items()}
            count = inputs["input_ids"].shape[1]
            row = (references["input.input_ids"][:, :count] == inputs["input_ids"]).all(axis=1).argmax()
            for array in outputs.values():
                array[0, references["asked"][row, :count] == 0] = 99
            return outputs

    found = compare(Outside(), references)
    assert (found.agreement, found.answers) == (1.0, real.sum())


def test_a_span_does_not_end_before_its_start():
    scores = {"start_logits": [1.0, 0.0, 5.0, 0.0], "end_logits": [4.0, 0.0, 0.0, 3.9]}

    class Fixed:
        run = staticmethod(lambda inputs: {name: np.array([row], "float32") for name, row in scores.items()})

    ids = np.ones((1, 4), "int32")
    references = record_forward(Fixed(), {"input_ids": ids, "attention_mask": ids}, asked=ids)
    scores["end_logits"][0] = 3.0  # the highest end before, which no span had
    assert compare(Fixed(), references).agreement == 1
    scores["end_logits"][3] = -1.0
    assert compare(Fixed(), references).agreement == 0


def test_hidden_states_agree_by_the_mean_of_a_text(models):
    model = models("bert-feature-extraction")
    references = recorded(model, 64)

    forward = KerasForward(model)

    class Shifted:
        """Keeps the sign of the 64 largest entries and flips the others."""

        def run(self, inputs):
            states = np.array(forward.run(inputs)["last_hidden_state"])
            order = np.argsort(-states, axis=-1)
            np.put_along_axis(states, order[..., 64:], -np.take_along_axis(states, order[..., 64:], -1), -1)
            return {"last_hidden_state": states}

    found = compare(Shifted(), references)
    assert found.answers == len(texts.READING)
    assert found.agreement < 0.5


def test_tokens_after_the_end_of_a_text_are_not_compared():
    prompts = np.array([[0, 0, 5], [3, 4, 7]], "int32"), np.array([[0, 0, 1], [1, 1, 1]], "int32")
    plain = record_step(Toy(), *prompts, None, 8)
    end = int(plain["tokens"][0, 2])
    references = record_step(Toy(), *prompts, None, 8, [end])
    firsts = [row.index(end) + 1 if end in row else 8 for row in plain["tokens"].tolist()]
    assert references["asked"].sum(axis=1).tolist() == firsts and firsts[0] <= 3
    engine = Toy()
    count = len(prompts[0][0])
    engine.of = lambda row, of=engine.of: -of(row) if len(row) > count + max(firsts) else of(row)
    found = compare(engine, references)
    assert (found.answers, found.agreement, found.generated) == (sum(firsts), 1.0, 1.0)
    del references["asked"]
    assert compare(engine, references).agreement < 1  # as in older bundles


def test_a_single_pass_gives_the_answers_of_single_steps(models):
    model = models("gpt2-text-generation")
    references = record(model, Manifest("onnx", model.info(), {}, capacity=64), None)
    whole = single_pass_references(model, references, 8)
    assert len(whole["output.logits.values"]) == len(references["tokens"])
    assert compare(_Reads(model, whole), whole).agreement == 1


class _Reads:
    def __init__(self, model, references):
        self.forward, self.answers = KerasForward(model), references["asked"]

    def run(self, inputs):
        compared = inputs.pop("compared")
        inputs.pop("token_type_ids", None)
        scores = self.forward.run(inputs)["logits"]
        return {"logits": scores[:, -int(compared.sum()) :]}
