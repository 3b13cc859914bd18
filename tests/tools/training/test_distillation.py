"""The losses of distillation are those of the papers, computed by PyTorch from the same models in `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
import transformers

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.tools.training import (
    AttentionRelations,
    Distiller,
    EmbeddingDistance,
    EmbeddingTargets,
    HiddenCosine,
    SoftTargets,
    prune,
)

NO_DROPOUT = {
    "bert": {"hidden_dropout": 0.0, "attention_dropout": 0.0, "pad_token_id": 0},
    "gpt2": {"residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0},
    "t5": {"dropout": 0.0, "head_dim": 5},
}
SIZES = {"hidden_dim": 12, "num_layers": 4, "num_heads": 3, "vocab_size": 40}
RNG = np.random.default_rng(1)
IDS = RNG.integers(3, 40, (2, 7)).astype("int32")
MASK = np.array([[1] * 7, [1] * 4 + [0] * 3], "int32")
LABELS = np.where((RNG.random(IDS.shape) < 0.4) & (MASK == 1), IDS, -100)
LABELS[:, 1] = IDS[:, 1]


def built(name: str, task: str, **sizes: Any) -> Any:
    """Returns a tiny model with weights that are large enough for the losses to differ."""
    keras.utils.set_random_seed(3)
    model = zoo.build(name, task, **{**SIZES, **NO_DROPOUT[name], **sizes})
    for variable in model.trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(np.asarray(variable) * (8 if name != "t5" else 1))
    return model


def inputs(model: Any) -> dict[str, np.ndarray]:
    """Returns a batch with padding."""
    arrays = {"input_ids": IDS, "attention_mask": MASK}
    return {**arrays, "decoder_input_ids": IDS[:, ::-1][:, :5]} if model.is_encoder_decoder else arrays


def reference(model: Any, folder: Path, auto: Any, **options: Any) -> Any:
    """Returns what `transformers` computes for the batch."""
    model.save_pretrained(folder)
    torch_model = auto.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        return torch_model(**{name: torch.tensor(value.astype("int64")) for name, value in inputs(model).items()})


def measured(distiller: Distiller, labels: np.ndarray | None = None, loss: Any = None) -> float:
    """Returns the loss of the batch."""
    distiller.compile("sgd", loss)
    result = distiller.evaluate(inputs(distiller.student), labels, batch_size=2, verbose=0, return_dict=True)
    return float(result["loss"])


def soft(teacher: torch.Tensor, student: torch.Tensor, temperature: float) -> float:
    """The loss of DistilBERT's script, for rows of logits."""
    log, softmax = torch.nn.functional.log_softmax, torch.nn.functional.softmax
    divergence = torch.nn.KLDivLoss(reduction="batchmean")
    return float(divergence(log(student / temperature, -1), softmax(teacher / temperature, -1)) * temperature**2)


def test_distilbert(tmp_path: Path) -> None:
    teacher = built("bert", "fill-mask", intermediate_dim=20)
    student = prune(teacher, layers=2)
    for variable in student.trainable_variables:  # else both compute the same
        variable.assign(np.asarray(variable) * 1.1)
    losses = [SoftTargets(2.0, weight=5.0), HiddenCosine(weight=1.0)]
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
    ours = measured(Distiller(teacher, student, losses, hard_weight=2.0), LABELS, crossentropy)
    expected, received = (
        reference(model, tmp_path / name, transformers.AutoModelForMaskedLM).logits
        for name, model in {"teacher": teacher, "student": student}.items()
    )
    masked = torch.tensor(LABELS != -100)
    loss = 5.0 * soft(expected[masked], received[masked], 2.0)
    labels = torch.tensor(LABELS[LABELS != -100].astype("int64"))
    loss += 2.0 * float(torch.nn.functional.cross_entropy(received[masked], labels))
    last = []
    for name in ("teacher", "student"):
        auto = transformers.AutoModel.from_pretrained(tmp_path / name, attn_implementation="eager").eval()
        with torch.no_grad():
            last.append(auto(torch.tensor(IDS.astype("int64")), torch.tensor(MASK)).last_hidden_state[MASK == 1])
    loss += float(torch.nn.CosineEmbeddingLoss()(last[1], last[0], torch.ones(len(last[0]))))
    assert ours == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_soft_targets(name: str, tmp_path: Path) -> None:
    task, auto = {
        "bert": ("text-classification", transformers.AutoModelForSequenceClassification),
        "gpt2": ("text-generation", transformers.AutoModelForCausalLM),
        "t5": ("text2text-generation", transformers.AutoModelForSeq2SeqLM),
    }[name]
    teacher = built(name, task)
    student = prune(teacher, layers=1, **({"decoder_layers": 1} if name == "t5" else {}))
    ours = measured(Distiller(teacher, student, SoftTargets(3.0)))
    expected, received = (
        reference(model, tmp_path / str(index), auto).logits for index, model in enumerate([teacher, student])
    )
    if name == "gpt2":
        expected, received = expected[MASK == 1], received[MASK == 1]
    size = expected.shape[-1]
    assert ours == pytest.approx(soft(expected.reshape(-1, size), received.reshape(-1, size), 3.0), rel=2e-4)
    assert ours > 1e-3


