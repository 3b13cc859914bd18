"""Explanation of a generated text: the most probable tokens of each step, and the chosen one."""

from __future__ import annotations

import functools
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kerasformer.errors import GenerationError
from kerasformer.extras import require
from kerasformer.generation import GenerationOutput, Node, Record, readable_token
from kerasformer.tokenization import Tokenizer
from kerasformer.tools.viz import draw_beam_tree
from kerasformer.tools.viz.explanation import Cell, draw_explanation

if TYPE_CHECKING:
    import pandas
    from rich.table import Table
    from rich.text import Text

CHOSEN, EXCLUDED = "✓", "✗"
_PRINTED, _DRAWN = 36, 48
"""Number of characters of the input that printed and drawn tables show, counted from its end."""


@dataclass(frozen=True)
class Option:
    """A candidate token of a step.

    Attributes:
        token: Token id.
        text: Readable text of the token.
        probability: Probability before rules and filters.
        chosen: Whether the token was chosen.
        allowed: Whether rules and filters allow the token.
    """

    token: int
    text: str
    probability: float
    chosen: bool
    allowed: bool

    @property
    def marked(self) -> str:
        """The text, preceded by a mark if the token was chosen or excluded."""
        return f"{CHOSEN if self.chosen else '' if self.allowed else EXCLUDED} {self.text}".lstrip()

    def __str__(self) -> str:
        return f"{self.marked} ({self.probability:.2%})"


@dataclass(frozen=True)
class Line:
    """One step of generation.

    Attributes:
        input: Text before the step; for an encoder-decoder, without the encoder input.
        options: Most probable tokens, best first.
        chosen: The chosen token, which is not necessarily one of `options`.
        num_allowed: Number of tokens of the whole vocabulary that rules and filters allow.
    """

    input: str
    options: tuple[Option, ...]
    chosen: Option
    num_allowed: int


