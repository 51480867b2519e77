# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's recipe attends and exchanges by ulyx, and is right where its own
path is wrong."""
import json
import os

import pytest
from launch import EXAMPLES, first_of, marked, ranks

HERE = os.path.dirname(os.path.abspath(__file__))


def run(nranks, **job):
    """Returns {scale, worst} of the gradients of a run."""
    said = first_of(nranks, os.path.join(HERE, "train.py"), json.dumps(job),
                    DS_ACCELERATOR="cpu")
    return json.loads(marked(said, "FOUND "))


@pytest.mark.parametrize("zero, recipe", [
    (1, True), (2, True), (3, True), (2, False)])
def test_gradients_are_those_of_one_process(zero, recipe):
    """Runs with a sequence_parallel_size and without it. The scale that
    loss_scale() returns is checked, too."""
    found = run(2, kind="llama", zero=zero, ulyx=True, recipe=recipe)
    assert found["worst"] < 1e-5
    assert abs(found["scale"] - 1) < 1e-5


def test_heads_that_the_ranks_do_not_divide():
    assert run(2, kind="llama-5-1", zero=2, ulyx=True)["worst"] < 1e-5


@pytest.mark.parametrize("job", [
    dict(kind="mistral"), dict(kind="llama", packed=True)],
    ids=["window", "packed"])
def test_ulyx_is_right_where_deepspeed_is_wrong(job):
    """With a sliding window and packed samples, and sdpa as its core,
    DeepSpeed's own path raises no error, but its gradients are wrong."""
    assert run(2, zero=2, ulyx=True, **job)["worst"] < 1e-5
    assert run(2, zero=2, ulyx=False, **job)["worst"] > 0.1


def accelerated(nranks=2, **job):
    said = first_of(nranks, os.path.join(HERE, "accelerated.py"),
                    json.dumps(job), DS_ACCELERATOR="cpu")
    found = json.loads(marked(said, "FOUND "))
    assert len(found["losses"]) == len(found["alone"]) == 4
    assert found["samples"] > 1 and found["worst"] < 1e-5
    return found


@pytest.mark.parametrize("job", [
    dict(zero=2, optimizer="SGD"), dict(zero=3, optimizer="SGD"),
    dict(zero=1, optimizer="SGD", accumulate=2),
    dict(zero=3, optimizer="SGD", scatter=False), dict(zero=2, optimizer="AdamW"),
], ids=str)
def test_sp_size_of_accelerate_trains_as_one_process(job):
    """Trainer with ParallelismConfig(sp_size=2) and a model with a window. In
    evaluation the recipe leaves the masks to its core. With SGD the scale of
    the gradients shows in the losses; with Adam it does not."""
    found = accelerated(kind="mistral", ulyx=True, **job)
    assert abs(found["scale"] - 1) < 1e-6
    assert found["losses"] == pytest.approx(found["alone"], abs=1e-4)


def test_sp_size_without_ulyx_has_gradients_of_another_scale():
    """The path of transformers and DeepSpeed themselves, with a model without a
    window."""
    found = accelerated(kind="llama", ulyx=False, zero=2, optimizer="SGD")
    assert abs(found["scale"] - 2) < 1e-6


def test_the_example_succeeds_with_ulyx_only():
    script = os.path.join(EXAMPLES, "deepspeed_alst.py")
    assert "largest difference" in first_of(2, script, DS_ACCELERATOR="cpu")
    for status, said in ranks(2, script, "--without-ulyx",
                              DS_ACCELERATOR="cpu"):
        assert status == 1 and "other results than one process" in said
