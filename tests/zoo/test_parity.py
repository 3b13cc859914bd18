"""Parity with `transformers` from its checkpoints: every architecture, head, kind of padding and optional input."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from kerasformer.errors import InputError
from tests.grids import grid
from tests.zoo.harness import (
    PAD,
    assert_close,
    assert_same_outputs,
    dense_weights,
    distinct,
    first_of_each,
    main_tasks,
    make_inputs,
    rows,
    run,
    run_reference,
    takes_positions,
)

ROWS = rows()


@pytest.mark.parametrize("row", main_tasks(first_of_each(ROWS)))
def test_the_checkpoint_opens_as_what_it_was_saved_for(loaded, row):
    case, task = row
    model = loaded(row).model
    assert type(model) is case.kind(task)
    assert model.new_variables == ()
    assert (len(model.info().labels) == 5) == model.has_labels


@pytest.mark.parametrize("side", grid([None, "right", "left"], always=("right", "left")))
@pytest.mark.parametrize("row", main_tasks(first_of_each(ROWS)))
def test_outputs(loaded, row, side):
    it = loaded(row)
    inputs = make_inputs(it, side)
    assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))


@pytest.mark.parametrize("row", first_of_each(row for row in ROWS if row.values[0][1] in row.values[0][0].tasks[:1]))
def test_hidden_states_and_attention(loaded, row):
    it = loaded(row)
    inputs = make_inputs(it)
    expected = run_reference(it.reference, inputs, output_hidden_states=True, output_attentions=True)
    actual = it.model(inputs, return_hidden_states=True, return_attention=True)
    # States of the reference by the names of this package, with the mask of the queries.
    names = {name: (name, "") for name in ("hidden_states", "attentions")}
    if it.model.is_encoder_decoder:
        names = {f"encoder_{name}": (f"encoder_{name}", "") for name in names}
        names |= {name: (f"decoder_{name}", "decoder_") for name in ("hidden_states", "attentions")}
        names["cross_attentions"] = ("cross_attentions", "decoder_")
    assert actual.keys() == {"output", *names}
    for name, (their_name, side) in names.items():
        theirs, queries = expected[their_name], inputs[f"{side}attention_mask"]
        assert len(actual[name]) == len(theirs)
        for index, (a, b) in enumerate(zip(actual[name], theirs, strict=True)):
            # Weights of padding queries are undefined.
            real = queries[:, None, :, None] if "attentions" in name else queries[:, :, None]
            b = b.numpy()
            if it.case.banded and name == ("encoder_attentions" if it.model.is_encoder_decoder else "attentions"):
                if b.shape[-1] % 2 == 0:  # the weights of the global token are another output
                    real = real * (np.arange(b.shape[2]) > 0)[:, None]
                b = dense_weights(b)
            assert_close({}, keras.ops.convert_to_numpy(a) * real, b * real, f"{name}[{index}]")


@pytest.mark.parametrize("row", main_tasks(distinct(ROWS)))
def test_a_text_is_the_same_alone_and_in_a_padded_batch(loaded, row):
    it = loaded(row)
    side = "left" if it.model.generates and not it.model.is_encoder_decoder else "right"
    batch = make_inputs(it, side)
    together = run(it, batch)
    alone = {}
    for name, array in batch.items():
        own = batch["decoder_attention_mask" if name.startswith("decoder_") else "attention_mask"][1]
        alone[name] = array[1:2, own > 0]
    answers = batch["decoder_attention_mask" if it.model.is_encoder_decoder else "attention_mask"]
    for name, value in run(it, alone).items():
        expected = together[name][1:2]
        if expected.shape[:2] == (1, answers.shape[1]):
            expected = expected[:, answers[1] > 0]
        assert_close({}, value, expected, name)


@pytest.mark.parametrize("row", main_tasks(distinct(ROWS)))
def test_what_padding_holds_changes_nothing(loaded, row):
    it = loaded(row)
    inputs = make_inputs(it)
    changed = dict(inputs)
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if name in inputs:
            changed[name] = np.where(inputs[mask] > 0, inputs[name], 7)
    assert (inputs["input_ids"] == PAD).any()
    assert_same_outputs(inputs, run(it, changed), run(it, inputs))


@pytest.mark.parametrize("row", first_of_each(rows(tasks=("feature-extraction", "fill-mask", "text-generation"))))
def test_positions_are_honoured_or_refused(loaded, row):
    it = loaded(row)
    inputs = make_inputs(it)
    inputs["position_ids"] = np.random.default_rng(5).permutation(9)[None].repeat(3, axis=0).astype("int32")
    if takes_positions(it):
        assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))
    else:
        with pytest.raises(InputError, match="position_ids"):
            run(it, inputs)
