# SPDX-License-Identifier: Apache-2.0
"""The data of the pictures: tables of ulyx_perf and ulyx_info in files, and the
output of ulyx_info, which this module runs.

Columns are found by name, never by position, because files of older and newer
versions have different columns. The rows of a table are dictionaries of texts
and numbers; their keys are the names of the table and, where ALIASES lists a
name, our name too.
"""
from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

Row = Dict[str, Any]


class PlotError(Exception):
    """An error for the user: the cause, and what to do about it."""


# Our name of a column: the names that tables have or had for it.
ALIASES = {
    "op": ("op", "operation", "direction"),
    "size_bytes": ("size_bytes", "size"),
    "time_us": ("time_us", "time"),
    "busbw": ("busbw_gbs", "busbw_gbps", "bus_bw", "busbw"),
    "dtype": ("dtype", "type"),
    "schedule": ("schedule", "algo", "algorithm"),
    "nodes": ("nodes", "nnodes"),
    "ranks": ("ranks", "nranks"),
    "cpu": ("cpu", "cpu_model", "cpu_name"),
    "cores": ("cores", "cpus", "host_cores"),
    "version": ("version", "ulyx_version"),
    "wrong": ("wrong", "nwrong"),
}


def read_text(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PlotError(f"{path}: not text in UTF-8: give a table of ulyx_perf "
                        "or ulyx_info") from error


def parse_json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise PlotError(f"{name}: JSON nested too deep") from error
    except json.JSONDecodeError as error:
        raise PlotError(f"{name}: not whole JSON ({error.msg} in line "
                        f"{error.lineno}): was the run that wrote it ended "
                        "early?") from error


def named(row: Row) -> Row:
    """The row with our names added to those of the table; of several aliases
    the first one counts."""
    lower = {str(key).strip().lower(): value for key, value in row.items()
             if key is not None}
    for ours, names in ALIASES.items():
        found = [lower[name] for name in names if name in lower]
        if found:
            lower[ours] = found[0]
    if isinstance(lower.get("time_us"), dict):
        lower["time_us"] = lower["time_us"].get("median")
    return lower


def number(row: Row, name: str) -> Optional[float]:
    """The number in the column; None where there is no finite number."""
    try:
        value = float(row.get(name, ""))
    except (TypeError, ValueError):
        return None
    return value if abs(value) < float("inf") else None


def _json_rows(root: Any, name: str) -> List[Row]:
    """The rows of a JSON list, or of an object with a list of rows. Members of
    the object beside the list hold for all rows."""
    if isinstance(root, list):
        return [row for row in root if isinstance(row, dict)]
    if not isinstance(root, dict):
        raise PlotError(f"{name}: no table of rows in this JSON")
    rows = next((value for key in ("results", "plans", "rows")
                 for value in (root.get(key),) if isinstance(value, list)),
                None)
    if rows is None:
        raise PlotError(f"{name}: this JSON has no results: give what "
                        "ulyx_perf -J or ulyx_info plan --nodes --json wrote")
    common = {key: value for key, value in root.items()
              if isinstance(value, (str, int, float))}
    if isinstance(root.get("config"), dict):
        common.update(root["config"])
    devices = root.get("devices")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        common.update({key: devices[0][key] for key in ("cpu", "cores")
                       if key in devices[0]})
    return [{**common, **row} for row in rows if isinstance(row, dict)]


def _csv_rows(text: str, name: str) -> List[Row]:
    lines = [line for line in text.splitlines()
             if line.strip() and not line.startswith("#")]
    try:
        return list(csv.DictReader(io.StringIO("\n".join(lines))))
    except csv.Error as error:
        raise PlotError(f"{name}: not CSV: {error}") from error


def read_table(path: str, needed: Sequence[str], made_by: str) -> List[Row]:
    """Rows that have the needed columns. `made_by`: the command that writes
    such a table, for the error."""
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        rows = [named(row) for row in _json_rows(parse_json(text, path), path)]
    else:
        rows = [named(row) for row in _csv_rows(text, path)]
    if not rows:
        raise PlotError(f"{path}: no rows; {made_by} writes such a file")
    missing = [name for name in needed if name not in rows[0]]
    if missing:
        raise PlotError(f"{path}: no column {', '.join(missing)}; {made_by} "
                        "writes such a file")
    return rows


def distinct(rows: Sequence[Row], name: str) -> List[str]:
    """The values of a column, each once, in the order of the rows."""
    found: Dict[str, None] = {}
    for row in rows:
        value = row.get(name)
        if value not in (None, ""):
            found[str(value)] = None
    return list(found)


# ---- the text of ulyx_info --------------------------------------------------

_SUMMARY = re.compile(r"(\d+ ranks, \d+ nodes? of \d+); a rank receives at most "
                      r"([\d.]+ MB)")
_SCHEDULE = re.compile(r"  (\w+): ([\d.]+ us)")
_BOTTLENECK = re.compile(r" +bottleneck: (\w+) in phase (\w+)")
_REASON = re.compile(r" +chosen: (.*)")
_LINK = re.compile(r"  link (\w+) +latency ([\d.]+) us.* at ([\d.]+) GB/s "
                   r"\[([^\],]+)")


@dataclass
class Prediction:
    """What the text of `ulyx_info plan --nodes N` predicts for the schedule
    that a plan chooses; all fields are empty where ulyx_info was not run.
    links: by class, the latency_us, the rate of the longest messages in GB/s,
    and the source."""
    schedule: str = ""
    received: str = ""
    time: str = ""
    bottleneck: str = ""
    reason: str = ""
    links: Dict[str, Dict[str, str]] = field(default_factory=dict)

    def summary(self) -> str:
        if not self.schedule:
            return ""
        return (f"a plan chooses {self.schedule}; predicted: a rank receives "
                f"{self.received} of q, k and v in {self.time}, bound by "
                f"{self.bottleneck}").replace(" us", " µs")


def read_prediction(text: str) -> Prediction:
    """Fields that the text does not have stay empty; the first line of a kind
    counts."""
    found = Prediction()
    for line in text.splitlines():
        summary, schedule = _SUMMARY.match(line), _SCHEDULE.match(line)
        bottleneck, reason = _BOTTLENECK.match(line), _REASON.match(line)
        link = _LINK.match(line)
        if summary:
            found.received = summary.group(2)
        elif schedule and not found.schedule:
            found.schedule, found.time = schedule.groups()
        elif bottleneck and not found.bottleneck:
            found.bottleneck = f"{bottleneck.group(1)} in {bottleneck.group(2)}"
        elif reason:
            found.reason = reason.group(1).replace(" us", " µs")
        elif link:
            found.links[link.group(1)] = dict(
                zip(("latency_us", "rate", "source"), link.groups()[1:]))
    if not found.schedule:
        raise PlotError("ulyx_info plan --nodes names no schedule: is it of "
                        "this version?")
    return found


# ---- calls of ulyx_info -----------------------------------------------------

def find_info(given: Optional[str]) -> str:
    """The path of ulyx_info: `given`, else beside this program, else in
    PATH."""
    beside = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])),
                          "ulyx_info")
    for path in (given, beside, shutil.which("ulyx_info")):
        if path and os.access(path, os.X_OK):
            return path
        if path and path == given:
            raise PlotError(f"--info {given}: not a program that can be run")
    raise PlotError("ulyx_info is neither beside this program nor in PATH: "
                    "--info PATH names it")


def run_info(program: str, words: Sequence[str],
             topology: Optional[str] = None) -> str:
    """Runs ulyx_info and returns what it prints. Where ulyx_info fails, its
    error becomes the PlotError."""
    environment = dict(os.environ)
    if topology:
        environment["ULYX_TOPO_FILE"] = topology
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True,
                              check=False, env=environment, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlotError(f"{program}: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        cause = next((line for line in lines
                     if line.startswith("ulyx_info: ")), lines[-1])
        raise PlotError(f"{cause} (of {os.path.basename(program)} "
                        f"{' '.join(words)})")
    return done.stdout


class Checked:
    """A context in which a field that is missing, or of another type, is
    reported as a file of another program or version."""

    def __init__(self, name: str, made_by: str) -> None:
        self.name, self.made_by = name, made_by

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, (LookupError, TypeError, ValueError,
                              AttributeError, ArithmeticError)):
            raise PlotError(f"{self.name}: not what {self.made_by} of this "
                            f"version writes ({kind.__name__}: {error})"
                            ) from error


def this_machine() -> Row:
    """Model and number of the processors of this machine."""
    model = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return {"cpu": model, "cores": str(os.cpu_count() or "")}
