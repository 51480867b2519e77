# SPDX-License-Identifier: Apache-2.0
"""Panels of curves: scales, axes, lines with markers, a legend."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, List, Optional, Sequence, Tuple

from ulyx_plot.page import significant
from ulyx_plot.svg import GRID, INK, LINE, MUTED, PAPER, Canvas, text_width

Point = Tuple[float, float]
Tick = Tuple[float, str]
TICK_SIZE = 11.0


@dataclass
class Series:
    """One curve. marker: one of circle, square, diamond, triangle, none."""
    label: str
    colour: str
    points: List[Point] = field(default_factory=list)
    marker: str = "circle"
    dash: Optional[str] = None
    thick: float = 2
    hollow: bool = False


@dataclass
class Axis:
    """Maps [low, high] to [0, 1], on a logarithmic scale where `log` is set."""
    low: float
    high: float
    ticks: List[Tick]
    log: bool

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return (value - low) / (high - low)


@dataclass
class Box:
    x: float
    y: float
    width: float
    height: float


def log2_axis(values: Sequence[float], label: Callable[[float], str]) -> Axis:
    """Ticks at powers of two, a little room at both ends."""
    low, high = min(values), max(values)
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(
        math.log2(high) - 1e-9)
    ticks = [(2.0 ** k, label(2.0 ** k)) for k in range(first, last + 1)
             if low / 1.2 <= 2.0 ** k <= high * 1.2]
    room = (high / low) ** 0.03 if high > low else 1.5
    return Axis(low / room, high * room, ticks, True)


def log10_axis(values: Sequence[float],
               label: Callable[[float], str] = significant) -> Axis:
    """Ticks at whole decades; at 1, 2 and 5 of each where decades are few."""
    low, high = min(values) / 1.25, max(values) * 1.25
    steps = (1, 2, 5) if high / low < 200 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [s * 10.0 ** d for d in decades for s in steps]
    low = max([v for v in found if v <= low], default=low)
    high = min([v for v in found if v >= high], default=high)
    ticks = [(v, label(v)) for v in found
             if low <= v * 1.0001 and v <= high * 1.0001]
    return Axis(low, high, ticks, True)


def linear_axis(values: Sequence[float]) -> Axis:
    """From zero, in 3 to 6 round steps."""
    top = max(max(values), 1e-9) * 1.05
    step = 10.0 ** math.floor(math.log10(top))
    step *= next(s for s in (0.2, 0.25, 0.5, 1, 2) if top / (step * s) <= 6)
    count = math.ceil(top / step)
    return Axis(0, count * step,
                [(i * step, significant(i * step)) for i in range(count + 1)],
                False)


def _thin(ticks: Sequence[Tick], room: float) -> List[Tick]:
    """Every k-th tick, counted back from the last one, with k so large that
    labels do not touch."""
    if not ticks:
        return []
    widest = max(text_width(line, TICK_SIZE) for _, label in ticks
                 for line in label.split("\n")) + 12
    every = max(1, math.ceil(widest * len(ticks) / max(room, 1)))
    return list(ticks[::-every][::-1])


def _frame(canvas: Canvas, box: Box, x: Axis, y: Axis) -> None:
    for value, label in y.ticks:
        at = box.y + box.height * (1 - y.share(value))
        canvas.path(((box.x, at), (box.x + box.width, at)), GRID)
        canvas.text(box.x - 7, at + 4, label, TICK_SIZE, MUTED, "end")
    for value, label in _thin(x.ticks, box.width):
        at = box.x + box.width * x.share(value)
        foot = box.y + box.height
        canvas.path(((at, foot), (at, foot + 4)), LINE)
        for i, line in enumerate(label.split("\n")):
            canvas.text(at, foot + 17 + 14 * i, line, TICK_SIZE, MUTED, "middle")
    canvas.path(((box.x, box.y + box.height),
                 (box.x + box.width, box.y + box.height)), LINE)


def _mark(canvas: Canvas, at: Point, series: Series) -> None:
    x, y, r = at[0], at[1], 3.4
    fill = PAPER if series.hollow else series.colour
    edge = series.colour if series.hollow else PAPER
    if series.marker == "circle":
        canvas.circle(x, y, r, fill, edge, 1.2)
    elif series.marker == "square":
        canvas.rect(x - r, y - r, 2 * r, 2 * r, fill, edge, thick=1.2)
    elif series.marker == "diamond":
        canvas.polygon(((x, y - r - 1), (x + r + 1, y), (x, y + r + 1),
                        (x - r - 1, y)), fill, edge, 1.2)
    elif series.marker == "triangle":
        canvas.polygon(((x, y - r - 1), (x + r + 0.8, y + r),
                        (x - r - 0.8, y + r)), fill, edge, 1.2)


def panel(canvas: Canvas, box: Box, title: str, x: Axis, y: Axis,
          series: Sequence[Series]) -> None:
    """Axes and curves within the box; ticks and the title lie around it."""
    canvas.text(box.x, box.y - 12, title, 13, INK, bold=True)
    _frame(canvas, box, x, y)
    for one in series:
        points = [(box.x + box.width * x.share(px),
                   box.y + box.height * (1 - y.share(py)))
                  for px, py in sorted(one.points)]
        if len(points) > 1:
            canvas.path(points, one.colour, one.thick, one.dash)
        for point in points:
            _mark(canvas, point, one)


def legend(canvas: Canvas, x: float, y: float, width: float,
           series: Sequence[Series]) -> float:
    """Draws the entries side by side, in as many rows as they need. Returns the
    y below the last row."""
    at = x
    for one in series:
        room = 34 + text_width(one.label, 12) + 22
        if at > x and at + room > x + width:
            at, y = x, y + 20
        canvas.path(((at, y - 4), (at + 26, y - 4)), one.colour, one.thick,
                    one.dash)
        _mark(canvas, (at + 13, y - 4), one)
        canvas.text(at + 34, y, one.label, 12, INK)
        at += room
    return y + 20
