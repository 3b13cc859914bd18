"""Trains the preset sentiment-bert: a two-layer BERT that classifies the sentiment of sentences about films.

    python sentiment-bert.py sentence_polarity.zip ENCODER OUT --sst2 dev.tsv.gz

ENCODER is the folder of a BERT with pooler (the preset uses all-MiniLM-L6-v2, Apache-2.0). Its vocabulary is reduced to
that of the corpus, all its layers are fine-tuned, and a student with its first layers is trained on its scores of the
sentences and of parts of them. SST-2 serves for evaluation; its sentences are removed from the corpus.
"""

from __future__ import annotations

import argparse
import collections
import difflib
import gzip
import json
import re
import tempfile
import unicodedata
import zipfile
from pathlib import Path

import keras
import numpy as np
import tokenizers

import kerasformer as kf
from kerasformer.tokenization import Tokenizer

LABELS = {0: "negative", 1: "positive"}
LENGTH = 128
WIDTHS = (24, 40, 64)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def read_corpus(path: Path) -> list[tuple[str, int]]:
    """Reads the sentences of the polarity corpus with their labels."""
    pairs = []
    with zipfile.ZipFile(path) as archive:
        for label, name in enumerate(("neg", "pos")):
            text = archive.read(f"sentence_polarity/rt-polarity.{name}").decode("latin-1")
            pairs += [(line.strip(), label) for line in text.splitlines() if line.strip()]
    return pairs


def read_sst2(path: Path) -> list[tuple[str, int]]:
    """Reads the sentences of SST-2 with their labels; the file has a header."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return [(text, int(label)) for text, label in (line.rsplit("\t", 1) for line in lines)]


def normalized(text: str) -> str:
    """Reduces a text to letters and digits, to compare texts regardless of case, spaces, accents and tokenization."""
    text = unicodedata.normalize("NFKD", re.sub("-[lr]rb-", "", text.lower()))
    return re.sub("[^a-z0-9]", "", text)


def without(pairs: list[tuple[str, int]], evaluation: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Removes the pairs whose text equals, contains, is part of, or almost equals a text of `evaluation`."""
    known = {normalized(text) for text, _ in evaluation}
    keys = [normalized(text) for text, _ in pairs]
    for missing in [key for key in known if not any(key in other for other in keys)]:
        known.update(difflib.get_close_matches(missing, keys, 3, 0.85))
    long = [key for key in known if len(key) >= 15]
    return [
        pair
        for pair, key in zip(pairs, keys, strict=True)
        if key not in known and not any(other in key or (len(key) >= 20 and key in other) for other in long)
    ]


def prune(encoder: Path, texts: list[str], size: int, folder: Path) -> None:
    """Saves the encoder with the `size` most frequent word pieces of the texts, among them all single characters."""
    full = kf.zoo.load(encoder, task="text-classification", id2label=LABELS)
    counts: collections.Counter[int] = collections.Counter()
    for text in texts:
        counts.update(full.tokenizer.encode(text, add_special_tokens=False))
    letters = {piece for char in set("".join(texts)) for piece in (char, f"##{char}")}
    vocabulary = full.tokenizer.get_vocab()
    kept = {vocabulary[piece] for piece in {*SPECIAL, *letters} if piece in vocabulary}
    frequent = [index for index, _ in counts.most_common() if index not in kept]
    kept.update(frequent[: size - len(kept)])
    rows = sorted(kept)
    names = [full.tokenizer.id_to_token(index) for index in rows]
    print(f"{len(rows)} of {len(vocabulary)} word pieces kept")

    content = json.loads(full.tokenizer.backend.to_str())
    content["model"]["vocab"] = {name: index for index, name in enumerate(names)}
    content["added_tokens"] = [{**token, "id": names.index(token["content"])} for token in content["added_tokens"]]
    for name, token in content["post_processor"]["special_tokens"].items():
        token["ids"] = [names.index(name)]
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))

    small = kf.zoo.build("bert", "text-classification", **{**fields(full), "vocab_size": len(rows)})
    copy_weights(full, small, {"embeddings/tokens": np.array(rows), "embeddings/positions": np.arange(LENGTH)})
    small.tokenizer = Tokenizer(
        backend,
        special_tokens=full.tokenizer.special_tokens,
        model_inputs=("input_ids", "token_type_ids", "attention_mask"),
        model_max_length=LENGTH,
    )
    small.save_pretrained(folder)


