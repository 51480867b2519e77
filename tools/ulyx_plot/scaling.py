# SPDX-License-Identifier: Apache-2.0
"""Predicted time and busbw over the number of nodes, one curve per schedule."""
from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from ulyx_plot.chart import (Box, Series, legend, log2_axis, log10_axis,
                             panel)
from ulyx_plot.page import MARGIN, WIDTH, begin, end, time_text
from ulyx_plot.sources import PlotError, Row, distinct, number, read_table
from ulyx_plot.svg import COLOURS, INK
from ulyx_plot.sweep import DIRECTIONS

NEEDED = ("nodes", "schedule", "time_us", "busbw")
MADE_BY = "ulyx_info plan --nodes 1-512 --csv or --json"
STYLES = {"direct": (COLOURS[0], "circle"), "pairwise": (COLOURS[1], "square"),
          "hier": (COLOURS[2], "diamond")}
OTHERS = ((COLOURS[3], "triangle"), (COLOURS[5], "circle"),
          (COLOURS[4], "square"))
CHOSEN = "what a plan chooses"
DASHES = (None, "6 4", "2 4")


def read(path: str) -> List[Row]:
    """The rows that have a time and a busbw; raises PlotError unless they are
    of two or more numbers of nodes."""
    rows = [row for row in read_table(path, NEEDED, MADE_BY)
            if all((number(row, name) or 0) > 0
                   for name in ("nodes", "time_us", "busbw"))]
    if len({number(row, "nodes") for row in rows}) < 2:
        raise PlotError(f"{path}: fewer than two numbers of nodes with a time "
                        f"and a busbw; {MADE_BY} has more")
    return rows


def _style(schedules: Sequence[str], name: str) -> Tuple[str, str]:
    unknown = [one for one in schedules if one not in STYLES]
    return STYLES[name] if name in STYLES else \
        OTHERS[unknown.index(name) % len(OTHERS)]


def _is_chosen(row: Row) -> bool:
    return str(row.get("chosen", "0")).lower() in ("1", "true", "yes")


def _values(rows: Sequence[Row], column: str) -> Dict[float, float]:
    values: Dict[float, float] = {}
    for row in rows:
        values.setdefault(float(row["nodes"]), float(row[column]))
    return dict(sorted(values.items()))


def _series(rows: Sequence[Row], schedules: Sequence[str],
            sequences: Sequence[str], column: str) -> List[Series]:
    """One curve per schedule and number of tokens. Behind the curves, a band
    follows the schedule that a plan chooses."""
    found = []
    for at, seq in enumerate(sequences or [""]):
        of_seq = [row for row in rows
                  if not sequences or str(row.get("seq")) == seq]
        chosen = _values([row for row in of_seq if _is_chosen(row)], column)
        if chosen:
            found.insert(0, Series(CHOSEN, "#cbd2d9", list(chosen.items()),
                                   "none", None, 9))
        for name in schedules:
            colour, marker = _style(schedules, name)
            values = _values([row for row in of_seq
                              if str(row.get("schedule")) == name], column)
            label = f"{name}, {seq} tokens" if len(sequences) > 1 else name
            if values:
                found.append(Series(label, colour, list(values.items()), marker,
                                    DASHES[at], 1.8))
    return found


def _tick(rows: Sequence[Row], nodes: float) -> str:
    ranks = [row.get("ranks") for row in rows
             if float(row["nodes"]) == nodes and row.get("ranks")]
    return f"{nodes:g}" + (f"\n({ranks[0]})" if ranks else "")


def _subtitle(rows: Sequence[Row], shape: str) -> str:
    per_node = {float(r["ranks"]) / float(r["nodes"]) for r in rows
                if number(r, "ranks")}
    words = [f"{per_node.pop():g} ranks per node"] if len(per_node) == 1 else []
    for name, form in (("seq", "{} tokens"), ("batch", "batch {}"),
                       ("heads", "{} query heads"), ("kv_heads", "{} KV heads"),
                       ("dim", "of {}"), ("local", "{} within a node")):
        values = distinct(rows, name)
        if len(values) == 1:
            words.append(form.format(values[0]))
    return ", ".join([shape] * bool(shape) + words)


def picture(path: str, title: str, shape: str, note: str,
            direction: Optional[str]) -> str:
    rows = read(path)
    directions = distinct(rows, "op") or [""]
    if direction is not None:
        if direction not in directions:
            raise PlotError(f"no rows of direction {direction}: the file has "
                            f"{', '.join(directions)}")
        directions = [direction]
    rows = [r for r in rows if str(r.get("op") or "") in directions]
    return draw(rows, directions, title or "Predicted scaling over nodes",
                _subtitle(rows, shape), note)


def draw(rows: Sequence[Row], directions: Sequence[str], title: str,
         subtitle: str, note: str) -> str:
    schedules = sorted(distinct(rows, "schedule"),
                       key=lambda s: (s not in STYLES, list(STYLES).index(s)
                                      if s in STYLES else 0))
    columns = [[r for r in rows if str(r.get("op") or "") == op]
               for op in directions]
    sequences = distinct(rows, "seq")
    if len(sequences) > len(DASHES):
        raise PlotError(f"{len(sequences)} numbers of tokens are too many to "
                        f"tell apart: at most {len(DASHES)} of --seq")
    canvas, y = begin(title, subtitle)
    shown = {s.label: s for c in columns
             for s in _series(c, schedules, sequences, "busbw")}
    ordered = sorted(shown.values(), key=lambda s: s.label == CHOSEN)
    y = legend(canvas, MARGIN, y + 8, WIDTH - 2 * MARGIN, ordered)
    nodes = log2_axis([float(r["nodes"]) for r in rows],
                      lambda n: _tick(rows, n))
    axes = {"time_us": log10_axis([float(r["time_us"]) for r in rows],
                                  time_text),
            "busbw": log10_axis([float(r["busbw"]) for r in rows])}
    gap, height = 56.0, 200.0
    width = (WIDTH - 2 * MARGIN - 40 - gap * (len(columns) - 1)) / len(columns)
    for top, column, unit in ((y + 24, "time_us", "time"),
                              (y + 316, "busbw", "busbw, GB/s")):
        for i, (op, part) in enumerate(zip(directions, columns)):
            box = Box(MARGIN + 40 + i * (width + gap), top, width, height)
            name = DIRECTIONS.get(op, op) if len(columns) < 3 else op
            panel(canvas, box, f"{unit}: {name}" if name else unit, nodes,
                  axes[column], _series(part, schedules, sequences, column))
    y += 316 + height + 52
    has_ranks = any(row.get("ranks") for row in rows)
    canvas.text(WIDTH / 2, y, "nodes (ranks)" if has_ranks else "nodes", 12, INK,
                "middle")
    sources = distinct(rows, "source")
    return end(canvas, y + 28, [
        "Predicted by ulyx's cost model, not measured." +
        (f" Machine: rates of the links that bound the time: "
         f"{', '.join(sources)}." if sources else " Machine not recorded.") +
        (f" {note}" if note else ""),
        "busbw: the most bytes that a rank receives from others, divided by "
        "the time; 1 GB = 10⁹ bytes."])
