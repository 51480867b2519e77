# SPDX-License-Identifier: Apache-2.0
"""Ranks, GPUs and NICs of two nodes, and the path of a plan's bytes.

The first and the last node are drawn, the last one upside down, so that the
network lies between their NICs. The bar of a node stands for the links between
its ranks. One example is highlighted: with the schedule hier the rail from rank
0 to the first rank of the last node, otherwise the bytes that rank 0 sends. The
steps of the example have numbers, which the texts below explain.
"""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

from ulyx_plot.page import MARGIN, WIDTH, begin, end, significant
from ulyx_plot.sources import PlotError, Prediction
from ulyx_plot.svg import (ACCENT, GRID, INK, LINE, MUTED, PAPER, SHADE, Canvas,
                           shorten, text_width)

MOST_RANKS = 64
Machine = Dict[str, Any]
Point = Tuple[float, float]

CLASSES = {  # nearest first
    "self": "one device", "nvlink": "NVLink",
    "switch": "below one PCI switch", "numa": "in one NUMA node",
    "package": "in one package", "system": "across packages",
    "unknown": "distance unknown"}

# Heights of a node's layers, from its outer edge to the network.
HEAD, BAR, GAP, RANK, LINK, NIC, FOOT = 34.0, 38.0, 34.0, 44.0, 46.0, 42.0, 30.0
NODE = HEAD + BAR + GAP + RANK + LINK + NIC + FOOT
NETWORK, BETWEEN = 58.0, 30.0


@dataclass
class Group:
    """The ranks of a NUMA node, and the NICs that are drawn there."""
    numa: Any
    ranks: List[int] = field(default_factory=list)
    nics: List[int] = field(default_factory=list)

    @property
    def columns(self) -> int:
        return max(len(self.ranks), len(self.nics), 1)


@dataclass
class Node:
    """Where the parts of a node are drawn. down: 1, or -1 for a node that is
    drawn upside down."""
    number: int
    first_rank: int
    edge: float
    down: int
    rank_x: List[float]
    nic_x: Dict[int, float]
    spans: List[Tuple[float, float]]

    def y(self, depth: float) -> float:
        """The y at this depth below the node's outer edge."""
        return self.edge + self.down * depth


RAIL = HEAD + BAR - 11  # the depth of the highlighted line along the bar
RANK_TOP = HEAD + BAR + GAP
RANK_LOW = RANK_TOP + RANK
NIC_TOP = RANK_LOW + LINK
NIC_LOW = NIC_TOP + NIC


def check(machine: Any, name: str, nodes: int) -> Machine:
    """Returns the machine; raises PlotError if ulyx_info topology --json has
    not written it, or if it cannot be drawn."""
    if not isinstance(machine, dict) or machine.get("kind") != "topology":
        raise PlotError(f"{name}: not a machine: ulyx_info topology --ranks 8 "
                        "--json writes one")
    ranks = len(machine["ranks"])
    if ranks == 0:
        raise PlotError(f"{name}: no ranks: write it with --ranks G")
    if ranks > MOST_RANKS:
        raise PlotError(f"{ranks} ranks are more than a picture can show: at "
                        f"most {MOST_RANKS} (--ranks)")
    if nodes < 1:
        raise PlotError(f"--nodes {nodes}: expected 1 or more")
    return machine


# ---- places -----------------------------------------------------------------

def groups_of(machine: Machine) -> List[Group]:
    """The groups in the order of their first ranks. A NIC is drawn at its own
    NUMA node if that node has ranks, else at the NUMA node of the first rank
    that uses the NIC. NICs that no rank uses are left out."""
    groups: List[Group] = []
    by_numa: Dict[Any, Group] = {}
    for one in machine["ranks"]:
        if one["numa"] not in by_numa:
            by_numa[one["numa"]] = Group(one["numa"])
            groups.append(by_numa[one["numa"]])
        by_numa[one["numa"]].ranks.append(one["rank"])
    for nic in machine["nics"]:
        users = [one for one in machine["ranks"] if one["nic"] == nic["index"]]
        if users:
            home = nic["numa"] if nic["numa"] in by_numa else users[0]["numa"]
            by_numa[home].nics.append(nic["index"])
    return groups


