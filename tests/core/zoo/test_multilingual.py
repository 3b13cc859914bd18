"""mBART and M2M-100, in addition to the cases of all architectures: start of the decoder, positions and padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from kerasformer import zoo
from kerasformer.models.keras_engine import KerasStep
from kerasformer.tools.testing.comparison import assert_close, ragged
from tests.core.zoo.cases import M2M_100, MBART

pytestmark = pytest.mark.grid

NEW = 9


def saved(folder: Path, kind: Any, config: Any) -> tuple[Any, Any]:
    """Returns a model of `transformers` with random weights, and the model loaded from its files."""
    torch.manual_seed(0)
    reference = kind(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter += 0.15 * torch.randn(parameter.shape)
    reference.save_pretrained(folder)
    return reference, zoo.load(folder)


@pytest.fixture(scope="module")
def m2m_100(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A model whose positions start at 4, with as many layers in both stacks, so that the reference has caches."""
    settings = {**M2M_100, "pad_token_id": 3, "decoder_start_token_id": 2, "decoder_attention_heads": 3}
    kind = transformers.M2M100ForConditionalGeneration
    return saved(tmp_path_factory.mktemp("m2m_100"), kind, transformers.M2M100Config(**settings))


def texts(pad: int, side: str, lengths: tuple[int, ...] = (9, 4, 6), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns random texts, and their mask."""
    mask = ragged(lengths, side)
    ids = np.random.default_rng(seed).integers(4, 97, mask.shape).astype("int32")
    return np.where(mask > 0, ids, pad).astype("int32"), mask


def tensors(**arrays: np.ndarray) -> dict[str, Any]:
    return {name: torch.tensor(value).long() for name, value in arrays.items()}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("masked", [True, False])
def test_padding_has_no_position(m2m_100, side, masked):
    """Also a padding token within a text, and without a mask."""
    reference, model = m2m_100
    ids, mask = texts(3, side)
    ids[0, 4] = 3
    target, _ = texts(3, "right", (5, 5, 5), 1)
    arrays = {"input_ids": ids, "decoder_input_ids": target, **({"attention_mask": mask} if masked else {})}
    with torch.no_grad():
        expected = reference(**tensors(**arrays)).logits.numpy()
    assert_close({}, np.asarray(model(arrays)), expected, "logits")


def test_positions_after_a_padding_token_in_the_cache(m2m_100):
    """As in the reference with a cache, a padding token counts as a position in the decoder."""
    reference, model = m2m_100
    ids, mask = texts(3, "right")
    target, _ = texts(3, "right", (8, 8, 8), 1)
    target[:, 2] = 3
    step, expected, cache = KerasStep(model, capacity=16, jit_compile=False), [], None
    with torch.no_grad():
        encoded = reference.model.encoder(**tensors(input_ids=ids, attention_mask=mask))
        for token in torch.tensor(target).long().T:
            output = reference(
                encoder_outputs=encoded,
                attention_mask=torch.tensor(mask).long(),
                decoder_input_ids=token[:, None],
                cache=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            expected.append(output.logits.numpy())
    logits, _ = step.step(target, step.start(ids, mask))
    assert_close({}, logits, np.concatenate(expected, axis=1), "logits")


def test_the_last_token_is_the_start_of_the_decoder(tmp_path):
    reference, model = saved(
        tmp_path, transformers.MBartModel, transformers.MBartConfig(**{**MBART, "pad_token_id": 1})
    )
    ids, mask = texts(1, "right")
    shifted = shift_tokens_right(torch.tensor(ids), 1).numpy()
    assert shifted[:, 0].tolist() == [ids[0, 8], ids[1, 3], ids[2, 5]]
    for attention_mask in (mask, None):
        np.testing.assert_array_equal(np.asarray(model.backbone.shift_right(ids, attention_mask)), shifted)
    with torch.no_grad():
        expected = reference(**tensors(input_ids=ids, attention_mask=mask)).last_hidden_state.numpy()
    arrays = {"input_ids": ids, "attention_mask": mask}
    assert_close(arrays, np.asarray(model(arrays)), expected, "hidden states")
