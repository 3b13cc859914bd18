"""Trains the preset summarizer-t5: a small T5 that summarizes the description of a program in one line.

    apt-get -o Acquire::Languages=en update
    /usr/lib/apt/apt-helper cat-file /var/lib/apt/lists/*_main_i18n_Translation-en.lz4 > Translation-en
    python summarizer-t5.py Translation-en OUT

Debian's package descriptions are pairs of a text and its one-line synopsis.
"""

from __future__ import annotations

import argparse
import math
import re
import time
from pathlib import Path

import keras
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import kerasformer as kf
from kerasformer.tokenization import Tokenizer

PREFIX = "summarize: "
REPEAT = "repeat: "
SOURCE, TARGET = 64, 16
PAD, EOS = 0, 1
Pair = tuple[str, str]


def read_pairs(path: Path) -> list[Pair]:
    """Reads pairs of a description and its synopsis: for each first paragraph the pair with the shortest synopsis.

    Packages with the same source share a description. Suffixes of a synopsis such as "(development files)" are removed.
    """
    best: dict[str, Pair] = {}
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        match = re.search(r"^Description-en: (.*)\n((?: .*(?:\n|$))+)", entry, re.MULTILINE)
        if match is None:
            continue
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n \.\n", "\n" + match[2])]
        synopsis = re.sub(r"\s*[(\[][^()]*[)\]]$|\s+[-–—]+ \S+( \S+)?( \S+)?$", "", match[1].strip())
        synopsis = re.sub(r"^(an?|the) ", "", synopsis, flags=re.IGNORECASE)
        if not 3 <= len(synopsis.split()) <= 12 or not synopsis.isascii():
            continue
        known = best.get(paragraphs[0])
        if known is None or len(synopsis) < len(known[1]):
            best[paragraphs[0]] = (" ".join(paragraphs), synopsis)
    return [pair for pair in best.values() if is_summary(*pair)]


def is_summary(description: str, synopsis: str) -> bool:
    """Whether the first 60 words of the description contain half of the words of the synopsis, except for endings."""
    stems = {word[:5] for word in words(description)[:60]}
    content = [word for word in words(synopsis) if len(word) > 2]
    return len(words(description)) >= 10 and 2 * sum(word[:5] in stems for word in content) >= len(content) > 0


def words(text: str) -> list[str]:
    """Splits a text into lower-case words, as ROUGE does."""
    return re.findall("[a-z0-9]+", text.lower())


def train_tokenizer(pairs: list[Pair], vocab_size: int) -> Tokenizer:
    """Trains a Unigram vocabulary as in SentencePiece and T5."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    # Separates punctuation from words, so that a word is the same token before a full stop.
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"
    )
    trainer.initial_alphabet = [chr(code) for code in range(33, 127)]
    lines = (text for pair in pairs for text in (PREFIX + pair[0], pair[1]) if text.isascii())
    backend.train_from_iterator(lines, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", EOS)]
    )
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return Tokenizer(backend, special_tokens=named, model_max_length=512)


def encoded(tokenizer: Tokenizer, texts: list[str], width: int) -> np.ndarray:
    """Returns ids `(N, width)`, each row with an end token and padding on the right."""
    result = np.full((len(texts), width), PAD, "int32")
    for row, text in zip(result, texts, strict=True):
        ids = [*tokenizer.encode(text)[:-1][: width - 1], EOS]
        row[: len(ids)] = ids
    return result


def arrays(tokenizer: Tokenizer, pairs: list[Pair]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the inputs of the model and the labels; the decoder's input is the labels shifted by one token."""
    ids = encoded(tokenizer, [text for text, _ in pairs], SOURCE)
    labels = encoded(tokenizer, [line for _, line in pairs], TARGET)
    shifted = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).astype("int32"), "decoder_input_ids": shifted}, labels


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


def rouge_l(candidate: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (Lin 2004, "ROUGE")."""
    a, b = words(candidate), words(reference)
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return 2 * row[-1] / (len(a) + len(b)) if a and b else 0.0


def first_sentence(text: str) -> str:
    """Returns the first sentence of a text, the baseline."""
    return re.split(r"(?<=[.:!?])\s", text)[0]


def summarize(model: kf.zoo.Seq2SeqLM, texts: list[str]) -> list[str]:
    """Generates a line for each text."""
    lines: list[str] = []
    for start in range(0, len(texts), 32):
        ids = encoded(model.tokenizer, [PREFIX + text for text in texts[start : start + 32]], SOURCE)
        new = model.generate(ids, attention_mask=(ids != PAD).astype("int32"))
        lines += model.tokenizer.batch_decode(new, skip_special_tokens=True)
    return lines


def report(model: kf.zoo.Seq2SeqLM, pairs: list[Pair]) -> None:
    """Prints the ROUGE-L of the model and of the first sentence, and some examples."""
    lines = summarize(model, [text for text, _ in pairs])
    for line, (text, synopsis) in list(zip(lines, pairs, strict=True))[:12]:
        print(f"  text: {text[:160]}\n  model: {line}\n  reference: {synopsis}\n")
    score = np.mean([rouge_l(line, synopsis) for line, (_, synopsis) in zip(lines, pairs, strict=True)])
    baseline = np.mean([rouge_l(first_sentence(text), synopsis) for text, synopsis in pairs])
    print(f"ROUGE-L on {len(pairs)} held-out descriptions: {score:.4f}; their first sentences: {baseline:.4f}")


def main() -> None:
    """Reads the descriptions, and trains, evaluates and saves the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    pairs = read_pairs(options.data)
    np.random.default_rng(1).shuffle(pairs)
    held_out, train = [(str(a), str(b)) for a, b in pairs[:400]], [(str(a), str(b)) for a, b in pairs[400:]]
    tokenizer = train_tokenizer(train[:6000], vocab_size=4000)
    print(f"{len(pairs)} pairs", flush=True)

    model = kf.zoo.build(
        "t5",
        vocab_size=tokenizer.vocab_size,
        hidden_dim=128,
        head_dim=32,
        num_heads=4,
        intermediate_dim=384,
        num_layers=3,
        num_decoder_layers=2,
        max_distance=64,
        dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        task_specific_params={"summarization": {"prefix": PREFIX, "max_length": TARGET, "num_beams": 4}},
    )
    model.tokenizer = tokenizer
    model.generation_config = model.generation_config.replace(
        max_new_tokens=TARGET, num_beams=4, no_repeat_ngram_size=3, early_stopping=True, decoder_start_token_id=PAD
    )
    print(f"{model.count_params():,} parameters", flush=True)

    # Updates relative to the scale of a tensor suit T5, whose tables and kernels have very different initial scales.
    model.compile(
        keras.optimizers.Adafactor(options.learning_rate, relative_step=False),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD),
        jit_compile=True,
    )
    schedule = Schedule(options.out, options.learning_rate, options.steps, options.minutes)
    # Repeating the text first teaches the decoder cross attention faster than synopses do.
    repeats = [(REPEAT + text, text) for text, _ in train]
    synopses = [(PREFIX + text, line) for text, line in train]
    for task, share in ((repeats, 0.3), (synopses, 0.7)):
        count = int(share * options.steps) * options.batch_size
        rows = np.resize(np.random.default_rng(1).permutation(len(task)), count)
        x, y = arrays(tokenizer, task)
        x, y = {name: value[rows] for name, value in x.items()}, y[rows]
        model.fit(x, y, batch_size=options.batch_size, callbacks=[schedule], verbose=0)
    model.save_pretrained(options.out, dtype="float16")
    report(model, held_out)


if __name__ == "__main__":
    main()
