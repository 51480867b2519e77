# SPDX-License-Identifier: Apache-2.0
"""Texts of errors have the names of Python's arguments."""
import os
import subprocess
import sys

import numpy as np
import pytest

import ulyx
from ranks import errors_of
from ulyx import _names

FORMS = dict(heads=4, dim_qk=8, dtype="float64", threads=1)


def layer(comm, parts=(6,), **options):
    return ulyx.DistAttention(comm, list(parts), **{**FORMS, **options})


# What differs on rank 1, and what the text of all ranks has.
UNLIKE = {
    "mask is 'none' on rank 0 and 'causal' on rank 1":
        lambda one: dict(mask="causal" if one else None),
    "window[0] is None on rank 0 and 3 on rank 1":
        lambda one: dict(mask="window", window=(3 if one else None, 0)),
    "align is 'bottom_right' on rank 0 and 'top_left' on rank 1":
        lambda one: dict(align="top_left" if one else "bottom_right"),
    "diagonal is 0 on rank 0 and 2 on rank 1":
        lambda one: dict(diagonal=2 * one),
    "param_dtype is float64 on rank 0 and float32 on rank 1":
        lambda one: dict(dtype="float32" if one else "float64"),
    "tensors[0].dtype is float32 on rank 0 and bfloat16 on rank 1":
        lambda one: dict(dtype="bfloat16" if one else "float32"),
    "parts[0].order is 'contiguous' on rank 0 and 'zigzag' on rank 1":
        lambda one: dict(parts=[ulyx.Part(
            6, order="zigzag" if one else "contiguous")]),
    "save is 'heads' on rank 0 and 'none' on rank 1":
        lambda one: dict(save="none" if one else "heads"),
    "scale is 0 on rank 0 and 0.5 on rank 1":
        lambda one: dict(scale=0.5 * one),
}


@pytest.mark.parametrize("text", UNLIKE)
def test_ranks_that_differ(text):
    failures = errors_of(2, lambda comm: layer(
        comm, **UNLIKE[text](comm.rank == 1)))
    for failure in failures:
        assert type(failure) is ulyx.MismatchError and text in str(failure)


@pytest.mark.parametrize("call, text", [
    (lambda comm: layer(comm, window=(-2, 0)), "window[0] is -2"),
    (lambda comm: layer(comm, documents=[0, 4, 7]), "documents: document 1"),
    (lambda comm: layer(comm, parts=[6, ulyx.Part(4, axis=1)],
                        documents=[0, 6], documents_k=[0, 9]), "documents_k:"),
    (lambda comm: layer(comm, timeout=-1), "timeout is -1"),
    (lambda comm: comm.split(0, timeout=-1), "timeout is -1"),
    (lambda comm: ulyx.Plan(comm, [ulyx.Tensor(4, 8), ulyx.Tensor(2, 8)], [6]),
     "tensors[1] is of query heads (kv=False) with heads 2"),
    (lambda comm: ulyx.Plan(comm, [], [6]), "the number of tensors is 0"),
])
def test_what_is_refused(call, text):
    comm, = ulyx.Communicator.local(1)
    with pytest.raises(ulyx.InvalidArgumentError) as caught:
        call(comm)
    assert text in str(caught.value)


def test_collectives():
    failures = errors_of(2, lambda comm: comm.allreduce(np.zeros(3 + comm.rank)))
    assert all("the number of elements of src is 3 on rank 0 and 4 on rank 1"
               in str(failure) for failure in failures)


def test_other_texts_stay():
    for text in ("ranks did not come: 2", "of dtype 2 it has 4 bytes",
                 "q[0] has the shape (1, 2), not (2, 1)", "count the rows"):
        assert _names.in_python(text, _names.PACKAGE) == text
    assert _names.in_python("docs_q.count is 4", _names.PACKAGE) == \
        "documents.count is 4"


def test_no_field_of_c_is_missing():
    """Each field of the params of a layer and of a plan is an argument, a field of
    Part or Tensor, an option under its own name, or in the table."""
    import inspect
    from ulyx import _abi
    taken = {"size", "part_size", "tensor_size", "memory", "nranks"}
    for struct, function in (
            (_abi.ulyx_plan_params_t, ulyx.Plan.__init__),
            (_abi.ulyx_dist_attention_params_t, ulyx.DistAttention.__init__)):
        given = inspect.signature(function).parameters
        assert "options" in given
        renamed = {name for name in struct._names_
                   if name not in given and name in _names.PACKAGE}
        assert {"mask_kind", "mask_left", "mask_right", "mask_align",
                "mask_diagonal", "work_split", "docs_q", "docs_k",
                "timeout_s", "nparts"} <= renamed
    for struct, python in ((_abi.ulyx_part_t, ulyx.Part),
                           (_abi.ulyx_tensor_t, ulyx.Tensor)):
        word = {"ulyx_part_t": "parts", "ulyx_tensor_t": "tensors"}[
            struct.__name__]
        for name in set(struct._names_) - taken - set(python._fields):
            assert f"{word}[*].{name}" in _names.PACKAGE, name


def test_without_a_launcher_the_ways_are_named():
    bare = {name: value for name, value in os.environ.items()
            if name.startswith(("ULYX_LIBRARY", "PYTHON", "LD_", "HOME"))}
    script = "import ulyx; ulyx.Communicator.from_env()"
    done = subprocess.run([sys.executable, "-c", script], env=bare, text=True,
                          capture_output=True, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert "InvalidArgumentError: no launcher recognised" in last
    for way in ("torchrun", "mpirun", "srun", "ULYX_RANK", "ULYX_NRANKS",
                "ULYX_COMM_ID", "Communicator.local(", "from_group("):
        assert way in last
    alone = dict(bare, ULYX_RANK="0", ULYX_NRANKS="1")
    done = subprocess.run([sys.executable, "-c", script], env=alone, text=True,
                          capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
