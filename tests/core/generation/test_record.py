"""The record of a run, compared with the scores that `transformers` returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kerasformer.engines.distribution import log_softmax
from kerasformer.generation import Controls, GenerationConfig, GenerationOutput, Record, generate
from kerasformer.generation.record import TOP
from tests.core.generation import models
from tests.core.generation.engines import Recomputing, Toy

VOCAB, PAD = 41, models.PAD
ALL = Controls(output_scores=True, output_logits=True)
IDS = np.array([[3, 9, 5, 17], [8, 21, 4, 6]])


@pytest.fixture(scope="module")
def engines() -> dict[str, Recomputing]:
    return {"decoder": models.gpt2(VOCAB, 5), "encoder-decoder": models.t5(VOCAB, 5)}


def both(engine: Recomputing, **settings: Any) -> tuple[Any, GenerationOutput]:
    """Returns the outputs of `transformers` and ours, after checking that their tokens are equal."""
    theirs = engine.model.generate(  # type: ignore[attr-defined]
        torch.tensor(IDS), attention_mask=torch.ones_like(torch.tensor(IDS)), return_dict_in_generate=True,
        output_scores=True, output_logits=True, **settings,
    )  # fmt: skip
    config = GenerationConfig(pad_token_id=PAD, decoder_start_token_id=PAD, **settings)
    ours = generate(engine, IDS, config=config, controls=ALL)
    width = 1 if engine.is_encoder_decoder else IDS.shape[1]
    for mine, full in zip(ours.sequences, theirs.sequences[:, width:].tolist(), strict=True):
        assert mine.tolist() == full[: len(mine)]
    return theirs, ours


def along(theirs: Any, rows: Any, output: int, count: int) -> np.ndarray:
    """Selects the rows of one returned sequence by its beam indices, `(N, V)`."""
    indices = getattr(theirs, "beam_indices", None)
    selected = [output] * count if indices is None else indices[output, :count].tolist()
    return np.stack([rows[step][index].numpy() for step, index in enumerate(selected)])


BEAMS: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2}
CASES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy with rules": {"repetition_penalty": 1.6, "suppress_tokens": list(range(8)), "no_repeat_ngram_size": 1},
    "one allowed": {"do_sample": True, "top_k": 1, "temperature": 0.7},
    "beams": BEAMS,
    "beams with rules and ends": {**BEAMS, "repetition_penalty": 1.6, "eos_token_id": list(range(20, 26))},
}


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_those_of_transformers(engines: dict[str, Recomputing], kind: str, case: str) -> None:
    theirs, ours = both(engines[kind], max_new_tokens=7, **CASES[case])
    assert ours.scores is not None and ours.logits is not None and ours.log_probabilities is not None
    raw = engines[kind].model.compute_transition_scores(  # type: ignore[attr-defined]
        theirs.sequences, theirs.logits, getattr(theirs, "beam_indices", None), normalize_logits=True
    )
    for output, sequence in enumerate(ours.sequences):
        count = len(sequence)
        expected = along(theirs, theirs.scores, output, count)
        np.testing.assert_allclose(ours.scores[output], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.logits[output], along(theirs, theirs.logits, output, count), atol=1e-5)
        np.testing.assert_allclose(ours.log_probabilities[output], raw[output, :count].numpy(), atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"num_beams": 4}, {"do_sample": True, "seed": 2, "top_k": 3}], ids=str)
def test_scores_and_logits_are_recorded_on_request(settings: dict[str, Any]) -> None:
    config = GenerationConfig(max_new_tokens=5, **settings)
    short = generate(Toy(), IDS % 12, config=config, controls=Controls(record=True))
    assert short.scores is None and short.logits is None and short.record is not None
    whole = generate(Toy(), IDS % 12, config=config, controls=ALL)
    assert whole.scores is not None and whole.logits is not None and short.log_probabilities is not None
    for output, sequence in enumerate(short.sequences):
        assert sequence.tolist() == whole.sequences[output].tolist()
        logs = log_softmax(whole.logits[output])
        np.testing.assert_allclose(short.log_probabilities[output], logs[np.arange(5), sequence], atol=1e-6)
        for step, node in enumerate(short.record.paths[output]):
            order = np.argsort(-logs[step], kind="stable")[:TOP]
            assert node.choice.tokens.tolist() == order.tolist() and node.selected
            allowed = np.isfinite(whole.scores[output][step])
            assert node.choice.num_allowed == allowed.sum() and (node.choice.allowed == allowed[order]).all()


def tree(**settings: Any) -> tuple[Record, GenerationOutput]:
    config = GenerationConfig(max_new_tokens=4, num_beams=3, eos_token_id=(2, 5), num_return_sequences=3, **settings)
    output = generate(Toy(), IDS[:1] % 12, config=config, controls=Controls(record=True))
    assert output.record is not None
    return output.record, output


def test_the_tree_of_beams() -> None:
    record, output = tree()
    assert {len(nodes) for nodes in record.steps} == {9}  # (1 + 2 end tokens) * 3 beams are examined
    for before, nodes in zip([[None], *record.steps], record.steps, strict=False):
        for node in nodes:
            assert node.parent in before
            assert node.parent is None or (node.parent.selected and not node.parent.finished)
            assert node.finished <= node.selected
            assert not node.finished or node.token in (2, 5) or nodes is record.steps[-1]
        running = [node for node in nodes if node.selected and not node.finished]
        assert len(running) == (0 if nodes is record.steps[-1] else 3)
    assert any(not node.selected for node in record.steps[0])
    for path, sequence, score in zip(record.paths, output.sequences, output.sequence_scores, strict=True):
        assert [node.token for node in path] == sequence.tolist() and path[-1].finished
        assert path[-1].total == pytest.approx(sum(node.log_probability for node in path), abs=1e-5)
        assert score == pytest.approx(path[-1].total / len(path), abs=1e-5)
    # Nodes that continue the same row share their candidates.
    assert len({id(node.choice) for node in record.steps[0]}) < len(record.steps[0])
