"""Pictures as SVG text: the same marks give the same bytes on every machine, with no drawing library and no font.

One style: an explicit light background, so that a dark page shows it as it is; Okabe and Ito's colours, which colour
blindness keeps apart; labels beside what they name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10

WIDTH = 760
BACKGROUND, INK, MUTED, GRID = "#ffffff", "#1f2328", "#59636e", "#d8dee4"
BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
READABLE = {VERMILLION: "#b34f00", GREEN: "#00704f", ORANGE: "#8f6400", SKY: "#1f7ab0", PURPLE: "#a1497c"}
"""The colour of text about a mark of a colour that is too pale for letters."""

SIZE = 12
WIDE = 0.56
"""Part of the size of a font that a letter is wide, by and large."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass
class Picture:
    """Marks on a plane in pixels, y downwards, with what it shows in words. ``boxes`` are where texts stand, about."""

    title: str
    description: str
    height: int
    width: int = WIDTH
    marks: list[str] = field(default_factory=list)
    boxes: list[tuple[Box, str]] = field(default_factory=list)

    def head(self, *lines: str) -> None:
        """The title at the top left, and lines below it."""
        self.text(16, 26, self.title, size=15, bold=True)
        for number, line in enumerate(lines):
            self.text(16, 45 + 16 * number, line, colour=MUTED)

    def text(
        self, x: float, y: float, said: str, *, colour: str = INK, anchor: str = "start", size: int = SIZE,
        bold: bool = False, title: str = "",
    ) -> None:  # fmt: skip
        """A line of text whose baseline is at y; ``anchor`` is its start, middle or end."""
        self.boxes.append((text_box(x, y, said, anchor, size), said))
        options = [f'fill="{READABLE.get(colour, colour)}"']
        options += [f'text-anchor="{anchor}"'] * (anchor != "start") + [f'font-size="{size}"'] * (size != SIZE)
        options += ['font-weight="600"'] * bold
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.marks.append(f'<text x="{x:.1f}" y="{y:.1f}" {" ".join(options)}>{inside}{escape(said)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, colour: str = GRID, wide: float = 1, dash: str = ""):
        """A straight line."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.marks.append(f'<line {at} stroke="{colour}" stroke-width="{wide:g}"{dashed}/>')

    def path(self, points: Sequence[tuple[float, float]], *, colour: str, wide: float = 2, dash: str = "") -> None:
        """A line through points."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.marks.append(f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="{wide:g}"{dashed}/>')

    def rect(self, x: float, y: float, wide: float, high: float, *, colour: str, title: str = "", edge: str = ""):
        """A filled rectangle; ``title`` is what a pointer over it says."""
        inside = f"><title>{escape(title)}</title></rect>" if title else "/>"
        stroke = f' stroke="{edge}"' if edge else ""
        at = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
        self.marks.append(f'<rect {at} fill="{colour}"{stroke}{inside}')

    def dot(self, x: float, y: float, *, colour: str, title: str = "", radius: float = 4, hollow: bool = False) -> None:
        """A point."""
        inside = f"><title>{escape(title)}</title></circle>" if title else "/>"
        fill = f'fill="{BACKGROUND}" stroke="{colour}" stroke-width="2"' if hollow else f'fill="{colour}"'
        self.marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" {fill}{inside}')

    def __str__(self) -> str:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc" '
                f'font-family="system-ui, sans-serif" font-size="{SIZE}">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="desc">{escape(self.description)}</desc>',
                f'<rect width="{self.width}" height="{self.height}" rx="6" fill="{BACKGROUND}"/>',
                *self.marks,
                "</svg>\n",
            ]
        )


def text_box(x: float, y: float, said: str, anchor: str = "start", size: int = SIZE) -> Box:
    """Where a text stands, about."""
    wide = WIDE * size * len(said)
    left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
    return left, y - 0.8 * size, left + wide, y + 0.2 * size


def overlap(one: Box, other: Box) -> float:
    """The area that two boxes share."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, wide) * max(0, high)


@dataclass(frozen=True)
class Scale:
    """From values to pixels; ``log`` for equal steps by factors."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def ticks(values: Sequence[float]) -> list[float]:
    """Round numbers around the values, evenly spaced, four to nine of them."""
    span = (max(values) - min(values)) or abs(max(values)) or 1.0
    power = 10.0 ** floor(log10(span / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 6)
    first, last = floor(min(values) / step), ceil(max(values) / step)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places at least ``gap`` apart in the order of the wanted ones, as near to them as pushing apart in turn gives."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [wanted[i] for i in order]
    for _ in range(100):
        moved = False
        for i in range(1, len(places)):
            near = gap - (places[i] - places[i - 1])
            if near > 1e-6:
                places[i - 1], places[i], moved = places[i - 1] - near / 2, places[i] + near / 2, True
        if not moved:
            break
    out = [0.0] * len(wanted)
    for place, i in zip(places, order, strict=True):
        out[i] = round(place, 3)
    return out


def beside(picture: Picture, points: Sequence[tuple[float, float, str, str]], inside: Box) -> None:
    """Label points ``(x, y, text, colour)`` where a label meets no other and no point, within ``inside``."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y, _, _ in points]
    for x, y, said, colour in points:
        places = [
            (x + dx, y + dy, anchor)
            for reach in (0, 12, 24, 36)
            for dx, dy, anchor in (
                (8, 4, "start"), (-8, 4, "end"), (0, -9 - reach, "middle"), (0, 18 + reach, "middle"),
                (7, -6 - reach, "start"), (-7, -6 - reach, "end"), (7, 14 + reach, "start"), (-7, 14 + reach, "end"),
            )
        ]  # fmt: skip
        tried = [(_cost(text_box(px, py, said, anchor), taken, inside), i) for i, (px, py, anchor) in enumerate(places)]
        px, py, anchor = places[min(tried)[1]]
        if abs(py - y) > 20:
            picture.line(x, y, px, py + (3 if py < y else -11), colour=MUTED, wide=0.6)
        picture.text(px, py, said, colour=colour, anchor=anchor)
        taken.append(text_box(px, py, said, anchor))


def _cost(box: Box, taken: Sequence[Box], inside: Box) -> float:
    outside = (box[2] - box[0]) * (box[3] - box[1]) - overlap(box, inside)
    return round(outside + sum(overlap(box, other) for other in taken), 3)
