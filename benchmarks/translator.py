"""A translator trained on Multi30k, and its BLEU in all formats: `python -m benchmarks.translator train|evaluate`.

    python -m benchmarks.translator train DATA OUT --minutes 60
    python -m benchmarks.translator evaluate DATA OUT

DATA has parallel texts, one sentence per line: `train.en.gz`, `train.de.gz` and `test_2016_flickr.{en,de}.gz`, as in
`data/task1/raw` of https://github.com/multi30k/dataset. `train` writes the model to `OUT/model`, after each epoch.
`evaluate` exports it to LiteRT and ONNX, in float32, int8 and int4, and prints BLEU and chrF of each bundle, with
greedy search and with beams, and translations by one of them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import kerasformer as kf
from kerasformer.evaluation import Example, TextEvaluation, read_parallel
from kerasformer.layers import SmoothedCrossentropy
from kerasformer.tokenization import Tokenizer

PAD, EOS, IGNORED = 0, 1, -100
WIDTHS = (12, 15, 18, 22, 28, 40)
"""Lengths of batches in tokens, few since XLA compiles a step for each of them. Longer pairs are left out."""
BUNDLES = tuple(f"{form}-{recipe}" for form in ("tflite", "onnx") for recipe in ("none", "int8", "int4"))
MODEL_FILES = (".tflite", ".onnx", ".onnx_data")
SHOWN = "tflite-int8"
"""The bundle whose translations are printed."""


def read_pairs(folder: Path, split: str, languages: Sequence[str]) -> list[Example]:
    """Reads sentences with their translations.

    Args:
        folder: Folder of the files.
        split: Part of the data set, such as `"train"`.
        languages: Languages of the sentences and of their translations.
    """
    source, target = (folder / f"{split}.{language}.gz" for language in languages)
    return read_parallel(source, [target])


def train_tokenizer(texts: Sequence[str], vocab_size: int) -> Tokenizer:
    """Trains one BPE vocabulary for both languages, so that the model can share its embeddings."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.NFKC()
    # Separates punctuation from words, so that a word is the same token before a full stop.
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    backend.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", EOS)]
    )
    named = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return Tokenizer(backend, special_tokens=named, model_max_length=128)


