#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_table.py FOLDER [SWEEP]: prints what the sweeps of gpu-check.sh have
measured, each value with its floor, which a release must reach, and its goal.
FOLDER has a JSON file of ulyx_perf for each sweep, named after the sweep, and
the logs in which attention is compared with other libraries. Exit code: 0
every value that was measured reaches its floor; 1 a value is below its floor,
data was wrong, or a sweep was executed in another way than intended; 2 nothing
was measured. With SWEEP, only the lines of this sweep are printed, without a
head.

Floors and goals of vs_copy and vs_permute hold on any card; those of times
hold on an H100, for calls that are enqueued one by one and for calls in a
graph. Rows without a floor are only shown. Bytes are those of a rank, in whole
tokens, so 49,152 where 64 KiB are requested. "of even" is vs_copy of the row
divided by vs_copy of the even sweep with as many ranks."""
import json
import os
import sys

COPY = ("vs_copy", 0.85, 0.94)
NARROW = ("vs_copy", 0.75, 0.87)
PERMUTE = ("vs_permute", 2.0, 2.8)
SHOWN = ("vs_copy", None, None)
EVEN = ("of even", None, 0.97)
LAUNCHED = ("us", 22.0, 11.0)
IN_GRAPH = ("us", 14.0, 7.0)
TIME = ("us", None, None)

# Sweep -> the values of each of its rows, as (name, floor, goal).
ROWS = {}
for p in (2, 4, 8):
    ROWS[f"even P={p}"] = (COPY, PERMUTE)
    ROWS[f"64 KiB P={p}"] = (LAUNCHED if p == 4 else TIME,)
    ROWS[f"64 KiB graph P={p}"] = (IN_GRAPH if p == 4 else TIME,)
ROWS["rows of 256 bytes"] = (COPY, PERMUTE)
ROWS["rows of 128 bytes"] = (NARROW, PERMUTE)
for name in ("GQA 32/8", "GQA 14/2", "uneven 30"):
    ROWS[name] = (COPY, EVEN, PERMUTE)
ROWS["adjoint 32/2"] = (SHOWN,)
# Settings that are tried, for comparison with the sweep that has the default.
ROWS["even P=2 on 32 SMs"] = (SHOWN,)
ROWS["even P=2 by 2 blocks per SM"] = (SHOWN,)
ROWS["64 KiB graph P=4 by slots"] = (TIME,)
ROWS["64 KiB graph P=8 direct"] = (TIME,)
# These movers copy what goes to peers twice, so that the floors of the kernel
# do not hold for them.
ROWS["copy engines"] = (SHOWN, ("vs_permute", None, None))
ROWS["adjoint 32/2 by copy engines"] = (SHOWN,)
ROWS["staged"] = (SHOWN,)
ROWS["staged by 32 queues"] = (SHOWN,)
ROWS["nccl"] = (("vs_nccl", None, None), ("vs_nccl_each", None, None))
ROWS["by nccl in a graph"] = (SHOWN,)

# Sweep -> a text that the description of the row's plan must contain; without
# the text, the row was executed in another way than intended.
KINDS = {"copy engines": "engine on device memory", "staged": "(staged",
         "staged by 32 queues": "(staged", "by nccl in a graph": "(nccl",
         "adjoint 32/2 by copy engines": "engine on device memory"}
ONE_LAUNCH = "one launch per call"

# Pass -> (library, name, floor, goal) of the ratios; there is no floor for the
# ratio to FlashAttention-3.
ATTENTION = {"fwd": (("cudnn", "of cuDNN", 0.85, 1.0),
                     ("fa3", "of FA-3", None, None)),
             "bwd": (("cudnn", "of cuDNN", 0.8, 1.0),
                     ("fa3", "of FA-3", None, None))}
ATTENTION_LOGS = ("attention_vs_torch,_first.log",
                  "attention_vs_torch,_rest.log",
                  "attention_backward_vs_torch.log",
                  "attention_backward,_rest.log")


def outcome(value, floor, goal):
    if floor is None and goal is None:
        return "-"
    low_is_good = floor is not None and floor > goal
    if value <= goal if low_is_good else value >= goal:
        return "goal"
    if floor is None:
        return "under goal"
    return "floor" if (value <= floor if low_is_good else value >= floor) \
        else "BELOW"


def load(folder, sweep):
    path = os.path.join(folder, sweep.replace(" ", "_").replace("/", "_") +
                        ".json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError:
        return {"results": []} # the run was cut short


def even_share(folder, report, op):
    even = load(folder, f"even P={report['config']['ranks']}")
    shares = [row["vs_copy"] for row in (even or {}).get("results", [])
              if row["op"] == op and row["vs_copy"]]
    return shares[0] if shares else None


def value_of(what, folder, report, row):
    if what == "us":
        return row["time_us"]["median"]
    if what != "of even":
        return row[what]
    share = even_share(folder, report, row["op"])
    return row["vs_copy"] / share if share and row["vs_copy"] else None


def sweep_lines(folder, rows):
    for sweep, quantities in rows.items():
        report = load(folder, sweep)
        if report is None or not report["results"]:
            yield sweep, "", "", None, None, None, "not run"
            continue
        for row in report["results"]:
            name = f"{sweep} {row['op']}"
            if row["nwrong"]:
                yield (name, row["size"], "wrong elements", row["nwrong"], 0,
                       0, "WRONG")
            if KINDS.get(sweep, ONE_LAUNCH) not in row["plan"]:
                yield (name, row["size"], row["plan"][:48], None, None, None,
                       "WRONG KIND")
                continue
            for what, floor, goal in quantities:
                value = value_of(what, folder, report, row)
                yield (name, row["size"], what, value, floor, goal,
                       "not run" if value is None else
                       outcome(value, floor, goal))


def bench_rows(folder):
    """The rows of kernelcheck --bench --vs, as {column: word}. A head has one
    word per column of the rows below it. A column "ratio" is renamed to "NAME
    ratio", where NAME is the column before it."""
    for log in ATTENTION_LOGS:
        try:
            with open(os.path.join(folder, log), encoding="utf-8",
                      errors="replace") as file:
                lines = [line.split() for line in file]
        except FileNotFoundError:
            continue
        names = []
        for words in lines:
            if words[:3] == ["d", "h", "s"]:
                names = [f"{words[n - 1]} ratio" if word == "ratio" else word
                         for n, word in enumerate(words)]
                names = names[:names.index("clock,")]
            elif len(words) >= len(names) > 0 and words[6] in ATTENTION:
                yield dict(zip(names, words))


