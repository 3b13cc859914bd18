"""Trains the preset story-gpt2: a small GPT-2 that continues English prose, on public-domain books.

    python story-gpt2.py DATA OUT

DATA is a folder of books as plain text, optionally compressed by gzip; the model is saved to OUT.
"""

from __future__ import annotations

import argparse
import gzip
import math
import re
import time
from pathlib import Path

import keras
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import kerasformer as kf
from kerasformer.tokenization import Tokenizer

END = "<|endoftext|>"
LENGTH = 256
# Excluded, because a small model learns from verse to break lines at random.
VERSE = ("blake", "milton", "shakespeare", "whitman")
PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "\ufeff": ""})


def book_text(path: Path) -> str:
    """Reads the paragraphs of a book, one per line, without headings and notes of the publisher."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    text = text.translate(PLAIN).replace("\r", "")
    text = re.split(r"\*\*\* ?START OF[^\n]*\n", text)[-1]
    text = re.split(r"\*\*\* ?END OF", text)[0]
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    heading = re.compile(r"(chapter|volume|book|part|epilogue|produced by|\[)\b", re.IGNORECASE)
    return "\n".join(p for p in paragraphs if re.search("[a-z]", p) and not (heading.match(p) and len(p) < 120))


def read_books(folder: Path) -> tuple[list[str], list[str]]:
    """Splits each book into the first 96 % for training and the rest for evaluation."""
    paths = sorted(path for path in folder.rglob("*.txt*") if not path.name.startswith(VERSE))
    train, held_out = [], []
    for path in paths:
        text = book_text(path)
        cut = text.rindex("\n", 0, int(0.96 * len(text)))
        train.append(text[:cut])
        held_out.append(text[cut + 1 :])
    print(f"{len(paths)} books, {sum(map(len, train)):,} characters, held out {sum(map(len, held_out)):,}")
    return train, held_out


def train_tokenizer(texts: list[str], vocab_size: int) -> Tokenizer:
    """Trains a byte-level BPE vocabulary, as that of GPT-2."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[END], initial_alphabet=alphabet)
    backend.train_from_iterator((line for text in texts for line in text.split("\n")), trainer)
    named = {"bos_token": END, "eos_token": END, "unk_token": END, "pad_token": END}
    return Tokenizer(backend, special_tokens=named, model_max_length=LENGTH)


def token_ids(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Concatenates the ids of all texts, with an end token after each."""
    return np.concatenate([[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts]).astype("int32")


def chunks(ids: np.ndarray, starts: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Cuts inputs `(N, LENGTH)` that start at `starts`, and their labels, the next tokens."""
    indices = starts[:, None] + np.arange(LENGTH)
    return {"input_ids": ids[indices]}, ids[indices + 1]


class Schedule(keras.callbacks.Callback):
    """Learning rate with warm-up and cosine decay; saves the model every 100 steps, so that a run can be stopped.

    Args:
        folder: Destination of the model.
        rate: Maximum learning rate.
        steps: Maximum number of steps.
        minutes: Maximum duration in minutes; on a slow machine the rate decays in fewer steps.
    """

    def __init__(self, folder: Path, rate: float, steps: int, minutes: float) -> None:
        super().__init__()
        self.folder, self.rate, self.steps, self.minutes = folder, rate, steps, minutes
        self.step, self.start = 0, time.monotonic()

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Sets the learning rate."""
        elapsed = (time.monotonic() - self.start) / 60
        progress = min(1.0, max(self.step / self.steps, elapsed / self.minutes))
        self.model.optimizer.learning_rate = self.rate * min(
            (self.step + 1) / 100, 0.02 + 0.49 * (1 + math.cos(math.pi * progress))
        )
        self.model.stop_training = progress >= 1.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Counts steps, reports the loss and saves the model."""
        self.step += 1
        if self.step % 100 == 0:
            print(f"step {self.step}, loss {(logs or {})['loss']:.3f}", flush=True)
            self.model.save_pretrained(self.folder, dtype="float16")


def evaluate(model: kf.zoo.CausalLM, ids: np.ndarray, texts: list[str]) -> dict[str, float]:
    """Returns the perplexity per token and per word, and the bits per byte, of held-out texts."""
    x, y = chunks(ids, np.arange(0, len(ids) - LENGTH - 1, LENGTH))
    loss = model.evaluate(x, y, batch_size=16, verbose=0)
    nats = loss * len(ids)
    return {
        "perplexity per token": math.exp(loss),
        "perplexity per word": math.exp(nats / sum(len(text.split()) for text in texts)),
        "bits per byte": nats / math.log(2) / sum(len(text.encode()) for text in texts),
    }


def new_model(tokenizer: Tokenizer) -> kf.zoo.CausalLM:
    """Creates an untrained model with its generation settings."""
    end = tokenizer.eos_token_id
    model = kf.zoo.build(
        "gpt2",
        vocab_size=tokenizer.vocab_size,
        max_length=LENGTH,
        hidden_dim=128,
        num_layers=4,
        num_heads=4,
        residual_dropout=0.0,
        embedding_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
    )
    model.tokenizer = tokenizer
    model.generation_config = model.generation_config.replace(
        max_new_tokens=60, do_sample=True, temperature=0.8, top_k=40, top_p=0.95, repetition_penalty=1.1
    )
    return model


def main() -> None:
    """Reads the books, and trains, evaluates and saves the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--resume", type=Path, help="folder of a model whose training to continue")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    train, held_out = read_books(options.data)
    if options.resume is None:
        model = new_model(train_tokenizer(train, vocab_size=4096))
    else:
        model = kf.zoo.load(options.resume)
    ids, held_out_ids = token_ids(model.tokenizer, train), token_ids(model.tokenizer, held_out)
    print(f"{len(ids):,} tokens, held out {len(held_out_ids):,}; {model.count_params():,} parameters", flush=True)

    model.compile(
        keras.optimizers.AdamW(options.learning_rate, weight_decay=0.05, beta_2=0.98, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True,
    )
    # Random chunks, some at a time, since they do not all fit into memory.
    parts = (options.steps // 50, 50 * options.batch_size)
    starts = np.random.default_rng(1).integers(0, len(ids) - LENGTH - 1, parts)
    schedule = Schedule(options.out, options.learning_rate, options.steps, options.minutes)
    for part in starts:
        model.fit(*chunks(ids, part), batch_size=options.batch_size, callbacks=[schedule], verbose=0)
    model.save_pretrained(options.out, dtype="float16")
    for name, value in evaluate(model, held_out_ids, held_out).items():
        print(f"{name}: {value:.3f}")
    print(model.generate("The old man looked at the sea and", seed=1))


if __name__ == "__main__":
    main()
