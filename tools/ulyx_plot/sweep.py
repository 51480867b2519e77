# SPDX-License-Identifier: Apache-2.0
"""busbw and time of a sweep over size, with a column of panels per direction.

A comparison is stored as a ratio: its time divided by the time of ulyx. Its
curve is therefore the time of ulyx times the ratio. Where a panel has one
series of ulyx, all comparisons are drawn beside it; where it has several, no
comparison is drawn.
"""
from __future__ import annotations

import statistics
from typing import Dict, List, Optional, Sequence, Tuple

from ulyx_plot.chart import (Axis, Box, Series, legend, linear_axis, log2_axis,
                             log10_axis, panel)
from ulyx_plot.page import MARGIN, WIDTH, begin, end, size_text, time_text
from ulyx_plot.sources import PlotError, Row, distinct, number, read_table
from ulyx_plot.svg import COLOURS, INK

NEEDED = ("size_bytes", "time_us", "busbw")
MADE_BY = "ulyx_perf --csv or -J FILE"

# The fields that distinguish curves, and their texts.
PARTS = (("model", "{}"), ("ranks", "{} ranks"), ("nodes", "{} nodes"),
         ("schedule", "{}"), ("dtype", "{}"), ("batch", "batch {}"),
         ("memory", "{} memory"), ("order", "{} order"), ("work", "work by {}"),
         ("transport", "{}"))

DIRECTIONS = {
    "s2h": "q, k, v to head shards (s2h)",
    "h2s": "output to sequence shards (h2s)",
    "s2h_adj": "gradients of q, k, v (s2h_adj)",
    "h2s_adj": "gradient of the output (h2s_adj)"}

# Ratio column: the name of its comparison, colour, marker, dashes.
COMPARISONS = {
    "vs_memcpy": ("plain copy of the same bytes: the limit", INK, "none", "2 4"),
    "vs_copy": ("one device copy: the limit", INK, "none", "2 4"),
    "vs_mpi": ("pack + MPI_Alltoall(v) + unpack", COLOURS[5], "square", None),
    "vs_mpiw": ("MPI_Alltoallw", COLOURS[2], "diamond", None),
    "vs_permute": ("pack + copy + unpack", COLOURS[3], "triangle", None),
    "vs_nccl": ("our schedule by NCCL", COLOURS[5], "square", None),
    "vs_nccl_each": ("NCCL all-to-all and permutes", COLOURS[2], "diamond",
                     None)}
MARKERS = ("circle", "square", "diamond", "triangle")
OURS = COLOURS[0]
MOST_SERIES = 7


class Curves:
    """The series of one column of panels: once with busbw, once with time on
    the y axis."""

    def __init__(self, direction: str) -> None:
        self.direction = direction
        self.busbw: List[Series] = []
        self.time: List[Series] = []

    def add(self, style: Series, sizes: Sequence[float],
            busbw: Sequence[float], time: Sequence[float]) -> None:
        for kept, values in ((self.busbw, busbw), (self.time, time)):
            kept.append(Series(style.label, style.colour,
                               list(zip(sizes, values)), style.marker,
                               style.dash, style.thick))


def _usable(rows: Sequence[Row], wanted: Dict[str, Optional[str]]) -> List[Row]:
    """The rows that have size, time and busbw above zero and the wanted values
    of the columns."""
    kept = [row for row in rows
            if all((number(row, name) or 0) > 0 for name in NEEDED)]
    for name, value in wanted.items():
        if value is None:
            continue
        found = distinct(kept, name)
        kept = [row for row in kept if str(row.get(name)) in value.split(",")]
        if not kept:
            raise PlotError(f"no rows with {name} {value}: the file has "
                            f"{', '.join(found) or 'none'}")
    if not kept:
        raise PlotError("no row has a size, a time and a busbw")
    return kept


def _label(row: Row, varying: Sequence[str]) -> str:
    words = [form.format(row[name]) for name, form in PARTS
             if name in varying and row.get(name) not in (None, "")]
    return ", ".join(words) or "ulyx"


def _by_size(rows: Sequence[Row], name: str) -> Dict[float, float]:
    """Median of the column at each size: runs may have been repeated."""
    values: Dict[float, List[float]] = {}
    for row in rows:
        value = number(row, name)
        if value is not None and value > 0:
            values.setdefault(float(row["size_bytes"]), []).append(value)
    return {size: statistics.median(v) for size, v in sorted(values.items())}


def _add_comparisons(curves: Curves, rows: Sequence[Row],
                     busbw: Dict[float, float], time: Dict[float, float]
                     ) -> None:
    for column, (label, colour, marker, dash) in COMPARISONS.items():
        ratios = _by_size(rows, column)
        sizes = [size for size in time if size in ratios]
        if sizes:
            curves.add(Series(label, colour, [], marker, dash, 1.6), sizes,
                       [busbw[s] / ratios[s] for s in sizes],
                       [time[s] * ratios[s] for s in sizes])


def _curves(rows: Sequence[Row], direction: str, labels: Sequence[str],
            varying: Sequence[str]) -> Curves:
    curves = Curves(direction)
    for label in labels:
        of_label = [row for row in rows if _label(row, varying) == label]
        busbw, time = _by_size(of_label, "busbw"), _by_size(of_label, "time_us")
        if len(labels) == 1 and of_label:
            _add_comparisons(curves, of_label, busbw, time)
        index = labels.index(label)
        style = Series(label, COLOURS[index] if len(labels) > 1 else OURS, [],
                       MARKERS[index % 4], None, 2.4)
        if time:
            curves.add(style, list(time), list(busbw.values()),
                       list(time.values()))
    return curves