class Batches(keras.utils.PyDataset):
    """Batches of pairs of similar length: the inputs of an encoder-decoder, and its labels.

    Args:
        tokenizer: Tokenizer of both languages.
        pairs: Sentences with their translations.
        tokens: Size of a batch: number of sentences times their padded length.
    """

    def __init__(self, tokenizer: Tokenizer, pairs: Sequence[Example], tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.sources = [tokenizer.encode(pair.text) for pair in pairs]
        self.targets = [tokenizer.encode(pair.label[0]) for pair in pairs]
        longest = [max(len(source), len(target)) for source, target in zip(self.sources, self.targets, strict=True)]
        self.buckets = np.searchsorted(WIDTHS, longest)
        self.random = np.random.default_rng(1)
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        """Forms new batches in a new order."""
        self.batches: list[tuple[int, np.ndarray]] = []
        for bucket, width in enumerate(WIDTHS):
            rows = self.random.permutation(np.flatnonzero(self.buckets == bucket))
            size = max(1, self.tokens // width)
            # All batches are full, since XLA compiles for each shape: some pairs of the last one occur twice.
            rows = np.resize(rows, math.ceil(len(rows) / size) * size)
            self.batches += [(width, part) for part in rows.reshape(-1, size)]
        self.random.shuffle(self.batches)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Number of steps of an epoch."""
        return len(self.batches)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns a batch; the decoder's input is the labels shifted by one token."""
        width, rows = self.batches[index]
        ids = padded([self.sources[row] for row in rows], width, PAD)
        labels = padded([self.targets[row] for row in rows], width, IGNORED)
        shifted = np.pad(np.where(labels == IGNORED, PAD, labels)[:, :-1], ((0, 0), (1, 0)), constant_values=PAD)
        return {"input_ids": ids, "attention_mask": (ids != PAD).astype("int32"), "decoder_input_ids": shifted}, labels


def padded(rows: Sequence[Sequence[int]], width: int, fill: int) -> np.ndarray:
    """Returns rows of ids as an array `(N, width)` that is padded on the right."""
    result = np.full((len(rows), width), fill, "int32")
    for line, row in zip(result, rows, strict=True):
        line[: len(row)] = row
    return result


class Schedule(keras.callbacks.Callback):
    """Learning rate with linear warm-up and cosine decay, which ends the training.

    Args:
        rate: Maximum learning rate.
        steps: Maximum number of steps.
        minutes: Maximum duration in minutes; on a slow machine the rate decays in fewer steps.
    """

    warm_up = 400

    def __init__(self, rate: float, steps: int, minutes: float) -> None:
        super().__init__()
        self.rate, self.steps, self.minutes = rate, steps, minutes
        self.step, self.start = 0, time.monotonic()

    @property
    def progress(self) -> float:
        """Completed share of the training."""
        return min(1.0, max(self.step / self.steps, (time.monotonic() - self.start) / 60 / self.minutes))

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Sets the learning rate."""
        decay = 0.5 * (1 + math.cos(math.pi * self.progress))
        self.model.optimizer.learning_rate = self.rate * min((self.step + 1) / self.warm_up, decay)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Counts steps and reports the loss."""
        self.step += 1
        self.model.stop_training = self.progress >= 1
        if self.step % 100 == 0:
            print(f"step {self.step}, loss {(logs or {})['loss']:.3f}", flush=True)


class Save(keras.callbacks.Callback):
    """Saves the model after each epoch."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Saves the model."""
        self.model.save_pretrained(self.folder)


def build(tokenizer: Tokenizer) -> Any:
    """Creates the untrained model, whose embeddings are those of both languages and the output projection."""
    model = kf.zoo.build(
        "transformer",
        vocab_size=tokenizer.vocab_size,
        max_length=128,
        hidden_dim=192,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=4,
        intermediate_dim=512,
        dropout=0.15,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )
    model.tokenizer = tokenizer
    model.generation_config = model.generation_config.replace(max_new_tokens=60)
    return model


def train(options: argparse.Namespace) -> None:
    """Trains a tokenizer and the model."""
    keras.utils.set_random_seed(1)
    pairs = read_pairs(options.data, "train", options.languages)
    tokenizer = train_tokenizer([text for pair in pairs for text in (pair.text, pair.label[0])], options.vocab_size)
    model, batches = build(tokenizer), Batches(tokenizer, pairs, options.tokens)
    print(f"{len(pairs):,} pairs, {model.count_params():,} parameters, {len(batches)} steps an epoch", flush=True)
    model.compile(
        keras.optimizers.Adam(options.learning_rate, beta_2=0.98, epsilon=1e-9, use_ema=True, ema_momentum=0.998),
        SmoothedCrossentropy(0.1),
        jit_compile=True,
    )
    schedule = Schedule(options.learning_rate, options.steps, options.minutes)
    # At the end of an epoch the model has the averaged weights, which translate better than the last ones.
    average = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    epochs = math.ceil(options.steps / len(batches))
    model.fit(batches, epochs=epochs, callbacks=[schedule, average, Save(options.out / "model")], verbose=2)
    print(f"{schedule.step} steps in {(time.monotonic() - schedule.start) / 60:.1f} minutes")


def bundles(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Yields the name and folder of each bundle, which is exported unless it exists."""
    model = None
    for case in options.bundles:
        out = options.out / case
        if not out.exists():
            model = model or kf.zoo.load(options.out / "model")
            form, recipe = case.split("-")
            kf.export.export(model, out, format=form, quantize=recipe, task="translation", capacity=64)
        yield case, out


def evaluate(options: argparse.Namespace) -> None:
    """Exports the model and prints the quality of the bundles and some translations."""
    examples = read_pairs(options.data, options.test, options.languages)[: options.limit]
    evaluation = TextEvaluation("translation", examples)
    print("| bundle | MB | beams | BLEU | chrF2 | seconds |\n| --- | --: | --: | --: | --: | --: |")
    for name, out in bundles(options):
        size = sum(file.stat().st_size for file in out.rglob("*") if file.suffix in MODEL_FILES)
        pipe = kf.pipeline(out, "translation")
        for beams in options.beams:
            start = time.monotonic()
            system = evaluation.add_model(name, pipe, {"num_beams": beams})
            seconds = time.monotonic() - start
            bleu, chrf = (f"{100 * system.figures[metric]:.2f}" for metric in ("bleu", "chrf"))
            print(f"| {name} | {size / 1e6:.1f} | {beams} | {bleu} | {chrf} | {seconds:.0f} |", flush=True)
    print(f"\n{len(examples)} sentences", *evaluation.signatures.values(), sep="\n")
    shown = [system for system in evaluation.systems if system.name == SHOWN]
    for system in shown[-1:]:
        print(f"\n{system.name}, {system.settings}")
        for example, text in list(zip(examples, system.texts, strict=True))[:: max(1, len(examples) // 10)][:10]:
            print(f"\n- {example.text}\n  - model: {text}\n  - reference: {example.label[0]}")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train the model")
    training.add_argument("--steps", type=int, default=20000)
    training.add_argument("--minutes", type=float, default=math.inf, help="end earlier, with the same schedule")
    training.add_argument("--tokens", type=int, default=1280, help="size of a batch")
    training.add_argument("--learning-rate", type=float, default=1.5e-3)
    training.add_argument("--vocab-size", type=int, default=5000)
    quality = commands.add_parser("evaluate", help="export the model and measure BLEU and chrF")
    quality.add_argument("--test", default="test_2016_flickr", help="part of the data set")
    quality.add_argument("--limit", type=int, help="number of sentences; all by default")
    quality.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    quality.add_argument("--bundles", nargs="+", choices=BUNDLES, default=BUNDLES, help="all by default")
    for command in (training, quality):
        command.add_argument("data", type=Path, help="folder of the parallel texts")
        command.add_argument("out", type=Path, help="folder of the model and the bundles")
        command.add_argument("--languages", nargs=2, default=["en", "de"], help="source and target")
    options = parser.parse_args()
    if options.command == "train":
        train(options)
    else:
        evaluate(options)


if __name__ == "__main__":
    main()
