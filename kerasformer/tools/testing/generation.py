"""Generation: the tokens of `transformers`, and equal logits with and without a cache."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
import transformers

from kerasformer.basics.arguments import Arguments
from kerasformer.errors import InputError
from kerasformer.generation import GenerationSettings
from kerasformer.layers import CacheSpec
from kerasformer.models import KerasStep
from kerasformer.tools.testing.case import expect
from kerasformer.tools.testing.comparison import (
    PAD,
    Loaded,
    assert_close,
    further_inputs,
    ragged,
    run,
    run_reference,
    takes_positions,
)

NEW = 12
"""Number of new tokens."""

SETTINGS: dict[str, Arguments] = {
    "greedy": {},
    "varied": {"no_repeat_ngram_size": 1, "suppress_tokens": [PAD]},
    "beams": {"num_beams": 3, "length_penalty": 0.7},
}
"""Settings of generation to compare."""


def vocab_size(it: Loaded) -> int:
    """Returns the number of tokens of prompts."""
    return min(97, int(it.model.config.vocab_size))


def prompts(it: Loaded, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns three prompts with padding on the side that the model requires."""
    mask = ragged((7, 3, 5), "right" if it.model.is_encoder_decoder else "left")
    return np.random.default_rng(seed).integers(3, vocab_size(it), mask.shape).astype("int32") * mask, mask


def theirs(it: Loaded, ids: np.ndarray, mask: np.ndarray, **settings: object) -> transformers.utils.ModelOutput:
    """Returns what the reference generates."""
    return it.reference.generate(
        torch.tensor(ids).long(),
        attention_mask=torch.tensor(mask).long(),
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        use_cache=not it.model.is_encoder_decoder,  # transformers fails if the stacks differ in length
        output_scores=True,
        **further_inputs(it.reference, ids),
        **settings,
    )


def check_tokens(it: Loaded, settings: GenerationSettings) -> None:
    """Checks that the generated tokens are those of `transformers`."""
    ids, mask = prompts(it)
    end = [30, 31, 32, 33]
    expected = theirs(it, ids, mask, eos_token_id=end, **settings)
    ours = it.model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW, eos_token_id=end, jit_compile=False, **settings
    )
    begin = 1 if it.model.is_encoder_decoder else ids.shape[1]
    for index, (answer, full) in enumerate(zip(ours, expected.sequences[:, begin:].tolist(), strict=True)):
        same = answer.tolist() == full[: len(answer)] and set(full[len(answer) :]) <= {PAD, *end}
        expect(same, f"tokens of prompt {index} with {dict(settings)}: {answer.tolist()}, expected {full}")
    if "num_beams" not in settings:
        best = torch.stack(expected.scores).topk(2, dim=-1).values
        margin = (best[..., 0] - best[..., 1]).median()
        expect(margin >= 1e-3, f"the best tokens are {margin:.1e} apart, so that rounding decides: choose a larger std")
    if "no_repeat_ngram_size" in settings:
        count = len(np.unique(np.concatenate(ours)))
        expect(count > 12, f"{count} different tokens were generated, expected more than 12")


def check_cache(it: Loaded) -> float:
    """Checks that steps with the cache have the logits of the whole text, also after a rewind, a fork and a reorder.

    A model with a recurrent state refuses to rewind.
    """
    ids, mask = prompts(it)
    text = np.random.default_rng(1).integers(3, vocab_size(it), (3, 7)).astype("int32")
    step = KerasStep(it.model, capacity=min(48, it.model.max_answer_length or 48), jit_compile=False)
    state = step.start(ids, mask)
    if it.model.is_encoder_decoder:
        whole = run(it, {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": text})["logits"]
        following = text
    else:
        real = np.concatenate([mask, np.ones_like(text)], axis=1)
        positions = np.maximum(np.cumsum(real, axis=1) - 1, 0)
        inputs = {"input_ids": np.concatenate([ids, text], axis=1), "attention_mask": real}
        inputs |= {"position_ids": positions} if takes_positions(it) else {}
        whole = run(it, inputs)["logits"][:, ids.shape[1] - 1 : -1]
        following = np.concatenate([ids[:, -1:], text], axis=1)[:, :7]
    got = []
    for first, last in ((0, 1), (1, 2), (2, 6), (6, 7)):  # one token at a time, and four at once
        before = step.fork(state)
        logits, state = step.step(following[:, first:last], state)
        got.append(logits)
    error = assert_close({}, np.concatenate(got, axis=1), whole, "logits")
    if it.model.rewinds:
        again, _ = step.step(following[:, 3:7], step.rewind(state, 4))
        error = max(error, assert_close({}, again, whole[:, 3:7], "after rewind"))
        before = step.rewind(step.fork(state), 1)
    else:
        with suppress(InputError):
            step.rewind(state, 1)
            expect(False, "a model with a recurrent state has discarded a token, expected an InputError")
    rows_now = np.array([2, 0, 0])
    logits, _ = step.step(following[rows_now, 6:7], step.reorder(before, rows_now))
    return max(error, assert_close({}, logits, whole[rows_now, 6:7], "after reorder"))


def check_declared_caches(it: Loaded) -> None:
    """Checks that the model declares the cache of each layer of its decoder."""
    specs, layers = it.model.cache_specs(), it.model.backbone.decoder.layers
    name = f"{type(it.model.backbone).__name__}.cache_specs"
    expect(len(specs) == len(layers), f"{name} has {len(specs)} entries, expected {len(layers)}, one for each layer")
    for index, spec in enumerate(specs):
        expect(isinstance(spec, CacheSpec), f"{name} of layer {index}: {spec!r}, expected a CacheSpec")


def has_windows(it: Loaded) -> bool:
    """Whether layers of a decoder have caches that are shorter than a text of 60 tokens, which the model can read."""
    longest = it.model.max_length
    if it.model.is_encoder_decoder or (longest is not None and longest < 61):
        return False
    step = KerasStep(it.model, capacity=61, jit_compile=False)
    ids, mask = prompts(it)
    return bool(min(tensors[0].shape[2] for tensors in step.start(ids, mask).caches) < 30)


def check_caches_that_wrap(it: Loaded) -> float:
    """A text several times longer than the caches of the layers with a window, after a prompt longer than them."""
    ids = np.random.default_rng(2).integers(3, vocab_size(it), (3, 30)).astype("int32")
    mask = ragged((30, 11, 23), "left")
    text = np.random.default_rng(3).integers(3, vocab_size(it), (3, 30)).astype("int32")
    step = KerasStep(it.model, capacity=61, jit_compile=False)
    state = step.start(ids * mask, mask)
    shortest = min(tensors[0].shape[2] for tensors in state.caches)
    expect(shortest < 30, f"the shortest cache has {shortest} slots, expected fewer than 30")
    real = np.concatenate([mask, np.ones_like(text)], axis=1)
    inputs = {"input_ids": np.concatenate([ids * mask, text], axis=1), "attention_mask": real}
    inputs["position_ids"] = np.maximum(np.cumsum(real, axis=1) - 1, 0)
    expected = run_reference(it.reference, inputs).logits.numpy()[:, 29:-1]
    following, got = np.concatenate([ids[:, -1:], text[:, :-1]], axis=1), []
    for first, last in ((0, 1), *((start, start + 4) for start in range(1, 29, 4)), (29, 30)):
        logits, state = step.step(following[:, first:last], state)
        got.append(logits)
    return assert_close({}, np.concatenate(got, axis=1), expected, "logits")
