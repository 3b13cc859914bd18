"""Why a text reads as it does: at each step the most probable tokens, and the one that was chosen."""

from __future__ import annotations

import functools
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerasformer.decoding import GenerationOutput, Node, Record
from kerasformer.errors import GenerationError, argument, require
from kerasformer.generation.readable_tokens import readable_token
from kerasformer.tokenization import Tokenizer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from kerasformer.viz.explanation import Cell

CHOSEN, EXCLUDED = "✓", "✗"
_PRINTED, _DRAWN = 36, 48
"""Characters of the input that a table shows, the last ones."""


@dataclass(frozen=True)
class Option:
    """A token that could have come.

    Attributes:
        token: Its id.
        text: As a reader sees it.
        probability: In the model, before rules and cuts.
        chosen: Whether it came.
        allowed: Whether rules and cuts left it.
    """

    token: int
    text: str
    probability: float
    chosen: bool
    allowed: bool

    @property
    def marked(self) -> str:
        """The text with a sign before it if it was chosen or excluded."""
        return f"{CHOSEN if self.chosen else '' if self.allowed else EXCLUDED} {self.text}".lstrip()

    def __str__(self) -> str:
        return f"{self.marked} ({self.probability:.2%})"


@dataclass(frozen=True)
class Line:
    """One step.

    Attributes:
        input: The text so far; of an encoder-decoder, what it has written.
        options: The most probable tokens, best first.
        chosen: The token that came, which may be none of them.
        left: Tokens of the whole vocabulary that rules and cuts left.
    """

    input: str
    options: tuple[Option, ...]
    chosen: Option
    left: int


@dataclass(frozen=True, repr=False)
class Explanation:
    """The steps of one text. It shows itself as a table: in a notebook as HTML, by `print`, and in colours by rich.

    Attributes:
        text: What was generated.
        lines: One a token.
    Reference: the table of Tunstall, von Werra, Wolf 2022, "Natural Language Processing with Transformers", chapter 5.
    """

    text: str
    lines: tuple[Line, ...]
    _record: Record = field(repr=False, compare=False)
    _tokenizer: Tokenizer = field(repr=False, compare=False)

    @property
    def columns(self) -> list[str]:
        """`Input`, `Choice 1` … `Choice 5`; and `Chosen`, if a step chose none of these."""
        most = max((len(line.options) for line in self.lines), default=0)
        far = any(line.chosen not in line.options for line in self.lines)
        return ["Input", *(f"Choice {place + 1}" for place in range(most)), *(["Chosen"] if far else [])]

    def cells(self, line: Line) -> list[Option | None]:
        """A line's tokens, one for each column but the first; `None` is an empty cell."""
        most = len(self.columns) - 1 - ("Chosen" in self.columns)
        cells: list[Option | None] = [*line.options, *[None] * (most - len(line.options))]
        if "Chosen" in self.columns:
            cells.append(None if line.chosen in line.options else line.chosen)
        return cells

    @property
    def note(self) -> str:
        """What the marks mean, as far as they occur."""
        parts = [f"Percentages are the model's own. {CHOSEN} chosen"]
        if any(not option.allowed for line in self.lines for option in line.options):
            parts.append(f"{EXCLUDED} excluded by rules or cuts")
        return ", ".join(parts) + "."

    def to_frame(self) -> Any:
        """A pandas frame with the whole inputs.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        rows = [[line.input, *("" if cell is None else str(cell) for cell in self.cells(line))] for line in self.lines]
        return require("pandas", "viz").DataFrame(rows, columns=self.columns)

    def table(self) -> Table:
        """A rich table; `rich.print(explanation)` prints it."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=box.SIMPLE_HEAD, caption=self.note, caption_justify="left", pad_edge=False, padding=(0, 1, 0, 0)
        )
        for name in self.columns:
            if name == "Input":
                table.add_column(name, justify="right", min_width=16)
            else:
                table.add_column(name, overflow="fold")
        for line in self.lines:
            cells = ["" if cell is None else _printed(cell) for cell in self.cells(line)]
            table.add_row(Text(shortened(line.input, _PRINTED)), *cells)
        return table

    def __rich__(self) -> Table:
        return self.table()

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=100)
        with console.capture() as printed:
            console.print(self)
        return printed.get()

    def __repr__(self) -> str:
        return f"Explanation({self.text!r}, {len(self.lines)} tokens)"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in self.columns)
        rows = "".join(
            f"<tr><td>{html.escape(line.input)}</td>{''.join(map(_html_cell, self.cells(line)))}</tr>"
            for line in self.lines
        )
        return f"<table><caption>{self.note}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def picture(self, path: str | Path, dark: bool = False) -> None:
        """Draws the table.

        Args:
            path: Ends in `.png` or `.svg`.
            dark: For dark pages.

        Raises:
            InputError: another ending, or no such folder.
            MissingExtraError: matplotlib is not installed.
        """
        from kerasformer.viz.explanation import Cell, draw_explanation

        rows = [[Cell(name, head=True) for name in self.columns]]
        for line in self.lines:
            options = [Cell("") if cell is None else _drawn(cell) for cell in self.cells(line)]
            rows.append([Cell(shortened(line.input, _DRAWN)), *options])
        draw_explanation(rows, path, self.note, dark=dark)

    def tree(self, path: str | Path, *, steps: int = 6, title: str = "", dark: bool = False) -> None:
        """Draws the tree of beams that this text is a path of.

        Args:
            path: Ends in `.png` or `.svg`.
            steps: Most columns, from the first step.
            title: Above all.
            dark: For dark pages.

        Raises:
            InputError: another ending, or no such folder.
            MissingExtraError: matplotlib is not installed.
            GenerationError: it was not written by beam search.
        """
        from kerasformer.viz import draw_beam_tree

        prompt = self._record.paths[0][0].prompt if self._record.paths[0] else 0
        spell = functools.partial(readable_token, self._tokenizer)
        draw_beam_tree(self._record, spell, path, prompt=prompt, steps=steps, title=title, dark=dark)


