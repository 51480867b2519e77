# SPDX-License-Identifier: Apache-2.0
"""Trainer and SFTTrainer, sharded over processes, log the losses and gradient
norms of one process."""
import functools
import json
import os

import pytest
from launch import HERE, first_of, marked


@functools.lru_cache(maxsize=None)
def steps_of(job, nranks):
    """Returns [(loss, norm)] of the steps of a run, as rank 0 logs them."""
    said = first_of(nranks, os.path.join(HERE, "train.py"), job,
                    ACCELERATE_USE_CPU="true")
    return [(step["loss"], step["grad_norm"])
            for step in json.loads(marked(said, "STEPS "))]


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


@pytest.mark.parametrize("job", [
    dict(trainer="hf"),
    dict(trainer="sft", loss="chunked_nll", packed=True),
    # The experts of a token must not depend on rounding errors.
    dict(trainer="hf", kind="gpt-oss", by_token=True),
], ids=lambda job: "-".join(str(part) for part in job.values()))
def test_bf16_autocast_is_as_near_to_float32_as_one_process(job):
    if job["trainer"] == "sft":
        pytest.importorskip("trl")
    half = json.dumps(dict(job, bf16=True))
    exact, one, found = (
        steps_of(json.dumps(job), 1), steps_of(half, 1), steps_of(half, 2))
    assert len(exact) == len(one) == len(found) == 6
    for number in (0, 1):  # losses, norms
        own, other = (
            max(abs(step[number] - wanted[number]) / wanted[number]
                for step, wanted in zip(steps, exact))
            for steps in (one, found))
        assert own > 1e-5, "one process did not compute in bfloat16"
        # Each of both is one draw of rounding errors: 2 ** -8 is one of them.
        assert other <= max(2 * own, 2 ** -8)


def test_ranks_of_a_sequence_read_the_same_shuffled_samples():
    assert len(steps_of(json.dumps(dict(trainer="hf", shuffle=True)), 2)) == 6
