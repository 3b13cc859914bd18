"""A tiny model with a chat template, whose answers end after a few tokens."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests import shared
from tests.core.tokenization.chat_templates.conversations import TEMPLATES

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def save_tokenizer(folder: Path, chat_template: str | None = None) -> transformers.PreTrainedTokenizerFast:
    """Saves a byte-level tokenizer with special tokens for chats, and returns it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Not on all of them: the vocabulary stays what it is when templates are added.
    backend.train_from_iterator([TEMPLATES[name] for name in ("chatml", "alternating", "tools")], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", additional_special_tokens=SPECIAL[2:]
    )
    tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_model(folder: Path, window: int | None = None) -> None:
    """Saves a decoder with random weights and the tokenizer, with the template of ChatML.

    Its configuration specifies another end token than the template, as those of some published models do.

    Args:
        folder: New folder.
        window: Sliding window of all layers; none by default.
    """
    tokenizer = save_tokenizer(folder, TEMPLATES["chatml"])
    torch.manual_seed(3)
    settings = {"sliding_window": window} if window else {}
    config = (transformers.MistralConfig if window else transformers.LlamaConfig)(
        vocab_size=len(tokenizer),
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,
        **settings,
    )
    model = (transformers.MistralForCausalLM if window else transformers.LlamaForCausalLM)(config)
    with torch.no_grad():  # the end token of a turn is probable, but not always the best
        model.lm_head.weight[3] += 0.12
    model.save_pretrained(folder)


def shared_chat(kind: str) -> Path:
    """The folder of the model, `"checkpoint"`, or its bundle of a format; made once a session."""
    folder = shared.once("chat-checkpoint", save_model)
    if kind == "checkpoint":
        return folder

    def export(out: Path) -> None:
        import kerasformer as kf

        kf.export.export(kf.zoo.load(folder), out, kind, capacity=256)

    return shared.once(f"chat-{kind}", export)