@dataclass(frozen=True, repr=False)
class Explanation:
    """Explanation of one text, displayed as a table in notebooks, by `print` and by rich.

    Attributes:
        text: The generated text, including the prompt of a decoder.
        lines: One line for each token.
    Reference: the table of Tunstall, von Werra, Wolf 2022, "Natural Language Processing with Transformers", chapter 5.
    """

    text: str
    lines: tuple[Line, ...]
    _record: Record = field(repr=False, compare=False)
    _tokenizer: Tokenizer = field(repr=False, compare=False)

    @property
    def columns(self) -> list[str]:
        """Column names: `Input`, `Choice 1` … `Choice 5`, and `Chosen` if a step chose none of these."""
        num_choices = max((len(line.options) for line in self.lines), default=0)
        has_chosen = any(line.chosen not in line.options for line in self.lines)
        return ["Input", *(f"Choice {rank + 1}" for rank in range(num_choices)), *(["Chosen"] if has_chosen else [])]

    def cells(self, line: Line) -> list[Option | None]:
        """Returns the tokens of a line, one for each column except the first; `None` is an empty cell."""
        num_choices = len(self.columns) - 1 - ("Chosen" in self.columns)
        cells: list[Option | None] = [*line.options, *[None] * (num_choices - len(line.options))]
        if "Chosen" in self.columns:
            cells.append(None if line.chosen in line.options else line.chosen)
        return cells

    @property
    def note(self) -> str:
        """Explanation of the marks that occur in the table."""
        parts = [f"Percentages are the model's, before rules and filters. {CHOSEN} chosen"]
        if any(not option.allowed for line in self.lines for option in line.options):
            parts.append(f"{EXCLUDED} excluded by rules or filters")
        return ", ".join(parts) + "."

    def to_frame(self) -> pandas.DataFrame:
        """Returns a pandas data frame with the complete inputs.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        rows = [[line.input, *("" if cell is None else str(cell) for cell in self.cells(line))] for line in self.lines]
        return require("pandas", "viz").DataFrame(rows, columns=self.columns)

    def table(self) -> Table:
        """Returns a rich table; `rich.print(explanation)` prints it."""
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
        """Draws the table into a file.

        Args:
            path: Output file, which ends in `.png` or `.svg`.
            dark: Whether to use colours for a dark background.

        Raises:
            InputError: unsupported file type, or a folder that does not exist.
            MissingExtraError: matplotlib is not installed.
        """
        rows = [[Cell(name, head=True) for name in self.columns]]
        for line in self.lines:
            options = [Cell("") if cell is None else _drawn(cell) for cell in self.cells(line)]
            rows.append([Cell(shortened(line.input, _DRAWN)), *options])
        draw_explanation(rows, path, self.note, dark=dark)

    def tree(self, path: str | Path, *, steps: int = 6, title: str = "", dark: bool = False) -> None:
        """Draws the tree of beams that contains this text.

        Args:
            path: Output file, which ends in `.png` or `.svg`.
            steps: Maximum number of steps to draw; the figure says how many more there are.
            title: Title above the tree.
            dark: Whether to use colours for a dark background.

        Raises:
            InputError: unsupported file type, or a folder that does not exist.
            MissingExtraError: matplotlib is not installed.
            GenerationError: the text was not generated by beam search.
        """
        prompt = self._record.paths[0][0].prompt if self._record.paths[0] else 0
        spell = functools.partial(readable_token, self._tokenizer)
        draw_beam_tree(self._record, spell, path, prompt=prompt, steps=steps, title=title, dark=dark)


def explanations(
    output: GenerationOutput, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], choices: int = 5
) -> list[Explanation]:
    """Returns an explanation of each sequence.

    Args:
        output: Result of a run with `Controls(record=True)`.
        tokenizer: Tokenizer of the model.
        prompts: Token ids of each prompt, which precede the new tokens; empty for an encoder-decoder.
        choices: Number of tokens to show per step, at most `decoding.record.TOP`.

    Raises:
        GenerationError: the output has no record.
    """
    if output.record is None:
        raise GenerationError("An explanation needs a record of the run. Received: none. Pass explain=True.")
    results = []
    for index, path in enumerate(output.record.paths):
        tokens = output.sequences[index].tolist()
        prompt = [int(token) for token in prompts[path[0].prompt]] if path else []
        lines = tuple(_line(tokenizer, node, [*prompt, *tokens[:step]], choices) for step, node in enumerate(path))
        text = tokenizer.decode([*prompt, *tokens], skip_special_tokens=True)
        record = Record(steps=output.record.steps, paths=[path])
        results.append(Explanation(text, lines, record, tokenizer))
    return results


def _line(tokenizer: Tokenizer, node: Node, before: Sequence[int], choices: int) -> Line:
    candidates = zip(
        node.choice.tokens.tolist(), node.choice.log_probabilities.tolist(), node.choice.allowed.tolist(), strict=True
    )
    options = tuple(
        Option(token, readable_token(tokenizer, token), math.exp(log), token == node.token, allowed)
        for token, log, allowed in list(candidates)[:choices]
    )
    chosen = next((option for option in options if option.chosen), None) or Option(
        node.token, readable_token(tokenizer, node.token), math.exp(node.log_probability), True, True
    )
    return Line(tokenizer.decode(before, skip_special_tokens=True), options, chosen, node.choice.num_allowed)


def shortened(text: str, length: int) -> str:
    """Returns the end of a text in one line, starting with a whole word if possible."""
    flat = text.replace("\n", " ")
    if len(flat) <= length:
        return flat
    end = flat[-length + 2 :]
    return f"… {end.partition(' ')[2] or end}"


def _printed(option: Option) -> Text:
    """Formats a cell in two lines, so that six columns fit into a terminal of 80 characters."""
    from rich.text import Text

    style = "bold green" if option.chosen else "" if option.allowed else "dim strike"
    return Text.assemble((option.marked.replace(" ", "\u00a0"), style), (f"\n{option.probability:.2%}", "dim"))


def _drawn(option: Option) -> Cell:
    return Cell(str(option), option.probability, option.chosen, not option.allowed)


def _html_cell(option: Option | None) -> str:
    if option is None:
        return "<td></td>"
    text = html.escape(str(option))
    if option.chosen:
        return f"<td><b>{text}</b></td>"
    return f"<td>{text}</td>" if option.allowed else f"<td><s>{text}</s></td>"