def relation(left: torch.Tensor, right: torch.Tensor, heads: int) -> torch.Tensor:
    """A relation of MiniLM, `(B, R, T, T)`, for states `(B, T, E)`."""
    left, right = (x.reshape(2, 7, heads, -1).transpose(1, 2) for x in (left, right))
    scores = left @ right.transpose(2, 3) / left.shape[-1] ** 0.5
    return torch.softmax(scores.masked_fill(torch.tensor(MASK == 0)[:, None, None, :], -torch.inf), -1)


@pytest.mark.parametrize(
    ("relations", "heads", "width"),
    [(("query-key", "value-value"), None, 12), (("query-query", "key-key", "value-value"), 2, 8)],
)
def test_minilm(relations: Any, heads: int | None, width: int, tmp_path: Path) -> None:
    teacher = built("bert", "feature-extraction")
    student = prune(teacher, layers=2) if width == 12 else prune(teacher, layers=2, width=width, heads=2)
    ours = measured(Distiller(teacher, student, AttentionRelations(relations, heads)))
    states: list[dict[str, torch.Tensor]] = []
    for index, model in enumerate([teacher, student]):
        model.save_pretrained(tmp_path / str(index))
        auto = transformers.AutoModel.from_pretrained(tmp_path / str(index), attn_implementation="eager").eval()
        found: dict[str, torch.Tensor] = {}
        attention = auto.encoder.layer[-1].attention.self
        for part in ("query", "key", "value"):
            getattr(attention, part).register_forward_hook(
                lambda module, inputs, output, found=found, part=part: found.update({part: output})
            )
        with torch.no_grad():
            auto(torch.tensor(IDS.astype("int64")), torch.tensor(MASK))
        states.append(found)
    loss = 0.0
    for name in relations:
        left, right = name.split("-")
        expected, received = (relation(each[left], each[right], heads or 3) for each in states)
        divergence = torch.nn.functional.kl_div(received.log(), expected, reduction="none").nan_to_num().sum(-1)
        loss += float(divergence.mean(1)[MASK == 1].mean())  # over heads and the tokens of the texts
    assert ours == pytest.approx(loss, rel=1e-4) and ours > 1e-4


def test_embeddings() -> None:
    teacher = built("bert", "feature-extraction")
    student = prune(teacher, layers=2)
    ours = measured(Distiller(teacher, student, EmbeddingTargets()))
    vectors = []
    for model in (teacher, student):
        states = np.asarray(model({"input_ids": IDS, "attention_mask": MASK})) * MASK[..., None]
        mean = torch.tensor(states.sum(1) / MASK.sum(1, keepdims=True))
        vectors.append(torch.nn.functional.normalize(mean))
    loss = float((vectors[0] - vectors[1]).square().sum(-1).mean())
    assert ours == pytest.approx(loss, rel=1e-4) and ours > 1e-4
    assert float(EmbeddingDistance()(vectors[0] * 3, vectors[1])) == pytest.approx(loss, rel=1e-4)


def test_only_the_student_is_trained() -> None:
    teacher = built("gpt2", "text-generation")
    student = prune(teacher, layers="0,3")
    before = [np.asarray(variable) for variable in teacher.variables]
    distiller = Distiller(teacher, student, [SoftTargets(), AttentionRelations()])
    distiller.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    history = distiller.fit(inputs(student), epochs=6, verbose=0).history
    assert history["soft_targets"][-1] < 0.5 * history["soft_targets"][0]
    assert history["attention_relations"][-1] < history["attention_relations"][0]
    assert all(np.array_equal(old, np.asarray(new)) for old, new in zip(before, teacher.variables, strict=True))


def test_errors() -> None:
    teacher = built("bert", "feature-extraction")
    narrow = prune(teacher, width=8, heads=2)
    for loss, message in {
        AttentionRelations(heads=5): "heads=5",
        HiddenCosine(): "Expected: 12. Received: 8",
    }.items():
        with pytest.raises(InputError, match=message):
            Distiller(teacher, narrow, loss)
    with pytest.raises(InputError, match="Expected: 40. Received: 30"):
        Distiller(built("gpt2", "text-generation"), built("gpt2", "text-generation", vocab_size=30), SoftTargets())
    with pytest.raises(InputError, match="hard_weight=0"):
        Distiller(teacher, narrow, SoftTargets(), hard_weight=1.0).compile("sgd")