def explanations(
    output: GenerationOutput, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], choices: int = 5
) -> list[Explanation]:
    """An explanation of each sequence.

    Args:
        output: Of a run with `Controls(record=True)`.
        tokenizer: Of the model.
        prompts: Each prompt's ids, to show what the model had read; empty ones for an encoder-decoder.
        choices: Columns of tokens, at most `decoding.record.TOP`.

    Raises:
        GenerationError: nothing was recorded.
    """
    if output.record is None:
        raise GenerationError(
            f"An explanation needs a record of the run. Received: none. Pass {argument('explain', True)}."
        )
    found = []
    for output_number, path in enumerate(output.record.paths):
        said = output.sequences[output_number].tolist()
        head = [int(token) for token in prompts[path[0].prompt]] if path else []
        lines = tuple(_line(tokenizer, node, [*head, *said[:place]], choices) for place, node in enumerate(path))
        text = tokenizer.decode([*head, *said], skip_special_tokens=True)
        own = Record(steps=output.record.steps, paths=[path])
        found.append(Explanation(text, lines, own, tokenizer))
    return found


def _line(tokenizer: Tokenizer, node: Node, before: Sequence[int], choices: int) -> Line:
    seen = zip(
        node.choice.tokens.tolist(), node.choice.log_probabilities.tolist(), node.choice.allowed.tolist(), strict=True
    )
    options = tuple(
        Option(token, readable_token(tokenizer, token), math.exp(log), token == node.token, allowed)
        for token, log, allowed in list(seen)[:choices]
    )
    chosen = next((option for option in options if option.chosen), None) or Option(
        node.token, readable_token(tokenizer, node.token), math.exp(node.log_probability), True, True
    )
    return Line(tokenizer.decode(before, skip_special_tokens=True), options, chosen, node.choice.left)


def shortened(text: str, length: int) -> str:
    """The end of a text, in one line; it begins with a whole word if it can."""
    flat = text.replace("\n", " ")
    if len(flat) <= length:
        return flat
    end = flat[-length + 2 :]
    return f"… {end.partition(' ')[2] or end}"


def _printed(option: Option) -> Text:
    """Two lines, so that six columns find place on a terminal of 80 letters."""
    from rich.text import Text

    style = "bold green" if option.chosen else "" if option.allowed else "dim strike"
    return Text.assemble((option.marked.replace(" ", "\u00a0"), style), (f"\n{option.probability:.2%}", "dim"))


def _drawn(option: Option) -> Cell:
    from kerasformer.viz.explanation import Cell

    return Cell(str(option), option.probability, option.chosen, not option.allowed)


def _html_cell(option: Option | None) -> str:
    if option is None:
        return "<td></td>"
    text = html.escape(str(option))
    if option.chosen:
        return f"<td><b>{text}</b></td>"
    return f"<td>{text}</td>" if option.allowed else f"<td><s>{text}</s></td>"
