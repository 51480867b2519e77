# SPDX-License-Identifier: Apache-2.0
"""A canvas that writes SVG, and the widths of texts on it.

The font of a viewer is not known. Widths are those of DejaVu Sans, the widest
of the usual fonts, so that a text that fits here fits everywhere. The
background is drawn too, so that pictures look the same on light and on dark
pages.
"""
from __future__ import annotations

from typing import Iterable, List, Optional, Sequence, Tuple
from xml.sax.saxutils import escape, quoteattr

INK = "#1f2933"
MUTED = "#52606d"
LINE = "#9aa5b1"
GRID = "#e4e7eb"
PAPER = "#ffffff"
SHADE = "#f5f7fa"

# Okabe and Ito's colours, distinct in every kind of colour vision.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
           "#f0e442", "#8a8f98")
ACCENT = "#d55e00"

FONT = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"

# Widths of the characters from the blank to the tilde, in hundredths of the
# font's size.
_WIDTHS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63,
    58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69,
    61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58,
    28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84)
_OTHER_WIDTH = 84
_BOLD = 1.15


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Pixels that the text takes at most."""
    hundredths = sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127
                     else _OTHER_WIDTH for c in text)
    return hundredths * size / 100 * (_BOLD if bold else 1)


def shorten(text: str, width: float, size: float, bold: bool = False) -> str:
    """The text, or its beginning and three dots, within the width."""
    if text_width(text, size, bold) <= width:
        return text
    while text and text_width(text + "…", size, bold) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, width: float, size: float) -> List[str]:
    """The text in lines of at most the width; a longer word is shortened."""
    lines: List[str] = []
    for word in filter(None, text.split(" ")):
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size) <= width:
            lines[-1] = joined
        else:
            lines.append(shorten(word, width, size))
    return lines


def contrast(fill: str) -> str:
    """Ink or paper, whichever reads better on the fill."""
    parts = [int(fill[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
              for p in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return PAPER if light < 0.223 else INK


def blend(colour: str, other: str, share: float) -> str:
    """A mixture: `share` (0 to 1) of the other colour, the rest of the
    first."""
    mixed = (round(int(colour[i:i + 2], 16) * (1 - share)
                   + int(other[i:i + 2], 16) * share) for i in (1, 3, 5))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _before(a: Tuple[float, float], b: Tuple[float, float], length: float
            ) -> Tuple[float, float]:
    """The point on the line from a to b at distance `length` before b."""
    whole = ((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2) ** 0.5 or 1
    share = min(length / whole, 1)
    return b[0] + (a[0] - b[0]) * share, b[1] + (a[1] - b[1]) * share


class Canvas:
    """Shapes in drawing order. The height may be set until render()."""

    def __init__(self, width: float, title: str, description: str = "") -> None:
        self.width, self.height = width, 0.0
        self._title, self._description = title, description
        self._parts: List[str] = []

    def _add(self, tag: str, attributes: Iterable[Tuple[str, object]],
             body: Optional[str] = None) -> None:
        words = [tag]
        for name, value in attributes:
            if value is not None:
                text = _number(value) if isinstance(value, (int, float)) \
                    else str(value)
                words.append(f"{name}={quoteattr(text)}")
        end = "/>" if body is None else f">{body}</{tag}>"
        self._parts.append("<" + " ".join(words) + end)

    def rect(self, x: float, y: float, width: float, height: float, fill: str,
             stroke: Optional[str] = None, radius: float = 0,
             dash: Optional[str] = None, thick: float = 1) -> None:
        self._add("rect", (
            ("x", x), ("y", y), ("width", width), ("height", height),
            ("rx", radius or None), ("fill", fill), ("stroke", stroke),
            ("stroke-width", thick if stroke else None),
            ("stroke-dasharray", dash)))

    def path(self, points: Sequence[Tuple[float, float]], stroke: str,
             thick: float = 1, dash: Optional[str] = None,
             arrow: bool = False, opacity: Optional[float] = None) -> None:
        """Straight lines through the points."""
        drawn = list(points)
        size = 5 + 1.5 * thick
        if arrow: # the line ends inside its arrowhead, whose tip is narrower
            drawn[-1] = _before(points[-2], points[-1], size / 2)
        text = "M" + " L".join(f"{_number(x)} {_number(y)}" for x, y in drawn)
        self._add("path", (
            ("d", text), ("fill", "none"), ("stroke", stroke),
            ("stroke-width", thick), ("stroke-dasharray", dash),
            ("stroke-linejoin", "round"), ("stroke-linecap", "round"),
            ("opacity", opacity)))
        if arrow:
            self._head(points[-2], points[-1], stroke, size)

    def _head(self, before: Tuple[float, float], tip: Tuple[float, float],
              fill: str, size: float) -> None:
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = (dx * dx + dy * dy) ** 0.5 or 1
        dx, dy = dx / length * size, dy / length * size
        self.polygon((tip, (tip[0] - dx - dy * 0.6, tip[1] - dy + dx * 0.6),
                      (tip[0] - dx + dy * 0.6, tip[1] - dy - dx * 0.6)), fill)

    def polygon(self, points: Sequence[Tuple[float, float]], fill: str,
                stroke: Optional[str] = None, thick: float = 1) -> None:
        self._add("polygon", (
            ("points", " ".join(f"{_number(x)},{_number(y)}"
                                for x, y in points)),
            ("fill", fill), ("stroke", stroke),
            ("stroke-width", thick if stroke else None)))

    def circle(self, x: float, y: float, radius: float, fill: str,
               stroke: Optional[str] = None, thick: float = 1) -> None:
        self._add("circle", (
            ("cx", x), ("cy", y), ("r", radius), ("fill", fill),
            ("stroke", stroke), ("stroke-width", thick if stroke else None)))

    def text(self, x: float, y: float, words: str, size: float = 12,
             fill: str = INK, anchor: str = "start", bold: bool = False,
             turned: bool = False) -> None:
        """y is the base line; turned: rotated to read upwards, around (x,
        y)."""
        self._add("text", (
            ("x", x), ("y", y), ("font-size", size), ("fill", fill),
            ("text-anchor", None if anchor == "start" else anchor),
            ("font-weight", "bold" if bold else None),
            ("transform", f"rotate(-90 {_number(x)} {_number(y)})"
             if turned else None)), escape(words))

    def render(self) -> str:
        size = f"{_number(self.width)} {_number(self.height)}"
        head = (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'width="{_number(self.width)}" height="{_number(self.height)}" '
            f'viewBox="0 0 {size}" font-family={quoteattr(FONT)}>',
            f"<title>{escape(self._title)}</title>",
            f"<desc>{escape(self._description)}</desc>",
            f'<rect x="0.5" y="0.5" width="{_number(self.width - 1)}" '
            f'height="{_number(self.height - 1)}" rx="8" fill="{PAPER}" '
            f'stroke="{GRID}"/>')
        return "\n".join((*head, *self._parts, "</svg>")) + "\n"
