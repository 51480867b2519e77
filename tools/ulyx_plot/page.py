# SPDX-License-Identifier: Apache-2.0
"""The parts that all pictures share: title, subtitle, captions, and texts of
sizes, times and ranges."""
from __future__ import annotations

from typing import Sequence, Tuple

from ulyx_plot.svg import INK, MUTED, Canvas, shorten, wrap

MARGIN = 24.0
WIDTH = 880.0
SMALL = 12.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def begin(title: str, subtitle: str, width: float = WIDTH
          ) -> Tuple[Canvas, float]:
    """A canvas with its heading, and the y at which the picture may begin."""
    canvas = Canvas(width, title, subtitle)
    room = width - 2 * MARGIN
    canvas.text(MARGIN, 38, shorten(title, room, 18, True), 18, INK, bold=True)
    y = 60.0
    for line in wrap(subtitle, room, 13):
        canvas.text(MARGIN, y, line, 13, MUTED)
        y += 18
    return canvas, y + 6


def end(canvas: Canvas, y: float, captions: Sequence[str]) -> str:
    """Draws the captions from y downwards, a paragraph each. Returns the
    SVG."""
    for caption in captions:
        for line in wrap(caption, canvas.width - 2 * MARGIN, SMALL):
            canvas.text(MARGIN, y, line, SMALL, MUTED)
            y += 16
        y += 3
    canvas.height = y + 6
    return canvas.render()


def size_text(count: float) -> str:
    """Bytes in the largest binary unit that leaves 1 or more: 1.5 MiB."""
    unit = 0
    while count >= 1024 and unit + 1 < len(_UNITS):
        count, unit = count / 1024, unit + 1
    return f"{significant(count)} {_UNITS[unit]}"


def time_text(us: float) -> str:
    """Microseconds in the largest unit that leaves 1 or more: 1.5 ms."""
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit * 0.9999:
            return f"{significant(us / unit)} {name}"
    return f"{significant(us)} µs"


def significant(value: float) -> str:
    """Three digits, without zeros at the end: 1.5, 12.3, 4720."""
    if value >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0").rstrip(".")


def ranges(first: int, count: int) -> str:
    """The numbers first, first + 1, ... (`count` of them) as text: "4–7", "4"
    where count is 1, "none" where count is 0."""
    if count <= 0:
        return "none"
    return str(first) if count == 1 else f"{first}–{first + count - 1}"