def _node(machine: Machine, groups: Sequence[Group], column: float, left: float,
          number: int, edge: float, down: int) -> Node:
    count = len(machine["ranks"])
    node = Node(number, number * count, edge, down, [0.0] * count, {}, [])
    x = left
    for group in groups:
        width = column * group.columns
        for i, rank in enumerate(group.ranks):
            node.rank_x[rank] = x + width * (i + 0.5) / len(group.ranks)
        for i, nic in enumerate(group.nics):
            node.nic_x[nic] = x + width * (i + 0.5) / len(group.nics)
        node.spans.append((x, width))
        x += width + 14
    return node


# ---- a node -----------------------------------------------------------------

def _box(canvas: Canvas, x: float, y: float, width: float, height: float,
         lines: Sequence[str], strong: bool) -> None:
    """A box around x, y with a line of bold and a line of plain text."""
    canvas.rect(x - width / 2, y - height / 2, width, height, PAPER,
                ACCENT if strong else LINE, 5, thick=2 if strong else 1)
    canvas.text(x, y - 3, shorten(lines[0], width - 6, 12, True), 12, INK,
                "middle", True)
    canvas.text(x, y + 13, shorten(lines[1], width - 6, 11), 11, MUTED, "middle")


def _rate(value: Any) -> str:
    return "rate unknown" if not value else f"{significant(value / 1e9)} GB/s"


def _rank_lines(machine: Machine, node: Node, rank: int) -> Tuple[str, str]:
    place = machine["ranks"][rank]
    what = "no GPU" if place["gpu"] is None else f"GPU {place['gpu']}"
    if place["gpu"] is None and not machine["gpus"]:
        what = "memory" if place["memory"] is None else \
            f"memory {place['memory']}"
    return f"rank {node.first_rank + rank}", what


def _rails(canvas: Canvas, machine: Machine, node: Node, network: bool
           ) -> None:
    """Draws thin lines from ranks to the bar and to their NICs, and from NICs
    to the network."""
    for rank, x in enumerate(node.rank_x):
        canvas.path(((x, node.y(HEAD + BAR)), (x, node.y(RANK_TOP))), LINE, 1.2)
        nic = machine["ranks"][rank]["nic"]
        if nic in node.nic_x:
            canvas.path(((x, node.y(RANK_LOW)),
                         (node.nic_x[nic], node.y(NIC_TOP))), LINE, 1.2)
    for x in node.nic_x.values() if network else ():
        canvas.path(((x, node.y(NIC_LOW)), (x, node.y(NODE + BETWEEN))), LINE,
                    1.2)


def _frame(canvas: Canvas, machine: Machine, groups: Sequence[Group], node: Node,
           words: str) -> None:
    top = min(node.y(0), node.y(NODE))
    width = canvas.width - 2 * MARGIN
    canvas.rect(MARGIN, top, width, NODE, SHADE, GRID, 8)
    base = node.y(HEAD / 2) + 5
    canvas.text(MARGIN + 16, base, f"node {node.number}", 13, INK, bold=True)
    counts = [f"{machine['cores']} cores"] + [
        f"{len(machine[kind])} {text}{'' if len(machine[kind]) == 1 else 's'}"
        for kind, text in (("numa_nodes", "NUMA node"), ("gpus", "GPU"),
                           ("nics", "NIC")) if machine[kind]]
    canvas.text(canvas.width - MARGIN - 16, base, ", ".join(counts), 12, MUTED,
                "end")
    low, high = sorted((node.y(HEAD), node.y(HEAD + BAR)))
    canvas.rect(MARGIN + 16, low, width - 32, high - low, "#dbeaf5", None, 5)
    # The text is in the half away from the ranks; lines run in the other half.
    canvas.text(canvas.width - MARGIN - 28, node.y(HEAD + 11) + 4,
                shorten(words, width - 60, 12), 12, INK, "end")
    for group, (x, wide) in zip(groups, node.spans):
        low, high = sorted((node.y(RANK_TOP - 12), node.y(NIC_LOW + 22)))
        canvas.rect(x - 5, low, wide + 8, high - low, PAPER, GRID, 6)


def _names(canvas: Canvas, groups: Sequence[Group], node: Node) -> None:
    """Draws the names of NUMA nodes in their corners, over the lines."""
    for group, (x, wide) in zip(groups, node.spans):
        name = "NUMA ?" if group.numa is None else f"NUMA {group.numa}"
        room = text_width(name, 11) + 4
        base = node.y(NIC_LOW + 12) + 4
        canvas.rect(x - 3, base - 10, min(room, wide), 13, PAPER)
        canvas.text(x - 1, base, name, 11, MUTED)