def fields(model: kf.zoo.EncoderModel) -> dict[str, object]:
    """Returns the configuration that a smaller copy of an encoder shares with it."""
    config = model.config
    return {
        "vocab_size": config.vocab_size,
        "max_length": LENGTH,
        "hidden_dim": config.hidden_dim,
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "intermediate_dim": config.intermediate_dim,
        "id2label": LABELS,
    }


def copy_weights(source: keras.Model, target: keras.Model, rows: dict[str, np.ndarray]) -> None:
    """Copies all variables of the target; of those whose path contains a key of `rows`, only these rows."""
    known = {variable.path.split("/", 1)[1]: variable for variable in source.variables}
    for variable in target.variables:
        path = variable.path.split("/", 1)[1]
        value = np.asarray(known[path])
        for part, indices in rows.items():
            if part in path:
                value = value[indices]
        variable.assign(value)


def student_of(teacher: kf.zoo.EncoderModel, layers: list[int], neurons: int) -> kf.zoo.EncoderModel:
    """Copies some layers, each with the feed-forward neurons of the largest weights."""
    sizes = {**fields(teacher), "num_layers": len(layers), "intermediate_dim": neurons}
    student = kf.zoo.build("bert", "text-classification", **sizes)
    student.tokenizer = teacher.tokenizer
    known = {variable.path.split("/", 1)[1]: np.asarray(variable) for variable in teacher.variables}
    for variable in student.variables:
        path = variable.path.split("/", 1)[1]
        match = re.search(r"encoder/layer_(\d+)/", path)
        if match is None:
            variable.assign(known[path])
            continue
        prefix = f"backbone/encoder/layer_{layers[int(match[1])]}/"
        inner = known[prefix + "feed_forward/intermediate/kernel"]
        outer = known[prefix + "feed_forward/output/kernel"]
        strength = np.linalg.norm(inner, axis=0) * np.linalg.norm(outer, axis=1)
        best = np.sort(np.argsort(strength)[-neurons:])
        name = path.split(match[0])[1]
        value = known[prefix + name]
        if name.startswith("feed_forward/intermediate"):
            value = value[..., best]
        elif name == "feed_forward/output/kernel":
            value = value[best]
        variable.assign(value)
    return student


class Batches(keras.utils.PyDataset):
    """Batches of texts of similar length, in random order.

    Args:
        tokenizer: The tokenizer.
        texts: `N` texts.
        targets: Probabilities of the classes `(N, 2)`, optional.
        size: Number of texts in a batch.
        seed: Seed of the random order; `None` to sort by length.
    """

    def __init__(
        self, tokenizer: Tokenizer, texts: list[str], targets: np.ndarray | None, size: int, seed: int | None = None
    ) -> None:
        super().__init__()
        self.tokenizer, self.texts, self.targets = tokenizer, texts, targets
        self.lengths = np.array([len(tokenizer.encode(text)) for text in texts])
        self.random = None if seed is None else np.random.default_rng(seed)
        noise = 0 if self.random is None else self.random.uniform(0, 2, len(texts))
        self.order = np.argsort(self.lengths + noise, kind="stable")
        self.batches = [self.order[i : i + size] for i in range(0, len(texts), size)]
        self.on_epoch_end()

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], ...]:
        rows = self.batches[index]
        texts = [self.texts[row] for row in rows]
        arrays = self.tokenizer(texts, truncation=True, max_length=WIDTHS[-1], pad_to=WIDTHS).inputs
        return (arrays,) if self.targets is None else (arrays, self.targets[rows])

    def on_epoch_end(self) -> None:
        """Shuffles the batches."""
        if self.random is not None:
            self.random.shuffle(self.batches)
            # Keras infers from the first two batches which dimensions vary.
            for choose in (np.argmax, np.argmin):
                chosen = choose([self.lengths[rows].max() for rows in self.batches])
                self.batches.insert(0, self.batches.pop(chosen))


