"""Saved models have equal tensors, configurations and outputs in `transformers`, this package and Keras."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import safetensors.numpy

from kerasformer import zoo
from kerasformer.models import Offset, PretrainedModel, variables_by_path
from kerasformer.tools.testing.case import expect
from kerasformer.tools.testing.comparison import Loaded, assert_same_outputs, make_inputs, run, run_reference

_BOOKKEEPING = {"transformers_version", "_name_or_path", "dtype", "architectures"}
"""Keys without effect on outputs, or that depend on the version that wrote the file."""


def weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns the values of the variables by path."""
    return {path: np.asarray(value) for path, value in variables_by_path(model).items()}


def assert_same_weights(a: keras.Model, b: keras.Model) -> None:
    """Asserts that two models have equal variables."""
    ours, theirs = weights(a), weights(b)
    expect(set(ours) == set(theirs), f"variables of one model alone: {_listed(set(ours) ^ set(theirs))}")
    for path, value in ours.items():
        np.testing.assert_array_equal(value, theirs[path], err_msg=path)


def unused(it: Loaded, names: Iterable[str]) -> set[str]:
    """Returns the tensors of a pooler that the head does not use (BigBird has one with each head), or are left out."""
    prefix, used = it.model.backbone.names.prefix, {row.tensor for row in it.model.rows()}
    poolers = {name for name in names if "pooler" in name and used.isdisjoint((name, prefix + name))}
    return poolers | {name for name in names if re.fullmatch(it.case.left_out, name)}


def constants(it: Loaded) -> set[str]:
    """Returns the tensors that layers compute, such as sinusoids; not every class of `transformers` saves them."""
    return {row.tensor for row in it.model.rows(it.model.bare) if not row.variables}


def reopened(it: Loaded, folder: Path) -> PretrainedModel:
    """Loads a folder with `transformers`, without missing or unexpected tensors."""
    model_class = it.case.reference_class(it.task)
    model, report = model_class.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    missing = report["missing_keys"] - unused(it, report["missing_keys"])
    problems = {"missing": missing, "unexpected": report["unexpected_keys"], "mismatched": report["mismatched_keys"]}
    differences = "; ".join(f"{name}: {_listed(keys)}" for name, keys in problems.items() if keys)
    expect(not differences, f"tensors of the saved model, as {model_class.__name__} reads them: {differences}")
    return model.eval()


def check_transformers_reads_it(it: Loaded, folder: Path) -> float:
    """Checks that `transformers` reads a saved model with equal outputs and settings; returns the largest error."""
    it.model.save_pretrained(folder)
    theirs = reopened(it, folder)
    inputs = make_inputs(it)
    error = assert_same_outputs(inputs, run(it, inputs), run_reference(theirs, inputs))
    before, after = (_settings(model.config.to_dict()) for model in (it.reference, theirs))
    for name in before:
        expect(
            name in after and after[name] == before[name],
            f"{name} of the saved config.json: {after.get(name)!r}, expected {before[name]!r}",
        )
    saved, expected = theirs.config.architectures, it.reference.config.architectures
    expect(saved == expected, f"architectures of the saved config.json: {saved}, expected {expected}")
    return error


