"""Greedy answers to chat prompts, beside those of the bundle in float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kerasformer as kf
from benchmarks.cost.bundles import Candidate
from benchmarks.cost.llama_cpp import REFERENCE as LLAMA_CPP_REFERENCE
from benchmarks.cost.llama_cpp import LlamaCpp
from kerasformer.decoding import PrefixCache

PROMPTS = Path(__file__).with_name("chat_prompts.json")
MAX_NEW_TOKENS = 48

Conversation = list[dict[str, str]]


def read_conversations(path: Path, name: str) -> list[Conversation]:
    """Reads a set of conversations, which are lists of texts by the user and the assistant in turn.

    Args:
        path: JSON file: an object of sets by name.
        name: Name of the set.
    """
    roles = ("user", "assistant")
    return [
        [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        for texts in json.loads(path.read_text(encoding="utf-8"))[name]
    ]


def answers(candidate: Candidate, conversations: Sequence[Conversation], threads: int | None) -> list[str]:
    """Returns the answers of a bundle, each of which is read from its first token."""

    def compute() -> np.ndarray:
        pipe = kf.pipeline(candidate.folder, "text-generation", num_threads=threads)
        texts = []
        for conversation in conversations:
            pipe.conversation_cache = PrefixCache()
            settings: dict[str, Any] = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False}
            texts.append(pipe(conversation, return_full_text=False, **settings)[0]["generated_text"].strip())
        return np.array(texts)

    return list(map(str, candidate.stored("answers", (conversations, MAX_NEW_TOKENS), compute)))


def llama_cpp_answers(llama_cpp: LlamaCpp, kind: str, prompts: Sequence[str]) -> list[str]:
    """Returns the answers of llama.cpp to prompts in the form of the chat template."""
    path = llama_cpp.out / f"{kind}.answers.json"
    known: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for prompt in prompts:
        if prompt not in known:
            known[prompt] = llama_cpp.answer(kind, prompt, MAX_NEW_TOKENS)
            path.write_text(json.dumps(known, ensure_ascii=False, indent=1), encoding="utf-8")
    return [known[prompt] for prompt in prompts]


@dataclass(frozen=True)
class Difference:
    """Where an answer leaves the expected one.

    Attributes:
        prefix: Number of tokens that are the same.
        length: Number of tokens of the expected answer.
        loss: Difference of the log-probabilities, in nats, of the expected token and of the one in its place, by the
            model in float32: near 0 if it has no preference. `None` if the answers are the same.
    """

    prefix: int
    length: int
    loss: float | None


class Reference:
    """Expected answers, and the model in float32 that gave them.

    Args:
        candidate: The bundle in float32.
        conversations: What it answers.
        threads: Number of CPU threads.
    """

    def __init__(self, candidate: Candidate, conversations: Sequence[Conversation], threads: int | None) -> None:
        self.answers = answers(candidate, conversations, threads)
        self._open: Callable[[], Any] = lambda: kf.pipeline(candidate.folder, "text-generation", num_threads=threads)
        self._pipe: Any = None
        self.tokenizer = kf.Tokenizer.load(candidate.folder)
        self.prompts = [
            str(self.tokenizer.apply_chat_template(each, add_generation_prompt=True, tokenize=False))
            for each in conversations
        ]

    def difference(self, index: int, answer: str, expected: str | None = None) -> Difference:
        """Compares an answer to a conversation.

        Args:
            index: Index of the conversation.
            answer: The answer.
            expected: The expected answer, by default that of this model.
        """
        expected = self.answers[index] if expected is None else expected
        rows = [[*self._ids(text), *self._end] for text in (expected, answer)]
        if answer == expected:
            return Difference(len(rows[0]) - 1, len(rows[0]) - 1, None)
        prefix = next((i for i, pair in enumerate(zip(*rows, strict=False)) if pair[0] != pair[1]), 0)
        scores = self._scores([*self._ids(self.prompts[index]), *rows[0][:prefix]])
        loss = float(scores[rows[0][prefix]] - scores[rows[1][prefix]])
        return Difference(prefix, len(rows[0]) - 1, loss)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    @property
    def _end(self) -> list[int]:
        return [int(self.tokenizer.eos_token_id or 0)]

    def _scores(self, ids: Sequence[int]) -> np.ndarray:
        """Returns the logits of the next token."""
        self._pipe = self._pipe or self._open()
        row = np.array([ids], "int32")
        logits, _ = self._pipe.model.step(row[:, -1:], self._pipe.model.start(row, np.ones_like(row)))
        return np.asarray(logits[0, -1])


HEADER = (
    "| | same whole answers | first token | common tokens, mean | loss at the difference, median | largest |\n"
    "|---|---|---|---|---|---|"
)


def row(title: str, differences: Sequence[Difference]) -> str:
    """Returns a row of the table."""
    losses = [each.loss for each in differences if each.loss is not None]
    same = f"{len(differences) - len(losses)} of {len(differences)}"
    first = sum(each.prefix > 0 for each in differences)
    shares = f"{np.mean([each.prefix for each in differences]):.1f} of {np.mean([e.length for e in differences]):.1f}"
    median, largest = (f"{f(losses):.2f}" if losses else "" for f in (np.median, np.max))
    return f"| {title} | {same} | {first} | {shares} | {median} | {largest} |"


def report(
    reference: Candidate,
    candidates: Sequence[Candidate],
    conversations: Sequence[Conversation],
    threads: int | None,
    llama_cpp: LlamaCpp | None,
    kinds: Sequence[str],
) -> None:
    """Prints the answers to each conversation, then a table of how many are those of the model in float32.

    Types of llama.cpp are compared with its own answers in float32.

    Args:
        reference: The bundle in float32.
        candidates: The other bundles.
        conversations: What they answer.
        threads: Number of CPU threads.
        llama_cpp: Programs of llama.cpp, if it is compared.
        kinds: Its types.
    """
    ours = Reference(reference, conversations, threads)
    columns = {each.title: (answers(each, conversations, threads), ours.answers) for each in candidates}
    if llama_cpp is not None:
        plain = llama_cpp_answers(llama_cpp, LLAMA_CPP_REFERENCE, ours.prompts)
        columns["llama.cpp `F32`"] = plain, ours.answers
        columns |= {f"llama.cpp `{kind}`": (llama_cpp_answers(llama_cpp, kind, ours.prompts), plain) for kind in kinds}
    differences = {
        title: [ours.difference(index, *pair) for index, pair in enumerate(zip(received, expected, strict=True))]
        for title, (received, expected) in columns.items()
    }
    for index, conversation in enumerate(conversations):
        print(f"\n{index + 1}. **{' / '.join(message['content'] for message in conversation)}**")
        print(f"   - {reference.title}: {ours.answers[index]!r}")
        for title, (received, _) in columns.items():
            found = differences[title][index]
            text = "the same" if found.loss is None else f"{found.prefix} tokens, loss {found.loss:.2f}: "
            print(f"   - {title}, {text}" + ("" if found.loss is None else repr(received[index])))
    print(f"\n{HEADER}")
    for title, found in differences.items():
        print(row(title, found))
