"""Drawing of the anatomy of a model, as SVG without matplotlib: the blocks of one or two stacks from bottom to top.

It is 390 units wide, so that its text is legible on a phone, and has colours for light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

INPUT = -1
"""In `Box.inputs`: the input of the frame."""
SUM = "sum"

_WIDTH, _MARGIN, _GUTTER = 390, 10, 14
_LANE = 7.0
"""Distance of lines that pass boxes side by side."""
_ROW_GAP, _BOX_GAP, _FRAME_GAP = 17.0, 8.0, 21.0
_TITLE, _TEXT, _LINE_HEIGHT = 11.5, 10.5, 13.5
_SUM_RADIUS = 8.5
_LETTERS = {"b": 0.62, "": 0.56}
"""Mean width of a letter by the class of a text, as a share of the font size."""

_STYLE = """
.kf-anatomy{--page:#fff;--text:#171a21;--muted:#565e6e;--line:#7d8698;--frame:#f5f6f8;--edge:#d9dde6;
--attention:#ffdccb;--feed:#cfe8ff;--norm:#f3f0c6;--table:#d8f3d4;--head:#e6e0fa;--mixer:#f6d9f0;--plain:#eef0f5;
--bar:#3f51d8;font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
@media (prefers-color-scheme:dark){.kf-anatomy{--page:#101217;--text:#e9ebf1;--muted:#a3abbb;--line:#8d95a7;
--frame:#181b22;--edge:#313644;--attention:#66351d;--feed:#1d4468;--norm:#4c4716;--table:#244f2a;--head:#3b3266;
--mixer:#5a2a50;--plain:#2a2f3a;--bar:#93a3ff}}
.kf-anatomy text{fill:var(--text);font-size:10.5px}
.kf-anatomy .b{font-weight:600;font-size:11.5px}
.kf-anatomy .h{font-weight:700;font-size:19px}
.kf-anatomy .n{font-weight:700;font-size:16px}
.kf-anatomy .m{fill:var(--muted);font-size:11px}
.kf-anatomy .s{fill:var(--muted);font-size:10px}
.kf-anatomy .r{font-weight:700;font-size:12.5px}
.kf-anatomy .p{fill:none;stroke:var(--line);stroke-width:1.3}
.kf-anatomy .c{stroke-dasharray:4 3}
.kf-anatomy .f{fill:var(--frame);stroke:var(--edge)}
""".strip()
_FILLS = {
    "attention": "attention",
    "feed_forward": "feed",
    "norm": "norm",
    "table": "table",
    "position": "table",
    "head": "head",
    "mixer": "mixer",
}


@dataclass(frozen=True)
class Box:
    """A block.

    Attributes:
        title: Its name.
        lines: Further lines.
        role: Its kind, which decides the colour; `SUM` is a circle with a plus.
        inputs: Indices of the boxes of the frame whose output it reads, or `INPUT`.
        reads_memory: Whether it reads the output of the first column.
    """

    title: str
    lines: tuple[str, ...]
    role: str
    inputs: tuple[int, ...]
    reads_memory: bool = False


@dataclass(frozen=True)
class Frame:
    """Boxes between one input and one output.

    Attributes:
        label: Number of repetitions; with one, the boxes have a frame around them.
        note: Which layers of the stack these are.
        boxes: The boxes, each after those that it reads.
        result: Index of the box whose output leaves the frame. Those that it does not depend on stand beside it.
        shape: Shape of the output.
    """

    label: str
    note: str
    boxes: tuple[Box, ...]
    result: int
    shape: str = ""


@dataclass(frozen=True)
class Column:
    """A stack.

    Attributes:
        title: Its name.
        below: What it reads.
        above: What it returns.
        frames: Its frames from bottom to top.
    """

    title: str
    below: str
    above: str
    frames: tuple[Frame, ...]


def anatomy_svg(
    title: str,
    subtitle: str,
    facts: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    sizes: Sequence[tuple[str, int]],
) -> str:
    """Returns the drawing as SVG.

    Args:
        title: Name of the model.
        subtitle: Text below it.
        facts: Figures, each with what it counts.
        columns: The stacks, from left to right.
        sizes: Bytes by recipe, drawn as bars below.
    """
    top = 84.0
    width = (_WIDTH - 2 * _MARGIN - _GUTTER * (len(columns) - 1)) / len(columns)
    drawings = [_ColumnDrawing(column, width) for column in columns]
    bottom = top + max(drawing.height for drawing in drawings)
    parts, memory = [], None
    for index, drawing in enumerate(drawings):
        left = _MARGIN + index * (width + _GUTTER)
        parts += drawing.draw(left, bottom, memory)
        if index == 0 and len(drawings) > 1:
            memory = _Memory(left + width / 2, drawing.output_y, left + width + _GUTTER / 2)
    height = bottom + 26 + 19 * len(sizes) + 16
    label = f"{title}: {subtitle}"
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="kf-anatomy" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(label)}" '
        'style="max-width:100%;height:auto">',
        f"<title>{escape(label)}</title><style>{_STYLE}</style>",
        '<defs><marker id="kf-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" '
        'orient="auto"><path d="M0 0 6 3 0 6z" style="fill:var(--line)"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height:.0f}" style="fill:var(--page)"/>',
        _text(_MARGIN, 24, title[:34], "h", "start"),
        _text(_MARGIN, 40, subtitle, "m", "start"),
    ]
    for index, (value, name) in enumerate(facts):
        x = _MARGIN + index * 128
        head += [_text(x, 62, value, "n", "start"), _text(x, 76, name, "m", "start")]
    return "\n".join([*head, *parts, *_bars(sizes, bottom + 26), "</svg>"])


@dataclass(frozen=True)
class _Memory:
    """The output of the first column.

    Attributes:
        x: Where it leaves the column.
        y: Likewise.
        lane: Where its line rises between the columns.
    """

    x: float
    y: float
    lane: float


class _ColumnDrawing:
    """A column: first measured, then drawn with its bottom at a given place."""

    def __init__(self, column: Column, width: float) -> None:
        self.column, self.width = column, width
        self.frames = [_FrameDrawing(frame, width) for frame in column.frames]
        self.height = sum(frame.height + _FRAME_GAP for frame in self.frames) + _FRAME_GAP + 28 + 22
        self.output_y = 0.0

    def draw(self, left: float, bottom: float, memory: _Memory | None) -> list[str]:
        """Returns the elements; sets `output_y`."""
        center = left + self.width / 2
        parts = [_text(center, bottom - 2, self.column.title, "r"), _text(center, bottom - 16, self.column.below, "m")]
        y = bottom - 28
        for frame in self.frames:
            parts.append(_path([(center, y), (center, y - _FRAME_GAP)], frame.entry == 0))
            y -= _FRAME_GAP
            parts += frame.draw(left, y, memory)
            y -= frame.height
            parts.append(_text(center + 6, y - 7, frame.frame.shape, "s", "start"))
        self.output_y = y
        return [
            *parts,
            _path([(center, y), (center, y - _FRAME_GAP)], True),
            _text(center, y - 26, self.column.above, "m"),
        ]


class _FrameDrawing:
    """Boxes in rows: each above all that it reads."""

    def __init__(self, frame: Frame, width: float) -> None:
        self.frame, self.width = frame, width
        self.framed = bool(frame.label)
        self.beside = _beside(frame)
        self.rows = _rows(frame, self.beside)
        self.row_of = {index: number for number, row in enumerate(self.rows) for index in row}
        self.lanes = self._lanes()
        sides = [len(set(self.lanes[side].values())) for side in ("left", "right")]
        pad = 9.0 if self.framed else 2.0
        # The same on both sides, so that what follows each other is on one line.
        self.side = pad + max(sides) * _LANE + (3.0 if max(sides) else 0.0)
        inner = width - 2 * self.side
        self.text: dict[int, list[tuple[str, str]]] = {}
        self.sizes: dict[int, tuple[float, float]] = {}
        for row in self.rows:
            each = (inner - _BOX_GAP * (len(row) - 1)) / len(row)
            for index in row:
                box = frame.boxes[index]
                self.text[index] = _wrapped(box, each - 8)
                tall = 2 * _SUM_RADIUS if box.role == SUM else len(self.text[index]) * _LINE_HEIGHT + 8
                self.sizes[index] = each, tall
        self.heights = [max(self.sizes[index][1] for index in row) for row in self.rows]
        # Lines need space where they branch to the boxes of the first row, and where they return to the middle.
        self.entry = _ROW_GAP if self.framed or len(self.rows[0]) > 1 else 0.0
        self.exit = 28.0 if self.framed else 8.0 if len(self.rows[-1]) > 1 else 0.0
        self.height = sum(self.heights) + _ROW_GAP * (len(self.rows) - 1) + self.entry + self.exit

    def _lanes(self) -> dict[str, dict[tuple[int, int], int]]:
        """Returns the lane of each line that passes other rows, by side and by its ends."""
        lanes: dict[str, dict[tuple[int, int], int]] = {"left": {}, "right": {}}
        taken: dict[str, list[list[tuple[int, int]]]] = {"left": [], "right": []}
        for target, box in enumerate(self.frame.boxes):
            for source in box.inputs:
                start, end = self.row_of.get(source, INPUT), self.row_of[target]
                if end - start < 2:
                    continue
                side = self._side(source, target)
                for lane, spans in enumerate([*taken[side], []]):
                    if all(end <= other_start or start >= other_end for other_start, other_end in spans):
                        lanes[side][source, target] = lane
                        if lane == len(taken[side]):
                            taken[side].append([])
                        taken[side][lane].append((start, end))
                        break
        return lanes

    def _side(self, source: int, target: int) -> str:
        """A line starts on the side of its box in its row, and one from the input ends on that of the box it enters."""
        index = target if source == INPUT else source
        row = self.rows[self.row_of[index]]
        return "right" if len(row) > 1 and row.index(index) >= len(row) / 2 else "left"

    def draw(self, left: float, bottom: float, memory: _Memory | None) -> list[str]:
        """Returns the elements of the frame above a line."""
        parts, lines = [], []
        center = left + self.width / 2
        if self.framed:
            y = bottom - self.height
            parts.append(_rect(left, y, self.width, self.height, "f", radius=10))
            parts.append(_text(left + 9, y + 15, self.frame.label, "b", "start"))
            parts.append(_text(left + self.width - 9, y + 15, self.frame.note, "m", "end"))
        places = self._places(left, bottom)
        entry = center, bottom
        for index, box in enumerate(self.frame.boxes):
            x, y = places[index]
            lines += [self._line(places, entry, source, index, left) for source in self._sources(index)]
            if box.reads_memory and memory is not None:
                edge = x - self.sizes[index][0] / 2
                points = [(memory.x, memory.y - 18), (memory.lane, memory.y - 18), (memory.lane, y), (edge, y)]
                lines.append(_path(points, True, "p c"))
            parts += self._box(box, index, x, y)
        x, y = places[self.frame.result]
        above = min(places[index][1] - self.sizes[index][1] / 2 for index in self.rows[-1])
        turn = above if x == center else above - 6
        start = y - self.sizes[self.frame.result][1] / 2
        lines.append(_path([(x, start), (x, turn), (center, turn), (center, bottom - self.height)], False))
        return [*parts[:3], *lines, *parts[3:]] if self.framed else [*lines, *parts]

    def _sources(self, index: int) -> tuple[int, ...]:
        """Returns where lines to a box come from: tables read the text."""
        inputs = self.frame.boxes[index].inputs
        return (INPUT,) if not inputs and index not in self.beside and self.row_of[index] == 0 else inputs

    def _places(self, left: float, bottom: float) -> dict[int, tuple[float, float]]:
        """Returns the centre of each box."""
        places = {}
        y = bottom - self.entry
        for row, height in zip(self.rows, self.heights, strict=True):
            x = left + self.side
            for index in row:
                width = self.sizes[index][0]
                places[index] = x + width / 2, y - height / 2
                x += width + _BOX_GAP
            y -= height + _ROW_GAP
        return places

    def _line(
        self,
        places: dict[int, tuple[float, float]],
        entry: tuple[float, float],
        source: int,
        target: int,
        left: float,
    ) -> str:
        """Returns the line from a box, or from the input, to another box."""
        x, y = places[target]
        width, tall = self.sizes[target]
        round_target = self.frame.boxes[target].role == SUM
        if source == INPUT:
            start_x, start_y = entry
            gap = start_y - self.entry / 2
        else:
            start_x = places[source][0]
            start_y = places[source][1] - self.sizes[source][1] / 2
            row_top = min(places[i][1] - self.sizes[i][1] / 2 for i in self.rows[self.row_of[source]])
            gap = row_top - _ROW_GAP / 2
        if target in self.beside and source != INPUT:
            return _path([(start_x + self.sizes[source][0] / 2, places[source][1]), (x - width / 2, y)], True)
        for side, sign in (("left", -1), ("right", 1)):
            if (source, target) in self.lanes[side]:
                lane = self.lanes[side][source, target]
                far = left + (self.side if side == "left" else self.width - self.side) + sign * (4 + lane * _LANE)
                end = x + sign * (_SUM_RADIUS if round_target else width / 2)
                return _path([(start_x, start_y), (start_x, gap), (far, gap), (far, y), (end, y)], True)
        if round_target and abs(start_x - x) > 1:
            end = x + (_SUM_RADIUS if start_x > x else -_SUM_RADIUS)
            return _path([(start_x, start_y), (start_x, y), (end, y)], True)
        below = y + tall / 2
        return _path([(start_x, start_y), (start_x, gap), (x, gap), (x, below)], True)

    def _box(self, box: Box, index: int, x: float, y: float) -> list[str]:
        width, tall = self.sizes[index]
        if box.role == SUM:
            cross = f"M{x - 4:.1f} {y:.1f}h8M{x:.1f} {y - 4:.1f}v8"
            return [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_SUM_RADIUS}" style="fill:var(--page);stroke:var(--line)"/>'
                f'<path class="p" d="{cross}"/>'
            ]
        edge = "stroke:var(--line);stroke-dasharray:4 3" if index in self.beside else "stroke:var(--edge)"
        css = f"fill:var(--{_FILLS.get(box.role, 'plain')});{edge}"
        parts = [_rect(x - width / 2, y - tall / 2, width, tall, "", css, 6)]
        first = y - len(self.text[index]) * _LINE_HEIGHT / 2 + 10
        for number, (style, line) in enumerate(self.text[index]):
            parts.append(_text(x, first + number * _LINE_HEIGHT, line, style))
        return ["".join(parts)]


def _beside(frame: Frame) -> set[int]:
    """Returns the boxes that the result does not depend on: attention reads them, in the frames above."""
    needed, pending = set(), [frame.result]
    while pending:
        index = pending.pop()
        if index not in needed and index != INPUT:
            needed.add(index)
            pending += frame.boxes[index].inputs
    return set(range(len(frame.boxes))) - needed


def _rows(frame: Frame, beside: set[int]) -> list[list[int]]:
    """Returns the boxes by row: each one row above the highest that it reads."""
    row: dict[int, int] = {INPUT: -1}
    boxes = frame.boxes
    for index, box in enumerate(boxes):
        row[index] = 1 + max((row[source] for source in box.inputs), default=-1)
    # What only gives, such as a table of segments, stands beside what is added to it.
    for index, box in enumerate(boxes):
        readers = [row[reader] for reader, other in enumerate(boxes) if index in other.inputs]
        if not box.inputs and readers:
            row[index] = min(readers) - 1
    row |= dict.fromkeys(beside, row[frame.result])
    count = 1 + max(row.values())
    rows = [[index for index in range(len(boxes)) if row[index] == number] for number in range(count)]
    return [members for members in rows if members]


def _wrapped(box: Box, width: float) -> list[tuple[str, str]]:
    """Returns the lines of a box, each with the class of its text."""
    lines = []
    for style, size, text in [("b", _TITLE, box.title), *(("", _TEXT, line) for line in box.lines)]:
        if box.role == SUM:
            continue
        current = ""
        for word in text.split(" "):
            longer = f"{current} {word}".strip()
            if current and len(longer) * size * _LETTERS[style] > width:
                lines.append((style, current))
                longer = word
            current = longer
        lines.append((style, current))
    return lines


def _bars(sizes: Sequence[tuple[str, int]], top: float) -> list[str]:
    """Returns a bar for the bytes of each recipe."""
    largest = max((size for _, size in sizes), default=1) or 1
    parts = [_text(_MARGIN, top - 2, "bytes of the weights", "m", "start")]
    for index, (name, size) in enumerate(sizes):
        y = top + 8 + 19 * index
        width = 190 * size / largest
        parts.append(_text(_MARGIN, y + 10, name, "", "start"))
        parts.append(_rect(_MARGIN + 62, y, max(width, 1), 12, "", "fill:var(--bar)", 2))
        parts.append(_text(_MARGIN + 68 + width, y + 10, readable_bytes(size), "", "start"))
    return parts


def readable_bytes(size: float) -> str:
    """Writes bytes with three digits and a unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            scaled = size / unit
            return f"{scaled:,.{0 if scaled >= 100 else 1 if scaled >= 10 else 2}f} {name}"
    return f"{size:,.0f} bytes"


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "middle") -> str:
    attributes = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, style: str, css: str = "", radius: float = 0) -> str:
    attributes = (f' class="{style}"' if style else "") + (f' style="{css}"' if css else "")
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"{attributes}/>'


def _path(points: Sequence[tuple[float, float]], arrow: bool, style: str = "p") -> str:
    steps = [point for index, point in enumerate(points) if index == 0 or point != points[index - 1]]
    data = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in steps)
    end = ' marker-end="url(#kf-arrow)"' if arrow else ""
    return f'<path class="{style}" d="{data}"{end}/>'
