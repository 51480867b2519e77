# SPDX-License-Identifier: Apache-2.0
"""Trainer and SFTTrainer, sharded over processes, log the losses and gradient
norms of one process."""
import functools
import json
import os
import socket
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@functools.lru_cache(maxsize=None)
def steps_of(job, nranks):
    """[(loss, norm)] of a run, as rank 0 logs it."""
    port = free_port()
    started = []
    for rank in range(nranks):
        environment = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(nranks),
            LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(nranks),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            ACCELERATE_USE_CPU="true", TOKENIZERS_PARALLELISM="false",
            HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        started.append(subprocess.Popen(
            [sys.executable, os.path.join(HERE, "train.py"), job],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True))
    try:
        said = [process.communicate(timeout=240)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, text in zip(started, said):
        assert process.returncode == 0, text
    line, = [line for line in said[0].splitlines()
             if line.startswith("STEPS ")]
    return [(step["loss"], step["grad_norm"])
            for step in json.loads(line[len("STEPS "):])]


@pytest.mark.parametrize("nranks", [2, 3])
@pytest.mark.parametrize("job", [
    dict(trainer="hf"),
    dict(trainer="hf", packed=True, accumulate=2),
    dict(trainer="hf", kind="gpt-oss", checkpoint=True),
    dict(trainer="sft"),
    dict(trainer="sft", loss="chunked_nll", packed=True),
], ids=lambda job: "-".join(str(part) for part in job.values()))
def test_steps_are_those_of_one_process(job, nranks):
    if nranks == 3 and job["trainer"] == "sft":
        pytest.skip("SFTTrainer is run on two ranks")
    if job["trainer"] == "sft":
        pytest.importorskip("trl")
    text = json.dumps(job)
    wanted, found = steps_of(text, 1), steps_of(text, nranks)
    assert len(wanted) == len(found) == 6
    for one, other in zip(wanted, found):
        assert other == pytest.approx(one, rel=2e-5)


def test_ranks_of_a_sequence_read_the_same_shuffled_samples():
    assert len(steps_of(json.dumps(dict(trainer="hf", shuffle=True)), 2)) == 6