def fit(
    model: kf.zoo.EncoderModel, texts: list[str], targets: np.ndarray, epochs: int, rate: float, out: Path | None = None
) -> None:
    """Fine-tunes a model on probabilities; saves it to `out` after each epoch."""
    data = Batches(model.tokenizer, texts, targets, 32, seed=1)
    steps = epochs * len(data)
    schedule = keras.optimizers.schedules.CosineDecay(
        rate / 20, steps, alpha=0.02, warmup_target=rate, warmup_steps=steps // 10
    )
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=True,
    )
    save = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: None if out is None else model.save_pretrained(out, dtype="float16")
    )
    model.fit(data, epochs=epochs, callbacks=[save], verbose=2)


def logits(model: keras.Model, texts: list[str]) -> np.ndarray:
    """Returns the logits `(N, 2)` of texts."""
    data = Batches(model.tokenizer, texts, None, 64)
    result = np.zeros((len(texts), 2), "float32")
    result[data.order] = np.concatenate([np.asarray(model(*data[i])) for i in range(len(data))])
    return result


def accuracy(model: keras.Model, pairs: list[tuple[str, int]]) -> float:
    """Returns the accuracy of a model."""
    texts, labels = zip(*pairs, strict=True)
    return float(np.mean(logits(model, list(texts)).argmax(-1) == np.array(labels)))


def pieces(texts: list[str], count: int) -> list[str]:
    """Returns random parts of texts, 3 to 24 words long."""
    random = np.random.default_rng(2)
    result = []
    for row in random.integers(0, len(texts), count):
        words = texts[row].split()
        length = int(random.integers(3, 25))
        start = int(random.integers(0, max(1, len(words) - length + 1)))
        result.append(" ".join(words[start : start + length]))
    return result


def main() -> None:
    """Prunes, fine-tunes, distils, evaluates and saves the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sst2", type=Path, required=True)
    parser.add_argument("--teacher-epochs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pieces", type=int, default=12000)
    options = parser.parse_args()

    keras.utils.set_random_seed(1)
    sst2, corpus = read_sst2(options.sst2), read_corpus(options.data)
    pairs = without(corpus, sst2)
    np.random.default_rng(1).shuffle(pairs)
    held_out, train = [(text, int(label)) for text, label in pairs[:600]], pairs[600:]
    texts, targets = [text for text, _ in train], np.eye(2, dtype="float32")[[int(label) for _, label in train]]
    print(f"{len(corpus)} sentences, {len(corpus) - len(pairs)} of them also in SST-2, {len(train)} for training")

    with tempfile.TemporaryDirectory() as folder:
        prune(options.encoder, texts, 5000, Path(folder))
        teacher = kf.zoo.load(folder, task="text-classification")
    fit(teacher, texts, targets, options.teacher_epochs, 8e-5)
    print(f"teacher: SST-2 {accuracy(teacher, sst2):.4f}, held out {accuracy(teacher, held_out):.4f}", flush=True)

    extra = pieces(texts, options.pieces)
    soft_targets = np.asarray(keras.ops.softmax(logits(teacher, texts + extra)))
    targets = np.concatenate([(soft_targets[: len(texts)] + targets) / 2, soft_targets[len(texts) :]])
    student = student_of(teacher, [0, 1], 512)
    print(f"{student.count_params():,} parameters", flush=True)
    fit(student, texts + extra, targets, options.epochs, 3e-4, options.out)
    student = kf.zoo.load(options.out)
    print(f"student: SST-2 {accuracy(student, sst2):.4f}, held out {accuracy(student, held_out):.4f}")


if __name__ == "__main__":
    main()
