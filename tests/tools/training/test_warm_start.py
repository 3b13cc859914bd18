"""A warm-started encoder-decoder has the weights that `transformers` gives it, but for the new cross attention."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import transformers

import kerasformer as kf
from kerasformer import zoo
from kerasformer.errors import InputError, MissingHeadError, UnsupportedConfigError
from kerasformer.models.weights import hf_tensors
from kerasformer.tools.training import warm_start
from tests import tiny_text

pytestmark = pytest.mark.grid

BERT = {
    "vocab_size": 180, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 44,
    "max_position_embeddings": 41, "type_vocab_size": 3,
}  # fmt: skip


def save(folder, head, **settings):
    torch.manual_seed(len(folder.name))
    getattr(transformers, head)(transformers.BertConfig(**{**BERT, **settings})).save_pretrained(folder)
    tiny_text.wordpiece().save(folder)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    encoder = save(folder / "encoder", "BertModel")
    return encoder, save(folder / "the-decoder", "BertForMaskedLM", num_hidden_layers=3, num_attention_heads=4)


def test_weights_are_those_of_transformers(sources, tmp_path):
    ours = zoo.warm_start(*sources)
    theirs = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(*map(str, sources))
    expected, tensors = theirs.state_dict(), dict(hf_tensors(ours, ours.rows(saved=True)))
    copied = [name for name in tensors if "crossattention" not in name]
    assert all(np.array_equal(tensors[name], expected[name].numpy()) for name in copied)
    assert len(tensors) - len(copied) == len(ours.new_variables) == 3 * 10
    assert all("/cross_attention" in path for path in ours.new_variables)
    # All answers are those of transformers, which reads what is saved.
    again = transformers.EncoderDecoderModel.from_pretrained(ours.save_pretrained(tmp_path / "saved")).eval()
    ids, start = np.array([[2, 9, 30, 31, 3]]), np.array([[2, 17, 40]])
    with torch.no_grad():
        logits = again(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(start)).logits.numpy()
    received = np.asarray(ours({"input_ids": ids, "decoder_input_ids": start}))
    assert np.abs(received - logits).max() < 1e-5 * np.abs(logits).max()


def test_it_writes_and_is_trained(sources):
    model = zoo.warm_start(sources[1])
    assert model.config.decoder_start_token_id == 2 and model.config.eos_token_id == 3
    texts, answers = ["The sea was calm.", "A grey ship."] * 4, ["calm", "grey"] * 4
    data = kf.training.dataset(model, texts, answers, batch_size=8)
    model.compile(kf.training.optimizer(model, 3e-3, steps=8), data.loss, run_eagerly=True)
    losses = model.fit(data, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < 0.97 * losses[0]
    assert isinstance(model.generate("The sea was calm.", max_new_tokens=4, jit_compile=False), str)


def test_other_vocabularies(sources, tmp_path):
    other = tiny_text.wordpiece_with_ends()
    folder = save(tmp_path / "other", "BertForMaskedLM")
    other.save(folder)
    model = zoo.warm_start(sources[0], folder)
    assert model.tokenizer.get_vocab() != model.tokenizer.writer.get_vocab() == other.get_vocab()
    assert model.config.decoder_start_token_id == other.cls_token_id


def test_what_does_not_fit_is_named(sources, tmp_path, monkeypatch):
    with pytest.raises(MissingHeadError):
        zoo.warm_start(sources[0])
    narrow = save(tmp_path / "narrow", "BertForMaskedLM", hidden_size=24)
    with pytest.raises(UnsupportedConfigError, match="same hidden_dim. Received: 36 and 24"):
        zoo.warm_start(sources[0], narrow)
    with monkeypatch.context() as patched:
        patched.setattr(warm_start, "load", lambda *args, **settings: pytest.fail("weights are read"))
        with pytest.raises(InputError, match="The decoder must be a bert. Received: gpt2"):
            zoo.warm_start(sources[0], "story-gpt2")
    content = zoo.warm_start(sources[1]).config.to_hf()
    older = {"tie_encoder_decoder": False, "tf_legacy_loss": False}  # entries of files of earlier versions
    parts = {stack: {**content[stack], **older} for stack in ("encoder", "decoder")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zoo.architecture("encoder-decoder").Bert2BertConfig.from_hf({**content, **older, **parts})
    content["decoder"]["model_type"] = "gpt2"
    with pytest.raises(UnsupportedConfigError, match="supports only model_type='bert' in its decoder.*'gpt2'"):
        zoo.architecture("encoder-decoder").Bert2BertConfig.from_hf(content)