def _settings(content: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of a configuration, and of those inside it, that describe the model."""
    return {
        name: _settings(value) if isinstance(value, dict) else value
        for name, value in content.items()
        if name not in _BOOKKEEPING
    }


def check_it_reads_itself(it: Loaded, folder: Path) -> None:
    """Checks that a saved model loads with equal class, settings and weights."""
    it.model.save_pretrained(folder)
    again = zoo.load(folder, it.case.opened_for(it.task))
    _expect_same(again, it.model)
    expect(again.generation_config == it.model.generation_config, "the saved generation settings differ")
    assert_same_weights(again, it.model)


def check_tensors(it: Loaded, folder: Path) -> None:
    """Checks that the tensors of a saved model are bit for bit those of the checkpoint."""
    it.model.save_pretrained(folder)
    before, after = (safetensors.numpy.load_file(f / "model.safetensors") for f in (it.folder, folder))
    tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "predictions.decoder.weight"}
    tied |= {"generator_lm_head.weight"}
    lost = set(before) - tied - unused(it, before) - constants(it) - set(after)
    new = set(after) - constants(it) - (set(before) - tied - unused(it, before))
    expect(not (lost or new), f"tensors of the saved model: missing: {_listed(lost)}; unexpected: {_listed(new)}")
    rows = it.model.backbone.names.in_files(it.model.rows(it.model.bare))
    added = {row.tensor: row.layout for row in rows if isinstance(row.layout, Offset)}
    for name, value in after.items():
        if name in constants(it):  # checked when they are loaded
            continue
        expected = before[name]
        if name in added:  # the sum has fewer digits of the tensor
            expected = added[name].joined(added[name].split(expected, [expected.shape]))
        np.testing.assert_array_equal(value, expected, err_msg=name)


def check_keras_file(it: Loaded, folder: Path) -> None:
    """Checks that a `.keras` file opens with equal class, settings, weights and outputs."""
    it.model.save(folder / "model.keras")
    again = keras.models.load_model(folder / "model.keras")
    _expect_same(again, it.model)
    assert_same_weights(again, it.model)
    inputs = make_inputs(it)
    expected = run(it, inputs)
    actual = again.named(again(inputs))
    for name, value in expected.items():
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(actual[name]), value, err_msg=name)


def check_summary(it: Loaded) -> None:
    """Checks that `summary` counts every weight and shows the shape of each layer."""
    page = io.StringIO()
    it.model.summary(print_fn=lambda line: page.write(line + "\n"), expand_nested=True)
    text = page.getvalue()
    count = it.model.count_params()
    expect(f"Total params: {count:,}" in text, f"summary does not show the {count:,} parameters")
    stored = dict(it.reference.named_parameters()) | {
        name: buffer for name, buffer in it.reference.named_buffers() if name in it.reference.state_dict()
    }
    counted = set(stored) - unused(it, stored) - constants(it)
    expected = sum(stored[name].numel() for name in counted)
    expect(count == expected, f"the model has {count:,} parameters, expected {expected:,}")
    expect("output (Dense)" in text, "summary does not show the parts of parts, such as output (Dense)")
    unknown = [line for line in text.splitlines() if "?" in line and "dropout" not in line]
    expect(not unknown, f"summary has layers of unknown shape: {unknown}")
    if it.model.head is not None:
        inputs = make_inputs(it)
        free = inputs["input_ids"].shape + inputs.get("decoder_input_ids", inputs["input_ids"]).shape
        outputs = map(np.asarray, keras.tree.flatten(it.model(inputs)))
        shapes = [tuple(None if size in free else size for size in output.shape) for output in outputs]
        shown = text[text.index("│ head") :].split("└")[0]
        expect(all(str(shape) in shown for shape in shapes), f"summary does not show the shapes of the head: {shapes}")


def check_backbone_config(it: Loaded) -> None:
    """Checks that the backbone can be created again from its configuration, with equal variables."""
    backbone = it.model.backbone
    copy = type(backbone).from_config(backbone.get_config())
    copy.build()
    same = copy.get_config() == backbone.get_config() and copy.config == backbone.config
    expect(same, f"{type(backbone).__name__}.from_config(backbone.get_config()) has other settings")
    ours, theirs = [v.path for v in copy.weights], [v.path.split("/", 1)[1] for v in backbone.weights]
    expect(ours == theirs, f"variables of one backbone alone: {_listed({*ours} ^ {*theirs})}")


def _listed(names: Iterable[object]) -> str:
    """Lists a few names and the number of the others."""
    names = sorted(map(str, names))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _expect_same(again: PretrainedModel, model: PretrainedModel) -> None:
    name = type(again).__name__
    expect(type(again) is type(model), f"the file opens as {name}, expected {type(model).__name__}")
    expect(again.config == model.config, f"configuration of the file: {again.config}, expected {model.config}")