def _boxes(canvas: Canvas, machine: Machine, node: Node, column: float,
           strong_ranks: Sequence[int], strong_nics: Sequence[int]) -> None:
    for rank, x in enumerate(node.rank_x):
        _box(canvas, x, node.y(RANK_TOP + RANK / 2), column - 12, RANK,
             _rank_lines(machine, node, rank), rank in strong_ranks)
    for index, x in node.nic_x.items():
        nic = machine["nics"][index]
        name = nic["name"] or nic["net_name"] or f"NIC {index}"
        _box(canvas, x, node.y(NIC_TOP + NIC / 2), column - 12, NIC,
             (name, _rate(nic["bytes_per_s"])), index in strong_nics)


# ---- the path of the bytes --------------------------------------------------

def _step(canvas: Canvas, at: Point, number: int) -> None:
    canvas.circle(at[0], at[1], 9, ACCENT, PAPER, 1.5)
    canvas.text(at[0], at[1] + 4, str(number), 12, PAPER, "middle", True)


def _fan(canvas: Canvas, node: Node, rank: int, inwards: bool, number: int
         ) -> None:
    """Draws the paths between one rank and the others of its node, along the
    bar."""
    rail, top = node.y(RAIL), node.y(RANK_TOP)
    others = [x for r, x in enumerate(node.rank_x) if r != rank]
    if not others:
        return
    here = node.rank_x[rank]
    canvas.path(((min([*others, here]), rail), (max([*others, here]), rail)),
                ACCENT, 2.4)
    for x in others:
        ends = ((x, top), (x, rail)) if inwards else ((x, rail), (x, top))
        canvas.path(ends, ACCENT, 2.4, arrow=not inwards)
    ends = ((here, rail), (here, top)) if inwards else ((here, top), (here, rail))
    canvas.path(ends, ACCENT, 2.4, arrow=inwards)
    _step(canvas, (here, node.y(HEAD + BAR + 6)), number)


def _wire(canvas: Canvas, a: Node, b: Node, machine: Machine,
          ranks: Sequence[int], number: int) -> None:
    """Draws the path from rank 0 of node a, through its NIC, to the NICs and
    ranks of node b."""
    nic = machine["ranks"][0]["nic"]
    if nic not in a.nic_x:
        return
    rail = a.y(NODE + BETWEEN) + NETWORK - 14
    at = a.nic_x[nic]
    canvas.path(((a.rank_x[0], a.y(RANK_LOW)), (at, a.y(NIC_TOP))), ACCENT, 2.4)
    canvas.path(((at, a.y(NIC_LOW)), (at, rail)), ACCENT, 2.4)
    used = sorted({machine["ranks"][r]["nic"] for r in ranks} - {None})
    ends = [b.nic_x[n] for n in used if n in b.nic_x]
    canvas.path(((min([*ends, at]), rail), (max([*ends, at]), rail)), ACCENT, 2.4)
    for x in ends:
        canvas.path(((x, rail), (x, b.y(NIC_LOW))), ACCENT, 2.4)
    for r in ranks:
        target = b.nic_x.get(machine["ranks"][r]["nic"])
        if target is not None:
            canvas.path(((target, b.y(NIC_TOP)), (b.rank_x[r], b.y(RANK_LOW))),
                        ACCENT, 2.4, arrow=True)
    _step(canvas, (at, a.y(NODE) + BETWEEN / 2 - 2), number)


def _network(canvas: Canvas, y: float, nodes: int, prediction: Prediction
             ) -> None:
    width = canvas.width - 2 * MARGIN
    canvas.rect(MARGIN, y, width, NETWORK, "#e9edf2", None, 8)
    words = "network"
    nic = prediction.links.get("nic")
    if nic:
        words += f": {significant(float(nic['rate']))} GB/s per NIC " \
            f"({nic['source']}), latency " \
            f"{significant(float(nic['latency_us']))} µs"
    if nodes > 2:
        words += f"; {nodes - 2} more such node{'s' * (nodes > 3)}"
    canvas.text(canvas.width - MARGIN - 14, y + 22,
                shorten(words, width - 130, 12), 12, INK, "end")


def _local_words(machine: Machine, prediction: Prediction) -> str:
    """The links between the ranks of a node, as text."""
    found = {name for r, row in enumerate(machine["links"])
             for s, name in enumerate(row) if r != s}
    if not found:
        return "one rank"
    rates = {rate for row in machine["bytes_per_s"] for rate in row if rate}
    words = ", ".join(text for name, text in CLASSES.items() if name in found)
    if not machine["gpus"]:
        words = "shared memory: " + words
    if len(rates) == 1 and len(found) == 1:
        return f"{words}, {_rate(rates.pop())}"
    local = [prediction.links[name] for name in ("near", "far", "nvlink", "pcie")
             if name in prediction.links]
    if local:
        words += f", {significant(float(local[0]['rate']))} GB/s " \
            f"({local[0]['source']})"
    return words


