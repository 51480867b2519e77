# SPDX-License-Identifier: Apache-2.0
"""Exchanges compared with the whole tensors, and the queries of a plan."""
import threading
import time

import numpy as np
import pytest

import ulyx
from ulyx._library import lib, text_of
from ranks import errors_of, threads

DRAWS = np.random.default_rng(11)


def whole(batch, rows, heads, dim, dtype="float64"):
    return DRAWS.standard_normal((batch, rows, heads, dim)).astype(dtype)


dense = np.ascontiguousarray


def heads_of(plan, tensor):
    first, count = plan.head_range(tensor)
    return slice(first, first + count)


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
@pytest.mark.parametrize("batch, rows, heads, kv_heads, dim, order", [
    (1, 3, 4, 2, 8, "contiguous"), (2, 37, 14, 2, 5, "contiguous"),
    (1, 16, 6, 1, 8, "zigzag"), (2, 33, 3, 3, 1, "zigzag"),
])
def test_tensors_arrive_whole_and_come_back(nranks, batch, rows, heads, kv_heads,
                                            dim, order):
    q, k = whole(batch, rows, heads, dim), whole(batch, rows, kv_heads, dim)
    grads = whole(batch, rows, heads, dim), whole(batch, rows, kv_heads, dim)

    def body(comm):
        plan = ulyx.Plan(
            comm, [ulyx.Tensor(heads, dim, "float64"),
                   ulyx.Tensor(kv_heads, dim, "float64", kv=True)],
            [ulyx.Part(rows, order=order)], batch=batch)
        mine = plan.positions()
        assert len(mine) == plan.seq_rows()
        by_head = plan.execute(ulyx.SEQ_TO_HEAD,
                               [dense(q[:, mine]), dense(k[:, mine])])
        own, kv = heads_of(plan, 0), heads_of(plan, 1)
        assert np.array_equal(by_head[0], q[:, :, own])
        assert np.array_equal(by_head[1], k[:, :, kv])
        reads = [i * kv_heads // heads - kv.start
                 for i in range(own.start, own.stop)]
        assert plan.kv_map(0, 1).tolist() == reads
        # The adjoint adds up the gradients of heads that several ranks hold.
        dq, dk = plan.execute(ulyx.SEQ_TO_HEAD_ADJOINT,
                              [dense(grads[0][:, :, own]),
                               dense(grads[1][:, :, kv])])
        assert np.array_equal(dq, grads[0][:, mine])
        return plan, mine, kv, dk
    found = threads(nranks, body)
    for _, mine, _, dk in found:
        holders = np.zeros(kv_heads)
        for _, _, kv, _ in found:
            holders[kv] += 1
        np.testing.assert_allclose(dk, grads[1][:, mine] * holders[:, None],
                                   rtol=1e-14)


def test_one_tensor_to_sequences_and_its_adjoint():
    out = whole(1, 11, 5, 4)

    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(5, 4, "float64")], [11])
        mine = plan.positions()
        own = dense(out[:, :, heads_of(plan, 0)])
        back, = plan.execute(ulyx.HEAD_TO_SEQ, [own])
        assert np.array_equal(back, out[:, mine])
        grad, = plan.execute(ulyx.HEAD_TO_SEQ_ADJOINT, [dense(out[:, mine])])
        assert np.array_equal(grad, own)
    threads(3, body)


def test_strided_tensors_are_taken_as_they_lie():
    q = whole(2, 9, 4, 8)

    def body(comm):
        rows = [4, 5][comm.rank]
        padded = np.zeros((4, 2, 9, 8))  # h, b, s, d with spare rows
        view = padded.transpose(1, 2, 0, 3)[:, :rows]
        plan = ulyx.Plan(
            comm, [ulyx.Tensor(4, 8, "float64", seq_strides=view.strides[:3])],
            [ulyx.Part(9, splits=[4, 5])], batch=2)
        mine = plan.positions()
        view[:] = q[:, mine]
        by_head, = plan.execute(ulyx.SEQ_TO_HEAD, [view])
        assert np.array_equal(by_head, q[:, :, heads_of(plan, 0)])
        # The strides also change from call to call, and the other rank does not
        # know it.
        if comm.rank:
            view = view.copy()
        again = np.zeros((by_head.shape[2], 2, 9, 8)).transpose(1, 2, 0, 3)
        assert plan.execute(ulyx.SEQ_TO_HEAD, [view], [again])[0] is again
        assert np.array_equal(by_head, again)
        assert np.array_equal(
            plan.execute(ulyx.SEQ_TO_HEAD, [q[:, mine]])[0], by_head)
        spread = np.zeros((*view.shape[:3], 16))[..., ::2]
        for bad in (view.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2),
                    np.broadcast_to(view[:, :1], view.shape), spread):
            with pytest.raises(ulyx.InvalidArgumentError, match="adjacent"):
                plan.execute(ulyx.SEQ_TO_HEAD, [bad])
    threads(2, body)


