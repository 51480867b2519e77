#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_bytes as a program: ranks as processes and as threads give one rank's
losses, and what it refuses it names."""
import os
import re
import signal
import subprocess
import sys
import tempfile

SMALL = ["--seq", "97", "--layers", "2", "--dim", "48", "--hidden", "64",
         "--steps", "3", "--timeout", "60", "--rank-threads", "1"]
LOSS = re.compile(r"^step \d+ loss ([\d.]+) ", re.MULTILINE)

# arguments, and a part of the error message
REFUSED = [
    (["--ranks", "0"], "--ranks 0: expected a whole number from 1"),
    (["--ranks", "1.5"], "expected a whole number"),
    (["--lr", "fast"], "--lr fast: expected a number"),
    (["--lr", "nan"], "--lr nan: expected a number"),
    (["--rank", "2"], "--rank: no such option"),
    (["--steps"], "--steps needs a value"),
    (["--heads", "6", "--kv-heads", "4"], "multiple of --kv-heads"),
    (["--heads", "5", "--kv-heads", "1"], "--dim must be --heads times"),
    (["--seq", "7", "--docs", "4"], "two tokens or more"),
    (["--split", "both"], "expected heads or balanced"),
    (["no such file"], "no such file: No such file"),
    (["/dev/null"], "the text is empty"),
]


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True,
                          text=True, check=False, timeout=100)


def losses(program, *arguments):
    done = run(program, *SMALL, *arguments)
    found = [float(loss) for loss in LOSS.findall(done.stdout)]
    if done.returncode != 0 or len(found) != 3:
        print(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
        sys.exit(1)
    return found, done.stdout


def check(condition, text):
    if not condition:
        print(text)
    return 0 if condition else 1


def check_ranks(program, path):
    failed = 0
    one, text = losses(program, path)
    failed += check("sent between ranks" not in text, "one rank sends nothing")
    failed += check(re.search(r"peak memory per rank, MiB: [\d.]+$", text,
                              re.MULTILINE), f"no peak memory: {text}")
    for kind in ([], ["--threads"]):
        many, text = losses(program, "--ranks", "3", *kind, path)
        apart = max(abs(a - b) / b for a, b in zip(many, one))
        failed += check(apart <= 1e-5, f"3 ranks {kind}: {many}, one: {one}")
        failed += check("MB by distributed attention" in text, f"no bytes: {text}")
        peaks = re.search(r"peak memory.*MiB:((?: [\d.]+)+)$", text,
                          re.MULTILINE)
        failed += check(len(peaks[1].split()) == (1 if kind else 3), text)
    return failed


def check_launched(program, path):
    """Two tasks of srun, without PMIx, are two ranks of one job."""
    failed = 0
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0",
           "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}
    tasks = [subprocess.Popen(
        [program, *SMALL, path], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, **job, "SLURM_PROCID": str(rank)})
        for rank in range(2)]
    out = [task.communicate(timeout=100) for task in tasks]
    failed += check([task.returncode for task in tasks] == [0, 0], out)
    failed += check(len(LOSS.findall(out[0][0])) == 3 and
                    not LOSS.findall(out[1][0]), out)
    alone = subprocess.run(
        [program, *SMALL, path], capture_output=True, text=True, check=False,
        timeout=100, env={**os.environ, **job, "SLURM_PROCID": "1",
                          "RANK": "0", "WORLD_SIZE": "1"})
    failed += check(alone.returncode == 3 and
                    "ULYX_NRANKS=1 to be alone" in alone.stderr, alone.stderr)
    return failed


def check_killed_rank(program, path):
    """The other ranks end with the cause, long before their deadline."""
    started = subprocess.Popen(
        [program, *SMALL, "--steps", "100000", "--ranks", "3", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in started.stdout:
        if line.startswith("step 3 "):
            break
    with open(f"/proc/{started.pid}/task/{started.pid}/children",
              encoding="ascii") as file:
        ranks = [int(pid) for pid in file.read().split()]
    failed = check(len(ranks) == 3, f"three ranks expected, not {ranks}")
    os.kill(ranks[2], signal.SIGKILL)
    try:
        _, error = started.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        started.kill()
        return failed + check(False, "two ranks wait for one that is dead")
    failed += check(started.returncode == 3, f"exit {started.returncode}")
    failed += check("ended by signal 9" in error and
                    re.search(r"train_bytes: .*rank 2", error), error)
    return failed


def main():
    program = os.path.abspath(sys.argv[1])
    for name in ("ULYX_RANK", "ULYX_NRANKS", "ULYX_COMM_ID"):
        os.environ.pop(name, None)
    failed = 0
    for arguments, message in REFUSED:
        done = run(program, *arguments)
        failed += check(done.returncode == 2 and message in done.stderr,
                        f"{arguments}: {done.returncode} {done.stderr}")
    done = run(program, "--help")
    failed += check(done.returncode == 0 and "--kv-heads" in done.stdout,
                    f"--help: {done.returncode}")
    # Without a file, the program reads the repository's own documents.
    done = run(program, *SMALL, "--steps", "1")
    failed += check(done.returncode == 0 and "step 1 loss" in done.stdout,
                    f"no file: {done.returncode} {done.stderr}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 40)
        file.flush()
        failed += check_ranks(program, file.name)
        failed += check_launched(program, file.name)
        failed += check_killed_rank(program, file.name)
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