STEPS = {
    "hier": (
        "gather: the ranks of a node write what another node needs to memory of "
        "a rail's proxy; rank 0 is the proxy of one rail in {count}",
        "put: the proxy sends each byte once per node, to the rank with the "
        "same number there",
        "spread: each rank there reads the bytes that it needs; several ranks "
        "may need the same bytes"),
    "direct": (
        "within the node rank 0 stores straight into its peers' windows",
        "rank 0 sends to each rank of another node through its own NIC, to all "
        "at once"),
    "pairwise": (
        "within the node rank 0 stores straight into its peers' windows",
        "rank 0 sends to ranks of other nodes through its own NIC, to a few at a "
        "time")}


def _paths(canvas: Canvas, machine: Machine, drawn: Sequence[Node],
           schedule: str) -> List[str]:
    """Draws the example. Returns the texts of its steps."""
    count = len(machine["ranks"])
    if len(drawn) == 1:  # any schedule is direct within a node
        _fan(canvas, drawn[0], 0, False, 1)
        return [STEPS["direct"][0]]
    steps = [text.format(count=count)
             for text in STEPS.get(schedule, STEPS["direct"])]
    _fan(canvas, drawn[0], 0, schedule == "hier", 1)
    _wire(canvas, drawn[0], drawn[1], machine,
          [0] if schedule == "hier" else range(count), 2)
    if schedule == "hier":
        _fan(canvas, drawn[1], 0, False, 3)
    return steps


def _captions(machine: Machine, nodes: int, prediction: Prediction, note: str
              ) -> List[str]:
    links = list(dict.fromkeys(one["nic_link"] for one in machine["ranks"]))
    source = os.path.basename(machine["source"] or "a file")
    lines = []
    if None not in links:
        lines.append("From a rank to its NIC: " + ", ".join(
            CLASSES.get(name, name) for name in links) + ".")
    if nodes > 1 and prediction.schedule:
        lines.append(f"Schedule: {prediction.schedule}. Reason: "
                     f"{prediction.reason}.")
    lines.append(f"Machine: {source}. 1 GB = 10⁹ bytes."
                 + (f" {note}" if note else ""))
    return lines


def picture(machine: Machine, nodes: int, prediction: Prediction, title: str,
            note: str) -> str:
    count = len(machine["ranks"])
    groups = groups_of(machine)
    columns = sum(group.columns for group in groups)
    room = WIDTH - 2 * MARGIN - 32 - 14 * (len(groups) - 1)
    column = max(92.0, min(180.0, room / columns))
    width = max(WIDTH, column * columns + WIDTH - room)
    left = (width - column * columns - 14 * (len(groups) - 1)) / 2
    where = f"{nodes} nodes of {count} ranks" if nodes > 1 else \
        f"one node of {count} rank{'s' * (count > 1)}"
    schedule = prediction.schedule if nodes > 1 else "direct"
    canvas, y = begin(title or f"How bytes travel: {where}",
                      prediction.summary(), width)
    drawn = [_node(machine, groups, column, left, 0, y, 1)]
    y += NODE
    if nodes > 1:
        y += BETWEEN + NETWORK + BETWEEN + NODE
        drawn.append(_node(machine, groups, column, left, nodes - 1,
                           y, -1))
    words = _local_words(machine, prediction)
    for node in drawn:
        _frame(canvas, machine, groups, node, words)
    if nodes > 1:
        _network(canvas, drawn[0].y(NODE + BETWEEN), nodes, prediction)
    for node in drawn:
        _rails(canvas, machine, node, nodes > 1)
    steps = _paths(canvas, machine, drawn, schedule)
    first_nics = [machine["ranks"][0]["nic"]]
    for node in drawn:
        _names(canvas, groups, node)
        _boxes(canvas, machine, node, column, [0],
               first_nics if nodes > 1 else [])
    y += 28
    for number, text in enumerate(steps, 1):
        _step(canvas, (MARGIN + 10, y - 4), number)
        canvas.text(MARGIN + 28, y, shorten(text, width - 2 * MARGIN - 28, 12),
                    12, INK)
        y += 24
    return end(canvas, y + 6, _captions(machine, nodes, prediction, note))
