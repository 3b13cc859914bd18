"""Parity with `transformers` from its checkpoints: outputs, padding, positions, hidden states and attention."""

from __future__ import annotations

import keras
import numpy as np

from kerasformer.errors import InputError
from kerasformer.tools.testing.case import expect
from kerasformer.tools.testing.comparison import (
    PAD,
    Loaded,
    assert_close,
    assert_same_outputs,
    dense_weights,
    make_inputs,
    run,
    run_reference,
    takes_positions,
)


def check_class(it: Loaded) -> None:
    """Checks that a checkpoint opens as the class for which it was saved, with all weights and labels."""
    model_class, expected = type(it.model), it.case.kind(it.task)
    expect(model_class is expected, f"the checkpoint opens as {model_class.__name__}, expected {expected.__name__}")
    expect(it.model.new_variables == (), f"variables without a tensor: {', '.join(it.model.new_variables)}")
    labels = len(it.model.info().labels)
    expect((labels == 5) == it.model.has_labels, f"{labels} labels, expected {5 if it.model.has_labels else 'none'}")


def check_outputs(it: Loaded, side: str | None) -> float:
    """Checks the outputs of texts with padding on a side, `None` for no padding; returns the largest error."""
    inputs = make_inputs(it, side)
    return assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))


def check_hidden_states_and_attention(it: Loaded) -> float:
    """Checks the hidden states and attention weights of all layers; returns the largest error."""
    inputs = make_inputs(it)
    expected = run_reference(it.reference, inputs, output_hidden_states=True, output_attentions=True)
    actual = it.model(inputs, return_hidden_states=True, return_attention=True)
    # States of the reference by the names of this package, with the mask of the queries.
    names = {name: (name, "") for name in ("hidden_states", "attentions")}
    if it.model.is_encoder_decoder:
        names = {f"encoder_{name}": (f"encoder_{name}", "") for name in names}
        names |= {name: (f"decoder_{name}", "decoder_") for name in ("hidden_states", "attentions")}
        names["cross_attentions"] = ("cross_attentions", "decoder_")
    outputs = {"output", *names}
    expect(actual.keys() == outputs, f"outputs of the model: {sorted(actual)}, expected {sorted(outputs)}")
    error = 0.0
    for name, (their_name, side) in names.items():
        theirs, queries = expected[their_name], inputs[f"{side}attention_mask"]
        ours_of_layers = [x for x in actual[name] if x is not None]  # a layer without attention has no weights
        expect(len(ours_of_layers) == len(theirs), f"{name} of {len(ours_of_layers)} layers, expected {len(theirs)}")
        for index, (a, b) in enumerate(zip(ours_of_layers, theirs, strict=True)):
            # Weights of padding queries are undefined.
            real = queries[:, None, :, None] if "attentions" in name else queries[:, :, None]
            b = b.numpy()
            if it.case.banded and name == ("encoder_attentions" if it.model.is_encoder_decoder else "attentions"):
                if b.shape[-1] % 2 == 0:  # the weights of the global token are another output
                    real = real * (np.arange(b.shape[2]) > 0)[:, None]
                b = dense_weights(b)
            ours = keras.ops.convert_to_numpy(a)
            error = max(error, assert_close({}, ours * real, b * real, f"{name}[{index}]"))
    return error


def check_alone_and_in_a_batch(it: Loaded) -> float:
    """Checks that a text has the same outputs alone and in a padded batch; returns the largest error."""
    side = "left" if it.model.generates and not it.model.is_encoder_decoder else "right"
    batch = make_inputs(it, side)
    together = run(it, batch)
    alone = {}
    for name, array in batch.items():
        mask = batch["decoder_attention_mask" if name.startswith("decoder_") else "attention_mask"][1]
        alone[name] = array[1:2, mask > 0]
    answers = batch["decoder_attention_mask" if it.model.is_encoder_decoder else "attention_mask"]
    error = 0.0
    for name, value in run(it, alone).items():
        expected = together[name][1:2]
        if expected.shape[:2] == (1, answers.shape[1]):
            expected = expected[:, answers[1] > 0]
        error = max(error, assert_close({}, value, expected, name))
    return error


def check_padding_is_ignored(it: Loaded) -> float:
    """Checks that the tokens of padding change no output; returns the largest error."""
    inputs = make_inputs(it)
    changed = dict(inputs)
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if name in inputs:
            changed[name] = np.where(inputs[mask] > 0, inputs[name], 7)
    expect((inputs["input_ids"] == PAD).any(), "the inputs have no padding")
    return assert_same_outputs(inputs, run(it, changed), run(it, inputs))


def check_positions(it: Loaded) -> float:
    """Checks that `position_ids` have the effect that they have in the reference, or are refused."""
    inputs = make_inputs(it)
    inputs["position_ids"] = np.random.default_rng(5).permutation(9)[None].repeat(3, axis=0).astype("int32")
    if takes_positions(it):
        return assert_same_outputs(inputs, run(it, inputs), run_reference(it.reference, inputs))
    try:
        run(it, inputs)
    except InputError as error:
        expect("position_ids" in str(error), f"the error for position_ids does not name them: {error}")
        return 0.0
    raise AssertionError("position_ids are accepted, although the reference does not take them")
