# SPDX-License-Identifier: Apache-2.0
"""The command line."""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from typing import List, Optional, Sequence

from ulyx_plot import plan, scaling, sources, sweep, topology
from ulyx_plot.sources import PlotError

USAGE = 6  # as of ulyx_perf and ulyx_info

EPILOG = """\
examples
  ulyx_perf --procs 4 --model llama3-8b -b 64K -e 64M -f 2 --vs memcpy --csv > s.csv
  ulyx_plot sweep s.csv -o sweep.svg

  ulyx_info plan --nodes 1-512 --operation s2h --csv > scaling.csv
  ulyx_plot scaling scaling.csv

  ulyx_plot topology --xml machine.xml --ranks 8 --nodes 2
  ulyx_plot plan --ranks 4 --heads 14 --kv-heads 2 --dim 64

Exit: 0 ok, 1 it cannot be drawn, 6 usage."""


class Parser(argparse.ArgumentParser):
    """Errors in the form of the other tools."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(USAGE, f"{self.prog}: {message}\n{self.prog} --help says "
                         "more\n")


def _common(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("-o", "--output", metavar="OUT",
                        default=f"ulyx_{name}.svg",
                        help=f"file, .svg or .png; - is standard output "
                             f"(ulyx_{name}.svg)")
    parser.add_argument("--title", default="", help="instead of our own")
    parser.add_argument("--note", default="", metavar="TEXT",
                        help="a sentence more in the caption")


def _info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--info", metavar="PATH",
                        help="ulyx_info (beside this program, else in PATH)")


SHAPES = (("seq", "tokens"), ("batch", "batch items"), ("heads", "query heads"),
          ("kv-heads", "KV heads"), ("dim", "head dimension"))


def _shape(parser: argparse.ArgumentParser,
           more: Sequence[Sequence[str]] = ()) -> None:
    """Options that ulyx_info plan takes, checks and has defaults for."""
    for name, text in (*SHAPES, *more):
        parser.add_argument(f"--{name}", metavar=name[0].upper(), help=text)


def _shape_words(given: argparse.Namespace, names: Sequence[str]) -> List[str]:
    words: List[str] = []
    for name in names:
        value = getattr(given, name.replace("-", "_"))
        if value is not None:
            words += [f"--{name}", value]
    return words


# ---- the four kinds ---------------------------------------------------------

def _sweep_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE",
                        help="of ulyx_perf --csv or -J; - is standard input")
    parser.add_argument("--model", metavar="NAMES", help="of these models only")
    parser.add_argument("--op", metavar="OPS",
                        help="of these directions only: s2h,h2s,...")
    parser.add_argument("--machine", metavar="TEXT", default="",
                        help="what it was measured on, for files that do not "
                             "say; here: this machine")
    _common(parser, "sweep")


def _sweep(given: argparse.Namespace) -> str:
    machine = sources.this_machine() if given.machine == "here" else \
        {"text": given.machine}
    return sweep.picture(given.file, given.title, machine, given.note,
                         {"model": given.model, "op": given.op})


def _scaling_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE",
                        help="predictions for several numbers of nodes; - is "
                             "standard input")
    parser.add_argument("--op", metavar="OP", help="of this direction only")
    parser.add_argument("--shape", metavar="TEXT", default="",
                        help="what was predicted, for files that do not say")
    _common(parser, "scaling")


def _scaling(given: argparse.Namespace) -> str:
    return scaling.picture(given.file, given.title, given.shape, given.note,
                           given.op)


TOPOLOGY_MORE = (("algo", "schedule, instead of the one a plan would choose"),
                 ("tuning", "tuning file"))


def _topology_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?",
                        help="of ulyx_info topology --ranks G --json; without "
                             "it ulyx_info is asked")
    parser.add_argument("--xml", metavar="FILE",
                        help="machine in hwloc's or NCCL's XML (this one)")
    parser.add_argument("--ranks", metavar="G", default="8",
                        help="ranks of a node (8)")
    parser.add_argument("--nodes", metavar="N", type=int, default=2,
                        help="nodes of that kind (2)")
    _shape(parser, TOPOLOGY_MORE)
    _info(parser)
    _common(parser, "topology")


def _predicted(given: argparse.Namespace, ranks: int) -> sources.Prediction:
    """What ulyx_info predicts for the exchange between nodes of this kind."""
    if given.nodes < 2:
        return sources.Prediction()
    names = [name for name, _ in (*SHAPES, *TOPOLOGY_MORE)]
    return sources.read_prediction(sources.run_info(
        sources.find_info(given.info),
        ["plan", "--nodes", str(given.nodes), "--ranks-per-node", str(ranks),
         "--machine", "here", "--operation", "s2h",
         *_shape_words(given, names)], given.xml))


def _topology(given: argparse.Namespace) -> str:
    if given.file and given.xml and given.nodes < 2:
        raise PlotError("FILE and --xml are two machines: give one")
    text = sources.read_text(given.file) if given.file else sources.run_info(
        sources.find_info(given.info),
        ["topology", "--ranks", given.ranks, "--json"], given.xml)
    name = given.file or "ulyx_info"
    with sources.Checked(name, "ulyx_info topology --json"):
        machine = topology.check(sources.parse_json(text, name), name,
                                 given.nodes)
        return topology.picture(machine, given.nodes,
                                _predicted(given, len(machine["ranks"])),
                                given.title, given.note)


PLAN_MORE = (("ranks", "ranks"), ("dim-v", "of values"),
             ("work", "heads or balanced"), ("order", "contiguous or zigzag"))


def _plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?",
                        help="of ulyx_info plan --json; without it ulyx_info "
                             "is asked, with the shape below")
    parser.add_argument("--op", choices=sorted(plan.WORDS), default="s2h",
                        help="direction (s2h)")
    _shape(parser, PLAN_MORE)
    _info(parser)
    _common(parser, "plan")


def _plan(given: argparse.Namespace) -> str:
    names = [name for name, _ in (*SHAPES, *PLAN_MORE)]
    words = _shape_words(given, names)
    if given.file and words:
        raise PlotError(f"{given.file} has a shape already: give the file or "
                        f"{words[0]}, not both")
    text = sources.read_text(given.file) if given.file else sources.run_info(
        sources.find_info(given.info), ["plan", *words, "--json"])
    name = given.file or "ulyx_info"
    with sources.Checked(name, "ulyx_info plan --json"):
        return plan.picture(plan.check(sources.parse_json(text, name), name),
                            given.op, given.title, given.note)


KINDS = (
    ("sweep", _sweep_options, _sweep,
     "busbw and time of an ulyx_perf sweep, with what it was compared with"),
    ("scaling", _scaling_options, _scaling,
     "predicted time and busbw over the number of nodes"),
    ("topology", _topology_options, _topology,
     "ranks, GPUs and NICs of a node, and the way that bytes take to another"),
    ("plan", _plan_options, _plan,
     "who holds which tokens and heads before and after, and what moves"))


def _parser(version: str) -> argparse.ArgumentParser:
    parser = Parser(prog="ulyx_plot", epilog=EPILOG, allow_abbrev=False,
                    description="Pictures, as SVG, of what ulyx measures and "
                                "plans. ulyx_plot KIND --help: of one kind.",
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version",
                        version=f"ulyx_plot {version}")
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, options, draw, text in KINDS:
        kind = kinds.add_parser(name, help=text, description=text,
                                allow_abbrev=False)
        options(kind)
        kind.set_defaults(draw=draw)
    return parser


# ---- the table of options, as the other tools print it ----------------------

def _option_row(action: argparse.Action) -> str:
    brief = next((n for n in action.option_strings if n[1] != "-"), "")
    name = next((n for n in action.option_strings if n[1] == "-"), "")
    value = "" if action.nargs == 0 else action.metavar or \
        "|".join(action.choices or ()) or action.dest.upper()
    return "\t".join(("option", brief, name, str(value), action.help or ""))


def _table(parser: argparse.ArgumentParser) -> str:
    """What --help=table prints: manual pages and completion are made from this
    table."""
    rows = ["name\tulyx_plot\tpictures of what ulyx measures and plans",
            "operand\tKIND"]
    rows += [_option_row(action) for action in parser._actions
             if action.option_strings]
    kinds = next(action for action in parser._actions
                 if isinstance(action, argparse._SubParsersAction))
    for name, _, _, text in KINDS:
        kind = kinds.choices[name]
        operand = next(a.metavar if a.nargs != "?" else f"[{a.metavar}]"
                       for a in kind._actions if a.dest == "file")
        rows.append(f"command\t{name}\t{operand}\t{text}")
        rows += [_option_row(action) for action in kind._actions
                 if action.option_strings and action.dest != "help"]
    return "\n".join(rows) + "\n"


# ---- output -----------------------------------------------------------------

def _convert(svg: str, path: str) -> None:
    program = shutil.which("rsvg-convert")
    if program is None:
        raise PlotError(f"{path}: PNG needs rsvg-convert (of librsvg), which is "
                        "not in PATH: install it, or write .svg")
    done = subprocess.run([program, "--zoom", "2", "-f", "png", "-o", path],
                          input=svg, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise PlotError(f"{path}: rsvg-convert: {done.stderr.strip()}")


def _write(svg: str, path: str) -> None:
    if path == "-":
        sys.stdout.write(svg)
        return
    ending = os.path.splitext(path)[1].lower()
    if ending == ".png":
        _convert(svg, path)
    elif ending == ".svg":
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(svg)
        except OSError as error:
            raise PlotError(f"{path}: {error.strerror}") from error
    else:
        raise PlotError(f"-o {path}: expected a name that ends in .svg or .png")
    print(f"ulyx_plot: wrote {path}", file=sys.stderr)


def main(words: Optional[Sequence[str]] = None, version: str = "") -> int:
    parser = _parser(version)
    if (sys.argv[1:] if words is None else list(words)) == ["--help=table"]:
        sys.stdout.write(_table(parser))
        return 0
    given = parser.parse_args(words)
    try:
        _write(given.draw(given), given.output)
    except PlotError as error:
        print(f"ulyx_plot: {error}", file=sys.stderr)
        return 1
    return 0
