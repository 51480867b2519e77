# SPDX-License-Identifier: Apache-2.0
"""Who holds which tokens and heads before and after, and what moves.

Both layouts are maps of heads over tokens, coloured by rank. A head that
several ranks hold is divided into strips, one per rank. Below the maps are the
bytes of each pair of ranks, and a table of the ranks, which is also the key to
the colours.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

from ulyx_plot.page import MARGIN, WIDTH, begin, end, ranges, size_text, \
    significant
from ulyx_plot.sources import PlotError
from ulyx_plot.svg import (COLOURS, GRID, INK, LINE, MUTED, PAPER, SHADE, Canvas,
                           blend, contrast, text_width)

MOST_RANKS = 128
TABLE_RANKS = 12
STRIP = 16.0
Plan = Dict[str, Any]

WORDS = {
    "s2h": ("sequence-sharded to head-sharded", False, False),
    "h2s": ("head-sharded to sequence-sharded", True, False),
    "s2h_adj": ("gradients, head-sharded to sequence-sharded", True, True),
    "h2s_adj": ("gradients, sequence-sharded to head-sharded", False, True)}


@dataclass
class Patch:
    """A rectangle of one rank in a map. top, height: its heads, in pixels from
    the top of the map; first, count: its tokens."""
    rank: int
    top: float
    height: float
    first: int
    count: int


@dataclass
class Rows:
    """Where the heads lie in a map: those of q, and below them those of k and
    v."""
    q_heads: int
    kv_heads: int
    q_height: float
    kv_height: float

    @property
    def gap(self) -> float:
        return 10.0

    def q(self, head: float) -> float:
        return head * self.q_height

    def kv(self, head: float) -> float:
        return self.q(self.q_heads) + self.gap + head * self.kv_height

    @property
    def height(self) -> float:
        return self.kv(self.kv_heads)


def colour(rank: int) -> str:
    """Neighbours differ; each round of the palette is paler."""
    return blend(COLOURS[rank % len(COLOURS)], PAPER,
                 min(rank // len(COLOURS) * 0.22, 0.66))


def check(plan: Any, name: str) -> Plan:
    """Returns the plan; raises PlotError if ulyx_info plan --json has not
    written it, or if it is too large."""
    if not isinstance(plan, dict) or plan.get("kind") != "plan":
        raise PlotError(f"{name}: not a plan: ulyx_info plan --ranks 4 --json "
                        "writes one")
    if plan["ranks"] > MOST_RANKS:
        raise PlotError(f"{plan['ranks']} ranks are more than a picture can "
                        f"show: at most {MOST_RANKS} (--ranks)")
    return plan


def holders(plan: Plan, tensor: int) -> List[List[int]]:
    """The ranks that hold each head of the tensor, or a part of it."""
    found: List[List[int]] = [[] for _ in range(plan["tensors"][tensor]["heads"])]
    for one in plan["holdings"]:
        held = one["tensors"][tensor]
        heads = {part[0] for part in held["segments"]} if plan["packed"] else \
            range(held["first"], held["first"] + held["count"])
        for head in heads:
            found[head].append(one["rank"])
    return found


def layout_rows(plan: Plan) -> Rows:
    q, k = plan["tensors"][0]["heads"], plan["tensors"][1]["heads"]
    most = max((len(ranks) for ranks in holders(plan, 1)), default=1)
    kv_height = max(16.0, min(STRIP * most, 60.0))
    return Rows(q, k, max(2.0, min(16.0, 230.0 / q)),
                max(1.5, min(kv_height, 160.0 / k)))


def sequence_patches(plan: Plan, rows: Rows) -> List[Patch]:
    """For each run of tokens, a patch over all heads of q and a patch over all
    heads of k and v."""
    patches = []
    for one in plan["holdings"]:
        for first, count in one["spans"]:
            patches.append(Patch(one["rank"], 0, rows.q(rows.q_heads), first,
                                 count))
            patches.append(Patch(one["rank"], rows.kv(0),
                                 rows.height - rows.kv(0), first, count))
    return patches


def _parts(plan: Plan, held: Dict[str, Any]) -> List[Tuple[int, int, int, int]]:
    """(head, heads, first token, tokens) of what a rank holds of a tensor."""
    if plan["packed"]:
        return [(head, 1, first, count) for head, first, count
                in held["segments"]]
    return [(held["first"], held["count"], 0, plan["seq"])] \
        if held["count"] else []


def head_patches(plan: Plan, rows: Rows) -> List[Patch]:
    sharers = holders(plan, 1)
    patches = []
    for one in plan["holdings"]:
        rank = one["rank"]
        for head, heads, first, count in _parts(plan, one["tensors"][0]):
            patches.append(Patch(rank, rows.q(head), rows.q_height * heads,
                                 first, count))
        for head, heads, first, count in _parts(plan, one["tensors"][1]):
            for h in range(head, head + heads):
                strip = rows.kv_height / len(sharers[h])
                patches.append(Patch(
                    rank, rows.kv(h) + strip * sharers[h].index(rank), strip,
                    first, count))
    return patches


# ---- the maps ---------------------------------------------------------------

def _label(canvas: Canvas, x: float, y: float, width: float, height: float,
           rank: int) -> None:
    """The longest name of the rank that fits into the rectangle."""
    size = min(12.0, height - 4)
    for words in (f"rank {rank}", str(rank)):
        room = text_width(words, size, True) + 6
        if size >= 9 and room <= width:
            # Covers the lines between heads, which would cross the name.
            canvas.rect(x + (width - room) / 2, y + height / 2 - size / 2 - 1,
                        room, size + 2, colour(rank))
            canvas.text(x + width / 2, y + height / 2 + size * 0.36, words,
                        size, contrast(colour(rank)), "middle", True)
            return


def _draw_patches(canvas: Canvas, patches: Sequence[Patch], x: float, y: float,
                  width: float, seq: int) -> None:
    for p in patches:
        wide = width * p.count / seq
        canvas.rect(x + width * p.first / seq, y + p.top, wide, p.height,
                    colour(p.rank), PAPER,
                    thick=1.2 if min(wide, p.height) > 6 else 0.4)


def _draw_labels(canvas: Canvas, patches: Sequence[Patch], x: float, y: float,
                 width: float, seq: int) -> None:
    for p in patches:
        _label(canvas, x + width * p.first / seq, y + p.top,
               width * p.count / seq, p.height, p.rank)


def _head_lines(canvas: Canvas, x: float, y: float, width: float, rows: Rows
                ) -> None:
    if rows.q_height < 5:
        return
    for head in range(1, rows.q_heads):
        canvas.path(((x, y + rows.q(head)), (x + width, y + rows.q(head))),
                    PAPER, 0.6, opacity=0.55)
    for head in range(1, rows.kv_heads):
        canvas.path(((x, y + rows.kv(head)), (x + width, y + rows.kv(head))),
                    PAPER, 1.2)


def _head_axis(canvas: Canvas, x: float, y: float, rows: Rows) -> None:
    """Draws the numbers of heads, as many as there is room for, and the words
    "query heads" and "KV heads"."""
    for count, at, height in ((rows.q_heads, rows.q, rows.q_height),
                              (rows.kv_heads, rows.kv, rows.kv_height)):
        every = max(1, -(-13 // max(int(height), 1)))
        for head in range(0, count, every):
            canvas.text(x - 6, y + at(head) + height / 2 + 4, str(head), 11,
                        MUTED, "end")
    for words, middle, room in (
            ("query heads", rows.q(rows.q_heads) / 2, rows.q(rows.q_heads)),
            ("KV heads", (rows.kv(0) + rows.height) / 2,
             rows.height - rows.kv(0))):
        for text in (words, words.split()[0]):
            if text_width(text, 11) <= room + 8:
                canvas.text(x - 30, y + middle, text, 11, MUTED, "middle",
                            turned=True)
                break


def _map(canvas: Canvas, plan: Plan, rows: Rows, by_head: bool, x: float,
         y: float, width: float, moment: str) -> None:
    what = "each rank has some tokens of all heads"
    if by_head:
        what = "each rank has runs of equal work" if plan["packed"] else \
            "each rank has all tokens of some heads"
    canvas.text(x, y - 26, moment + ": " +
                ("head-sharded" if by_head else "sequence-sharded"), 13, INK,
                bold=True)
    canvas.text(x, y - 9, what, 12, MUTED)
    patches = head_patches(plan, rows) if by_head else \
        sequence_patches(plan, rows)
    _draw_patches(canvas, patches, x, y, width, max(plan["seq"], 1))
    _head_lines(canvas, x, y, width, rows)
    # On the sequence side the patches of k and v equal those of q, so that only
    # those of q have names.
    _draw_labels(canvas, [p for p in patches
                          if by_head or p.top < rows.kv(0)], x, y, width,
                 max(plan["seq"], 1))
    foot = y + rows.height + 16
    canvas.text(x, foot, "0", 11, MUTED)
    canvas.text(x + width / 2, foot, "tokens", 11, MUTED, "middle")
    canvas.text(x + width, foot, str(plan["seq"]), 11, MUTED, "end")


def _maps(canvas: Canvas, plan: Plan, y: float, name: str) -> float:
    rows = layout_rows(plan)
    width = 352.0
    left, right = MARGIN + 46, WIDTH - MARGIN - width
    reverse = WORDS[name][1]
    y += 38
    _head_axis(canvas, left, y, rows)
    _map(canvas, plan, rows, reverse, left, y, width, "Before")
    _map(canvas, plan, rows, not reverse, right, y, width, "After")
    middle = y + rows.height / 2
    canvas.path(((left + width + 14, middle), (right - 17, middle)), INK, 2.4,
                arrow=True)
    canvas.text((left + width + right) / 2, middle - 12, name, 12, INK,
                "middle", True)
    return y + rows.height + 34


# ---- the matrix and the table -----------------------------------------------

def _scale(most: float) -> Tuple[float, str]:
    """Divisor and name of the unit in which `most` lies between 1 and 1023."""
    unit = size_text(most).split()[1]
    return 1024.0 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit), unit


def _cell(canvas: Canvas, x: float, y: float, side: float, share: float,
          words: str, stays: bool) -> None:
    fill = SHADE if stays else blend("#eaf3fa", "#00456e", share)
    canvas.rect(x, y, side, side, fill, LINE if stays and side > 8 else None,
                dash="2 2" if stays else None)
    if words and text_width(words, 11) + 4 <= side:
        canvas.text(x + side / 2, y + side / 2 + 4, words, 11,
                    MUTED if stays else contrast(fill), "middle")


def _matrix(canvas: Canvas, pairs: Sequence[Sequence[int]], x: float, y: float,
            room: float) -> float:
    """Rows send, columns receive; the diagonal stays on its rank."""
    count = len(pairs)
    side = min(46.0, (room - 40) / count)
    moved = [pairs[to][r] for to in range(count) for r in range(count)
             if r != to]
    most = max(moved, default=0) or 1
    divisor, unit = _scale(most)
    canvas.text(x, y, f"What moves from rank to rank, {unit}", 13, INK, bold=True)
    left, top = x + 40, y + 40
    canvas.text(left + side * count / 2, y + 20, "to rank", 11, MUTED, "middle")
    canvas.text(x + 10, top + side * count / 2, "from rank", 11, MUTED,
                "middle", turned=True)
    every = max(1, -(-18 // max(int(side), 1)))
    for r in range(0, count, every):
        canvas.text(left + side * (r + 0.5), top - 5, str(r), 11, MUTED,
                    "middle")
        canvas.text(left - 6, top + side * (r + 0.5) + 4, str(r), 11, MUTED,
                    "end")
    gap = 1.5 if side > 8 else 0.0
    for r in range(count):
        for to in range(count):
            value = pairs[to][r]
            _cell(canvas, left + side * to, top + side * r, side - gap,
                  value / most if r != to else 0,
                  significant(value / divisor), r == to)
    canvas.text(left, top + side * count + 16, "dashed: stays on its rank", 11,
                MUTED)
    return top + side * count + 24


COLUMNS = (("rank", 0.0), ("tokens", 120.0), ("q heads", 188.0),
           ("KV heads", 264.0), ("sends", 346.0), ("receives", 432.0))


def _table_row(canvas: Canvas, x: float, y: float, words: Sequence[str],
               fill: str, bold: bool = False) -> None:
    for (_, at), text in zip(COLUMNS[1:], words[1:]):
        canvas.text(x + at, y, text, 12, fill, "end", bold)
    canvas.text(x + 20, y, words[0], 12, fill, bold=bold)


def _heads_text(plan: Plan, rank: int, tensor: int) -> str:
    held = plan["holdings"][rank]["tensors"][tensor]
    return ranges(held["first"], held["count"])


def _table(canvas: Canvas, plan: Plan, pairs: Sequence[Sequence[int]], x: float,
           y: float) -> float:
    count = len(pairs)
    shown = min(count, TABLE_RANKS)
    canvas.text(x, y, "Each rank", 13, INK, bold=True)
    y += 22
    _table_row(canvas, x, y, [name for name, _ in COLUMNS], MUTED)
    for r in range(shown):
        y += 22
        canvas.path(((x, y - 16), (x + COLUMNS[-1][1], y - 16)), GRID)
        canvas.rect(x, y - 11, 13, 13, colour(r), radius=2)
        sends = sum(pairs[to][r] for to in range(count) if to != r)
        receives = sum(v for s, v in enumerate(pairs[r]) if s != r)
        _table_row(canvas, x, y, [
            f"rank {r}", str(plan["holdings"][r]["rows"]),
            _heads_text(plan, r, 0), _heads_text(plan, r, 1), size_text(sends),
            size_text(receives)], INK)
    if shown < count:
        y += 22
        canvas.text(x, y, f"and {count - shown} more ranks", 12, MUTED)
    return y + 12


def _subtitle(plan: Plan) -> str:
    q, k = plan["tensors"][0], plan["tensors"][1]
    dims = f"head dim {q['dim']}"
    if plan["tensors"][2]["dim"] != q["dim"]:
        dims += f" ({plan['tensors'][2]['dim']} of v)"
    words = [f"{q['heads']} query heads, {k['heads']} KV heads",
             f"{plan['seq']} tokens", f"batch {plan['batch']}", dims,
             f"{q['element_bytes']} bytes per element"]
    if plan["order"] != "contiguous":
        words.append(f"{plan['order']} order")
    if plan["work"] != "heads":
        words.append(f"{plan['work']} work")
    return ", ".join(words)


def picture(plan: Plan, direction: str, title: str, note: str) -> str:
    found = [one for one in plan["directions"]
             if one["direction"] == direction]
    if not found:
        raise PlotError(f"this plan has no direction {direction}")
    words, _, sums = WORDS[direction]
    pairs = found[0]["pairs"]
    canvas, y = begin(title or f"{plan['ranks']} ranks: {words}",
                      _subtitle(plan))
    y = _maps(canvas, plan, y, direction) + 14
    room = 330.0 if len(pairs) <= TABLE_RANKS else 380.0
    low = _matrix(canvas, pairs, MARGIN, y, room)
    low = max(low, _table(canvas, plan, pairs, WIDTH - MARGIN - COLUMNS[-1][1],
                          y))
    shared = any(len(ranks) > 1 for ranks in holders(plan, 1))
    captions = ["Computed from the shape, the same on every machine.",
                "Bytes are those of q, k and v together" +
                (", of gradients in the type in which they are summed" if sums
                 else "") + "." +
                (" A KV head that query heads of several ranks read is on each "
                 "of these ranks: one strip per rank." if shared else "") +
                (f" {note}" if note else "")]
    return end(canvas, low + 20, captions)
