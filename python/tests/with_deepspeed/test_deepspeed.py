# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's recipe goes by ulyx, and is right where its own path is not."""
import json
import os
import subprocess
import sys

import pytest
from test_trainer import free_port

HERE = os.path.dirname(os.path.abspath(__file__))


def run(nranks, **job):
    """{scale, worst} of the gradients of a run."""
    port, started = free_port(), []
    for rank in range(nranks):
        environment = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(nranks),
            LOCAL_RANK=str(rank), LOCAL_SIZE=str(nranks),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
            PYTHONPATH=os.pathsep.join(
                [os.environ.get("PYTHONPATH", ""),
                 os.path.join(HERE, "..", "with_transformers")]))
        started.append(subprocess.Popen(
            [sys.executable, os.path.join(HERE, "train.py"), json.dumps(job)],
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
             if line.startswith("FOUND ")]
    return json.loads(line[len("FOUND "):])


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_gradients_are_those_of_one_process(zero):
    found = run(2, kind="llama", zero=zero, ulyx=True)
    assert found["worst"] < 1e-5


def test_heads_that_the_ranks_do_not_divide():
    assert run(2, kind="llama-5-1", zero=2, ulyx=True)["worst"] < 1e-5


@pytest.mark.parametrize("job", [
    dict(kind="mistral"), dict(kind="llama", packed=True)],
    ids=["window", "packed"])
def test_where_deepspeed_is_silently_wrong(job):
    """A sliding window and packed samples, with sdpa as its core: no error
    there, and gradients of something else."""
    assert run(2, zero=2, ulyx=True, **job)["worst"] < 1e-5
    assert run(2, zero=2, ulyx=False, **job)["worst"] > 0.1