def test_elements_apart_are_refused_though_rows_lie_as_declared():
    comm, = ulyx.Communicator.local(1)
    apart = np.zeros((1, 3, 2, 16))[..., ::2]
    plan = ulyx.Plan(comm, [ulyx.Tensor(2, 8, "float64",
                                        seq_strides=apart.strides[:3])], [3])
    with pytest.raises(ulyx.InvalidArgumentError, match="adjacent"):
        plan.execute(ulyx.SEQ_TO_HEAD, [apart])


def test_windows_and_given_destinations_serve():
    q = whole(1, 64, 4, 64, "float32")

    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(4, 64, "float32")], [64],
                         seq_memory=ulyx.POINTER_WINDOW,
                         head_memory=ulyx.POINTER_WINDOW)
        src = comm.empty(plan.shape(0, ulyx.SEQ_TO_HEAD, True))
        dst = comm.empty(plan.shape(0, ulyx.SEQ_TO_HEAD))
        src[:] = q[:, plan.positions()]
        found = plan.execute(ulyx.SEQ_TO_HEAD, [src], [dst])
        assert found[0] is dst
        assert np.array_equal(dst, q[:, :, heads_of(plan, 0)])
        ordinary = np.empty_like(src)
        with pytest.raises(ulyx.InvalidArgumentError, match="window"):
            plan.execute(ulyx.SEQ_TO_HEAD, [ordinary], [dst])
    threads(1, body)


def test_packed_rows_follow_documents():
    rows, heads = 96, 2
    q = whole(1, rows, heads, 4)

    def body(comm):
        plan = ulyx.Plan(
            comm, [ulyx.Tensor(heads, 4, "float64")], [rows], work="balanced",
            mask="causal", documents=[0, 40, 96], max_docs=4, row_round=8)
        for table in (None, np.array([0, 7, 90, 96], np.int32)):
            if table is not None:
                plan.update(table)
            packed, = plan.execute(ulyx.SEQ_TO_HEAD, [q[:, plan.positions()]])
            assert packed.shape == (plan.packed_rows(), 4)
            for run in plan.segments():
                at = run.offset // (4 * 8)
                assert np.array_equal(
                    packed[at:at + run.row_end - run.row_begin],
                    q[0, run.row_begin:run.row_end, run.head])
            apart = np.zeros((len(packed), 6))[:, :4]
            plan.execute(ulyx.SEQ_TO_HEAD, [q[:, plan.positions()]], [apart])
            assert np.array_equal(apart, packed)
        with pytest.raises(ulyx.InvalidArgumentError):
            plan.update([0, 1, 2, 3, 4, 5, 96])
    threads(3, body)


def test_a_plan_describes_itself():
    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(4, 8, "float32")], [10],
                         algo="pairwise")
        assert "pairwise" in plan.describe()
        assert text_of(lib.ulyx_plan_describe, plan.handle, 20) == plan.describe()
        assert plan.traffic()["bus_bytes"] == 5 * 2 * 8 * 4
        assert plan.memory_bytes > 0 and comm.memory_bytes > 0
        held = comm.memory_bytes
        comm.trim()
        assert 0 < comm.memory_bytes <= held
        assert plan.extent(0, ulyx.SEQ_TO_HEAD, True) == 5 * 4 * 8 * 4
        assert plan.packed_rows() is None
        plan.close()
        with pytest.raises(ulyx.InvalidArgumentError, match="closed"):
            plan.seq_rows()
    threads(2, body)


@pytest.mark.parametrize("make, text", [
    (lambda c: ulyx.Plan(c, [], [8]), "tensor"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)], [-3]), "rows"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)], [ulyx.Part(8, order="odd")]),
     "'odd'"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)],
                         [ulyx.Part(8, splits=[3, 3, 2])]), "3 entries, not 2"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)], [8], work="some"), "'some'"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8, "int8")], [8]), "int8"),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)], [8], mask="window"),
     "needs window="),
    (lambda c: ulyx.Plan(c, [ulyx.Tensor(4, 8)], [8], mask="causal",
                         window=(3, 0)), "and mask 'causal'"),
])
def test_parameters_that_do_not_fit_are_refused(make, text):
    failures = errors_of(2, make)
    assert all(isinstance(f, ulyx.UlyxError) for f in failures)
    assert all(text in str(failure) for failure in failures), failures


def test_an_unknown_option_is_a_type_error():
    comm, = ulyx.Communicator.local(1)
    with pytest.raises(TypeError, match="no field 'algoritm'"):
        ulyx.Plan(comm, [ulyx.Tensor(4, 8)], [8], algoritm="direct")