def attention_lines(folder):
    passes = set()
    for row in bench_rows(folder):
        passes.add(row["pass"])
        docs = "" if row["docs"] == "0" else f" docs {row['docs']}"
        name = (f"attention {row['pass']} d {row['d']} h {row['h']} s {row['s']} "
                f"b {row['b']} {row['mask']}{docs}")
        for peer, what, floor, goal in ATTENTION[row["pass"]]:
            ratio = row.get(f"{peer} ratio", "N/A")
            if ratio == "N/A" and peer != "cudnn":
                continue
            value = None if ratio == "N/A" else float(ratio)
            yield (name, "", what, value, floor, goal,
                   "not run" if value is None else outcome(value, floor, goal))
    for which, words in (("fwd", "forward"), ("bwd", "backward")):
        if which not in passes:
            yield f"attention {words}", "", "", None, None, None, "not run"


def text(value):
    if value is None or value == "":
        return "-"
    return str(value) if isinstance(value, (int, str)) else f"{value:.2f}"


def print_cells(cells):
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells:
        print("  ".join(cell.ljust(w) if i in (0, 2, 6) else cell.rjust(w)
                        for i, (cell, w) in enumerate(zip(row, widths)))
              .rstrip(), flush=True)


def main(folder, sweep=None):
    if sweep:
        print_cells([tuple(map(text, line)) for line in
                     sweep_lines(folder, {sweep: ROWS[sweep]})])
        return 0
    lines = list(sweep_lines(folder, ROWS)) + list(attention_lines(folder))
    head = ("sweep", "bytes", "what", "measured", "floor", "goal", "outcome")
    print_cells([head] + [tuple(map(text, line)) for line in lines])
    outcomes = [line[-1] for line in lines]
    bad = [v for v in outcomes if v in ("BELOW", "WRONG", "WRONG KIND")]
    judged = [v for v in outcomes if v in ("goal", "floor")] + bad
    print(f"{len(judged)} judged: {outcomes.count('goal')} at the goal, "
          f"{outcomes.count('floor')} above the floor, "
          f"{outcomes.count('BELOW')} below it, {outcomes.count('WRONG')} "
          f"wrong, {outcomes.count('WRONG KIND')} of another kind; "
          f"{outcomes.count('not run')} not run")
    if not judged:
        return 2
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
