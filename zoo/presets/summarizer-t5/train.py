"""Trains the preset summarizer-t5: a small T5 that puts the description of a program into one line.

    apt-get -o Acquire::Languages=en update
    /usr/lib/apt/apt-helper cat-file /var/lib/apt/lists/*_main_i18n_Translation-en.lz4 > Translation-en
    python train.py Translation-en OUT

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
    """`(description, synopsis)`, one for each first paragraph: its shortest synopsis.

    Packages built from one source share a description; "(development files)" behind a synopsis says nothing of it.
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
    return [pair for pair in best.values() if says_it(*pair)]


def says_it(description: str, synopsis: str) -> bool:
    """Whether half of the synopsis' words, endings aside, are in the beginning of the description."""
    stems = {word[:5] for word in words(description)[:60]}
    content = [word for word in words(synopsis) if len(word) > 2]
    return len(words(description)) >= 10 and 2 * sum(word[:5] in stems for word in content) >= len(content) > 0


def words(text: str) -> list[str]:
    """Lower-case words, as ROUGE counts them."""
    return re.findall("[a-z0-9]+", text.lower())


def train_tokenizer(pairs: list[Pair], vocab_size: int) -> Tokenizer:
    """A Unigram vocabulary in SentencePiece's way, as T5's."""
    backend = tokenizers.Tokenizer(models.Unigram())
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    # A word before a full stop is the same word.
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
    """Ids `(N, width)`, each row with its end token, the rest padding."""
    result = np.full((len(texts), width), PAD, "int32")
    for row, text in zip(result, texts, strict=True):
        ids = [*tokenizer.encode(text)[:-1][: width - 1], EOS]
        row[: len(ids)] = ids
    return result


def arrays(tokenizer: Tokenizer, pairs: list[Pair]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What the model reads, and what the decoder shall write: it reads what it has written so far."""
    ids = encoded(tokenizer, [text for text, _ in pairs], SOURCE)
    written = encoded(tokenizer, [line for _, line in pairs], TARGET)
    read = np.pad(written[:, :-1], ((0, 0), (1, 0)), constant_values=PAD)
    return {"input_ids": ids, "attention_mask": (ids != PAD).astype("int32"), "decoder_input_ids": read}, written


class Pace(keras.callbacks.Callback):
    """Warms the learning rate up and lets it fall along a cosine; saves now and then, so that a run may be stopped.

    Args:
        folder: Gets the model.
        rate: The highest learning rate.
        steps: Of the whole training.
        minutes: Most minutes that it may take; a slow machine does fewer steps along the same curve.
    """

    def __init__(self, folder: Path, rate: float, steps: int, minutes: float) -> None:
        super().__init__()
        self.folder, self.rate, self.steps, self.minutes = folder, rate, steps, minutes
        self.step, self.start = 0, time.monotonic()

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Sets the learning rate."""
        elapsed = (time.monotonic() - self.start) / 60
        done = min(1.0, max(self.step / self.steps, elapsed / self.minutes))
        self.model.optimizer.learning_rate = self.rate * min(
            (self.step + 1) / 100, 0.02 + 0.49 * (1 + math.cos(math.pi * done))
        )
        self.model.stop_training = done >= 1.0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Counts, tells, saves."""
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
    """The baseline."""
    return re.split(r"(?<=[.:!?])\s", text)[0]


def summarize(model: kf.zoo.Seq2SeqLM, texts: list[str]) -> list[str]:
    """One line for each text."""
    lines: list[str] = []
    for start in range(0, len(texts), 32):
        ids = encoded(model.tokenizer, [PREFIX + text for text in texts[start : start + 32]], SOURCE)
        new = model.generate(ids, attention_mask=(ids != PAD).astype("int32"))
        lines += model.tokenizer.batch_decode(new, skip_special_tokens=True)
    return lines


def report(model: kf.zoo.Seq2SeqLM, pairs: list[Pair]) -> None:
    """ROUGE-L of the model and of the first sentence, and some examples."""
    lines = summarize(model, [text for text, _ in pairs])
    for line, (text, synopsis) in list(zip(lines, pairs, strict=True))[:12]:
        print(f"  text: {text[:160]}\n  says: {line}\n  real: {synopsis}\n")
    ours = np.mean([rouge_l(line, synopsis) for line, (_, synopsis) in zip(lines, pairs, strict=True)])
    base = np.mean([rouge_l(first_sentence(text), synopsis) for text, synopsis in pairs])
    print(f"ROUGE-L on {len(pairs)} held-out descriptions: {ours:.4f}; their first sentences: {base:.4f}")


def main() -> None:
    """Reads the descriptions, trains, measures, saves."""
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

    # Steps in proportion to a tensor's size suit T5, whose tables and matrices start at very different scales.
    model.compile(
        keras.optimizers.Adafactor(options.learning_rate, relative_step=False),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD),
        jit_compile=True,
    )
    pace = Pace(options.out, options.learning_rate, options.steps, options.minutes)
    # To say a text's beginning again teaches the decoder to look into the text; a synopsis alone teaches it slowly.
    repeats = [(REPEAT + text, text) for text, _ in train]
    synopses = [(PREFIX + text, line) for text, line in train]
    for task, share in ((repeats, 0.3), (synopses, 0.7)):
        count = int(share * options.steps) * options.batch_size
        rows = np.resize(np.random.default_rng(1).permutation(len(task)), count)
        x, y = arrays(tokenizer, task)
        x, y = {name: value[rows] for name, value in x.items()}, y[rows]
        model.fit(x, y, batch_size=options.batch_size, callbacks=[pace], verbose=0)
    model.save_pretrained(options.out, dtype="float16")
    report(model, held_out)


if __name__ == "__main__":
    main()