@pytest.mark.parametrize("call, text", [
    (lambda p, q: p.execute(ulyx.SEQ_TO_HEAD, [q, q]), "1 tensors; given are 2"),
    (lambda p, q: p.execute(ulyx.SEQ_TO_HEAD, [q[:, :2]]), "not (1, 4, 4, 8)"),
    (lambda p, q: p.execute(ulyx.SEQ_TO_HEAD, [q.astype("float32")]),
     "float32, not float64"),
    (lambda p, q: p.execute(ulyx.SEQ_TO_HEAD,
                            [np.empty((1, 4, 4, 16))[..., ::2]]),
     "adjacent"),
])
def test_arrays_that_do_not_fit_are_refused(call, text):
    comm, = ulyx.Communicator.local(1)
    plan = ulyx.Plan(comm, [ulyx.Tensor(4, 8, "float64")], [4])
    with pytest.raises(ulyx.InvalidArgumentError) as caught:
        call(plan, np.zeros((1, 4, 4, 8)))
    assert text in str(caught.value)


def test_ranks_that_disagree_get_the_same_error():
    failures = errors_of(3, lambda c: ulyx.Plan(
        c, [ulyx.Tensor(4, 8 + (c.rank == 2))], [8]))
    assert all(type(f) is ulyx.MismatchError for f in failures), failures
    assert len({str(failure) for failure in failures}) == 1


def test_a_second_thread_is_refused_and_the_first_unharmed():
    comms = ulyx.Communicator.local(2, timeout=20)
    q = np.zeros((1, 4, 4, 8))
    plans = [None, None]

    def make(rank):
        plans[rank] = ulyx.Plan(comms[rank], [ulyx.Tensor(4, 8, "float64")],
                                [8])
    makers = [threading.Thread(target=make, args=(r,)) for r in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    waits = threading.Thread(
        target=plans[0].execute, args=(ulyx.SEQ_TO_HEAD, [q]))
    waits.start()
    while not plans[0]._lock.locked():  # the lock is held while a thread is in the call
        time.sleep(0.001)
    with pytest.raises(ulyx.BusyError):
        plans[0].execute(ulyx.SEQ_TO_HEAD, [q])
    with pytest.raises(ulyx.BusyError):
        comms[0].close()
    plans[1].execute(ulyx.SEQ_TO_HEAD, [q])
    waits.join(20)
    assert not waits.is_alive()


# ---- other rows, one plan ----------------------------------------------------
def test_one_plan_moves_all_lengths_up_to_its_capacity():
    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(6, 4, "float64")],
                         [ulyx.Part(7, row_capacity=64)])
        for rows in (7, 64, 3, 1, 33, 7):
            plan.update_rows([rows])
            mine = plan.positions()
            q = np.arange(rows * 24, dtype=np.float64).reshape(1, rows, 6, 4)
            by_head, = plan.execute(ulyx.SEQ_TO_HEAD, [dense(q[:, mine])])
            assert np.array_equal(by_head, q[:, :, heads_of(plan, 0)])
        for given, text in (([65], "65"), ([1, 2], "2 entries")):
            with pytest.raises(ulyx.InvalidArgumentError, match=text):
                plan.update_rows(given)
        assert plan.seq_rows() == len(mine)  # the plan keeps the old rows
    threads(3, body)


def test_splits_change_with_rows():
    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(2, 4, "float64")],
                         [ulyx.Part(7, splits=[6, 1], row_capacity=16)])
        plan.update_rows([9], [[2, 7]])
        assert plan.seq_rows() == (2, 7)[comm.rank]
        with pytest.raises(ulyx.InvalidArgumentError):
            plan.update_rows([9], [[2, 6]])
        with pytest.raises(ulyx.InvalidArgumentError, match="nparts is 1"):
            plan.update_rows([9], [[2, 7], None])
    threads(2, body)


def test_rows_without_a_capacity_stay():
    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(2, 4, "float64")], [7])
        with pytest.raises(ulyx.UnsupportedError):
            plan.update_rows([5])
    threads(2, body)


def test_a_refused_call_gives_the_peers_its_reason():
    def body(comm):
        plan = ulyx.Plan(comm, [ulyx.Tensor(2, 4, "float32")], [ulyx.Part(4)])
        given = [np.ones((1, plan.seq_rows(), 2, 4), "float32")]
        with pytest.raises(ulyx.InvalidArgumentError, match="direction is 4"):
            plan.refuse(4, "no reason")
        text = None
        if comm.rank == 0:
            plan.refuse(ulyx.SEQ_TO_HEAD, "the caller's own reason")
        else:
            with pytest.raises(ulyx.PeerRefusedError) as caught:
                plan.execute(ulyx.SEQ_TO_HEAD, given)
            text = str(caught.value)
        plan.execute(ulyx.SEQ_TO_HEAD, given)  # the plan is still usable
        return text
    assert "rank 0 refused: invalid argument: the caller's own reason" in \
        threads(2, body)[1]