FACTS = (("cpu", "{}", "{}"), ("cores", "{} core", "{} cores"),
         ("ranks", "{} rank", "{} ranks"), ("dtype", "{}", "{}"),
         ("version", "ulyx {}", "ulyx {}"))


def _facts(rows: Sequence[Row], machine: Row) -> List[str]:
    """What the rows were measured on: the machine as text, if the caller gives
    one; then what the rows record, or else what `machine` has."""
    facts = [str(machine["text"])] if machine.get("text") else []
    if not facts and not distinct(rows, "cpu") and not machine.get("cpu"):
        facts.append("machine not recorded")
    for name, one, several in FACTS:
        own = distinct(rows, name)
        values = own or ([str(machine[name])] if machine.get(name) else [])
        if values:
            text = (one if values == ["1"] else several).format(
                ", ".join(values))
            # A row's cores are the number that a process may use.
            facts.append(text + " a process" * (name == "cores" and bool(own)))
    return facts


def _caption(rows: Sequence[Row], machine: Row, note: str, many: bool
             ) -> List[str]:
    lines = [f"Measured on: {', '.join(_facts(rows, machine))}."
             + (f" {note}" if note else ""),
             "Times are medians of blocks, of the slowest rank; busbw: the "
             "most bytes that a rank receives from others, divided by the "
             "time; 1 GB = 10⁹ bytes."]
    if many:
        lines.append("Comparisons are drawn for one curve at a time: choose "
                     "with --model and --op.")
    return lines


def _subtitle(rows: Sequence[Row], varying: Sequence[str]) -> str:
    words = [form.format(value[0]) for name, form in PARTS
             for value in (distinct(rows, name),)
             if value and name not in (*varying, "model", "dtype")]
    heads = {name: distinct(rows, name) for name in ("heads", "kv_heads", "dim")}
    if all(len(value) == 1 for value in heads.values()):
        words.append("{} query heads, {} KV heads of {}".format(
            *(value[0] for value in heads.values())))
    usual = ("1 nodes", "1 ranks", "batch 1", "contiguous order",
             "work by heads")
    words = [word for word in words if word not in usual]
    wrong = [number(row, "wrong") for row in rows]
    if wrong and all(value == 0 for value in wrong):
        words.append("every element checked, none wrong")
    return ", ".join(words)


def _axes(columns: Sequence[Curves]) -> Tuple[Axis, Axis, Axis]:
    busbw = [y for c in columns for s in c.busbw for _, y in s.points]
    time = [y for c in columns for s in c.time for _, y in s.points]
    sizes = [x for c in columns for s in c.time for x, _ in s.points]
    return log2_axis(sizes, size_text), linear_axis(busbw), log10_axis(time, time_text)


def draw(rows: Sequence[Row], title: str, machine: Row, note: str) -> str:
    varying = [name for name, _ in PARTS if len(distinct(rows, name)) > 1]
    labels = list(dict.fromkeys(_label(row, varying) for row in rows))
    if len(labels) > MOST_SERIES:
        raise PlotError(f"{len(labels)} curves are too many to tell apart "
                        f"(at most {MOST_SERIES}): choose with --model and "
                        "--op, or split the file")
    if len({row["size_bytes"] for row in rows}) < 2:
        raise PlotError("one size only, nothing to draw a curve over: sweep "
                        "with ulyx_perf -b 64K -e 64M -f 2")
    directions = distinct(rows, "op") or [""]
    columns = [_curves([r for r in rows if str(r.get("op") or "") == op], op,
                       labels, varying) for op in directions]
    canvas, y = begin(title, _subtitle(rows, varying))
    shown = {s.label: s for c in columns for s in c.busbw}
    ordered = sorted(shown.values(), key=lambda s: s.label not in labels)
    y = legend(canvas, MARGIN, y + 8, WIDTH - 2 * MARGIN, ordered)
    size, busbw, time = _axes(columns)
    gap = 56.0
    width = (WIDTH - 2 * MARGIN - 40 - gap * (len(columns) - 1)) / len(columns)
    for top, height, axis, unit in ((y + 24, 200.0, busbw, "busbw, GB/s"),
                                    (y + 312, 200.0, time, "time")):
        for i, one in enumerate(columns):
            box = Box(MARGIN + 40 + i * (width + gap), top, width, height)
            name = DIRECTIONS.get(one.direction, one.direction)
            if len(columns) > 2:
                name = one.direction
            heading = f"{unit}: {name}" if name else unit
            panel(canvas, box, heading, size, axis,
                  one.busbw if axis is busbw else one.time)
    y += 312 + 200 + 36
    canvas.text(WIDTH / 2, y, "size: sequence-side bytes of the rank that has "
                "most", 12, INK, "middle")
    return end(canvas, y + 28, _caption(rows, machine, note, len(labels) > 1))


def picture(path: str, title: str, machine: Row, note: str,
            wanted: Dict[str, Optional[str]]) -> str:
    rows = _usable(read_table(path, NEEDED, MADE_BY), wanted)
    models = distinct(rows, "model")
    heading = title or "Exchange of " + (
        models[0] if len(models) == 1 else "several models" if models
        else "q, k, v and the output") + " over size"
    return draw(rows, heading, machine, note)
