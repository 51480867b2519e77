# SPDX-License-Identifier: Apache-2.0
"""How ranks meet, the life of a communicator, collectives."""
import ctypes
import gc
import json
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import ulyx
from ranks import Processes, errors_of, threads


def by_threads(nranks, create):
    """Runs create(rank) on a thread per rank. Returns the communicators and the
    exceptions, of each rank one of both."""
    made, failures = [None] * nranks, [None] * nranks

    def run(rank):
        try:
            made[rank] = create(rank)
        except Exception as error:
            failures[rank] = error
    workers = [threading.Thread(target=run, args=(r,)) for r in range(nranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return made, failures


def total_of(comm):
    """Makes a call in which all ranks must take part."""
    return comm.allreduce(np.array([comm.rank + 1.0]))[0]


# ---- how ranks meet -----------------------------------------------------------
def test_ranks_of_one_unique_id_meet():
    identifier = ulyx.unique_id()
    assert ulyx.UniqueId.from_text(identifier.text) == identifier
    comms, failures = by_threads(3, lambda rank: ulyx.Communicator.from_unique_id(
        bytes(identifier), 3, rank, timeout=20, name="three"))
    assert failures == [None] * 3
    assert [(c.rank, c.nranks) for c in comms] == [(0, 3), (1, 3), (2, 3)]
    totals, _ = by_threads(3, lambda rank: total_of(comms[rank]))
    assert totals == [6.0] * 3


def test_an_id_of_another_length_is_refused():
    with pytest.raises(ulyx.InvalidArgumentError, match="256 bytes, not 5"):
        ulyx.Communicator.from_unique_id(b"short", 1, 0)


def test_destroyed_id_ends_the_meeting():
    identifier = ulyx.unique_id()
    threading.Timer(0.2, identifier.destroy).start()
    with pytest.raises(ulyx.AbortedError):
        ulyx.Communicator.from_unique_id(identifier, 2, 0, timeout=20)


class Gatherer:
    """An allgather between the threads of this process."""

    def __init__(self, nranks):
        self.pieces, self.barrier = [b""] * nranks, threading.Barrier(nranks)

    def __call__(self, rank, mine):
        self.pieces[rank] = mine
        self.barrier.wait(20)
        found = list(self.pieces)
        self.barrier.wait(20)
        return found


def test_ranks_meet_through_a_callback():
    gather = Gatherer(2)
    comms, failures = by_threads(2, lambda r: ulyx.Communicator.from_allgather(
        lambda mine: gather(r, mine), 2, r, timeout=20))
    assert failures == [None, None]
    totals, _ = by_threads(2, lambda rank: total_of(comms[rank]))
    assert totals == [3.0, 3.0]


def test_what_a_callback_raises_comes_out():
    def broken(mine):
        raise KeyError("no such key")
    with pytest.raises(KeyError, match="no such key"):
        ulyx.Communicator.from_allgather(broken, 2, 0, timeout=5)


@pytest.mark.parametrize("given, text", [
    ([b"x"], "1 pieces"), ([b"x", b"y"], r"of \[1\] bytes")])
def test_a_callback_that_returns_too_little_is_refused(given, text):
    with pytest.raises(ulyx.InvalidArgumentError, match=text):
        ulyx.Communicator.from_allgather(lambda mine: given, 2, 0, timeout=5)


class Mpi:
    """The methods of an mpi4py communicator that from_mpi uses."""

    def __init__(self, rank, gather):
        self.rank, self.gather = rank, gather

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.gather.pieces)

    def bcast(self, thing, root):
        return self.gather(self.rank, thing)[root]


def test_ranks_of_an_mpi_communicator_meet():
    gather = Gatherer(2)
    comms, failures = by_threads(2, lambda rank: ulyx.Communicator.from_mpi(
        Mpi(rank, gather), timeout=20))
    assert failures == [None, None]
    totals, _ = by_threads(2, lambda rank: total_of(comms[rank]))
    assert totals == [3.0, 3.0]


def test_rank_0_without_a_meeting_point_is_an_error_on_all_ranks(monkeypatch):
    monkeypatch.setenv("ULYX_SOCKET_IFNAME", "=nosuchif")
    gather = Gatherer(2)
    _, failures = by_threads(2, lambda rank: ulyx.Communicator.from_mpi(
        Mpi(rank, gather), timeout=20))
    assert all(type(f) is type(failures[0]) for f in failures)
    assert all("nosuchif" in str(failure) for failure in failures)


def test_ranks_of_a_launcher_meet():
    script = """
found = ulyx.launch()
assert (found.rank, found.nranks) == (rank, 2), found
say(comm.rank, comm.allreduce(np.float64([1]))[0])
"""
    with Processes(2, script) as job:
        assert [job.end(rank) for rank in range(2)] == [(0, "0 2.0"),
                                                        (0, "1 2.0")]


def test_missing_launcher_is_reported(monkeypatch):
    done = subprocess.run(
        [sys.executable, "-c", "import ulyx; print(ulyx.launch().nranks)\n"
         "ulyx.Communicator.from_env()"], capture_output=True, text=True)
    assert done.stdout == "0\n"
    assert "InvalidArgumentError" in done.stderr


# ---- life ----------------------------------------------------------------------
def test_a_closed_communicator_is_refused_by_name():
    comm, = ulyx.Communicator.local(1)
    plan = ulyx.Plan(comm, [ulyx.Tensor(2, 4, "float32")], [8])
    with comm:
        comm.barrier()
    comm.close()  # a second close() does nothing
    assert comm.closed and "closed" in repr(comm)
    with pytest.raises(ulyx.InvalidArgumentError, match="is closed"):
        comm.barrier()
    with pytest.raises(ulyx.InvalidArgumentError, match="is closed"):
        plan.describe()


def test_nothing_holds_what_is_not_used():
    comm, = ulyx.Communicator.local(1)
    plan = ulyx.Plan(comm, [ulyx.Tensor(2, 4, "float32")], [8])
    handle, gone = comm._handle, weakref.ref(comm)
    assert len(handle.children) == 1
    del plan
    gc.collect()
    assert not handle.children and handle.value
    del comm
    gc.collect()
    assert gone() is None and not handle.value


def test_an_abort_reaches_all_ranks():
    def body(comm):
        if comm.rank == 1:
            comm.abort()
        comm.barrier()
    failures = errors_of(2, body)
    assert [type(f) for f in failures] == [ulyx.AbortedError] * 2
    assert "rank 1" in str(failures[0])


def test_error_of_a_failed_communicator():
    def body(comm):
        assert comm.error() is None and comm.dead_ranks() == []
        comm.barrier()
        if comm.rank == 0:
            comm.abort()
            assert isinstance(comm.error(), ulyx.AbortedError)
    threads(2, body)


def test_timeouts_name_the_missing_rank():
    def body(comm):
        if comm.rank == 0:
            with pytest.raises(ulyx.TimeoutError, match="waiting for rank 1 "):
                comm.barrier()
    threads(2, body, timeout=0.5)


def test_ranks_split_and_agree():
    def body(comm):
        odd = comm.split(comm.rank % 2, key=-comm.rank, name="odd")
        assert comm.split(-1) is None
        members = odd.allgather(np.array([comm.rank]).view(np.uint8))
        found = members.view(np.int64).ravel().tolist()
        assert found == [r for r in (3, 2, 1, 0) if r % 2 == comm.rank % 2]
        assert comm.agree(4 | 1 << comm.rank, "and") == 4
        assert comm.agree(comm.rank, "max") == 3
        with pytest.raises(ulyx.InvalidArgumentError, match="'sum'"):
            comm.agree(1, "sum")
        odd.close()
    threads(4, body)


def test_survivors_go_on():
    script = """
comm.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    comm.barrier()
except ulyx.RankLostError as error:
    assert "rank 1" in str(error), error
assert comm.dead_ranks() == [1]
fewer = comm.shrink()
say(fewer.nranks, fewer.allreduce(np.float64([1]))[0])
comm.close()
"""
    with Processes(3, script) as job:
        assert job.end(1)[0] == -9
        assert [job.end(rank) for rank in (0, 2)] == [(0, "2 2.0")] * 2


# ---- collectives ---------------------------------------------------------------
DTYPES = ["float64", "float32", "float16"]


@pytest.mark.parametrize("nranks", [1, 3])
def test_collectives_give_what_numpy_gives(nranks):
    draw = np.random.default_rng(3).integers(-9, 9, (nranks, nranks * 5))

    def body(comm):
        for dtype in DTYPES:
            every = draw.astype(dtype)
            mine = every[comm.rank].copy()
            assert np.array_equal(comm.allreduce(mine), every.sum(0))
            assert np.array_equal(comm.allgather(mine), every)
            blocks = every.reshape(nranks, nranks, 5)
            assert np.array_equal(
                comm.alltoall(mine.reshape(nranks, 5)), blocks[:, comm.rank])
            same = mine.copy()
            assert comm.broadcast(same, nranks - 1) is same
            assert np.array_equal(same, every[-1])
            place = comm.empty(nranks * 5, dtype)
            assert comm.allreduce(mine, place) is place
            assert np.array_equal(place, every.sum(0))
    threads(nranks, body)


def test_alltoallv_moves_pieces_of_different_sizes():
    counts = np.array([[1, 2, 0], [3, 0, 1], [2, 2, 4]])

    def body(comm):
        me = comm.rank
        src = np.concatenate([np.full(n, 10 * me + p, np.float32)
                              for p, n in enumerate(counts[me])])
        found = comm.alltoallv(src, counts[me], out_counts=counts[:, me])
        wanted = np.concatenate([np.full(n, 10 * p + me, np.float32)
                                 for p, n in enumerate(counts[:, me])])
        assert np.array_equal(found, wanted)
    threads(3, body)


def test_bfloat16_is_taken_as_its_bits():
    def body(comm):
        ones = np.full(4, 0x3f80, np.uint16)  # the bits of 1.0
        total = comm.allreduce(ones)
        assert total.view(np.uint16).tolist() == [0x4000] * 4  # the bits of 2.0
    threads(2, body)


class Capsule:
    """An array of another framework, which offers only __dlpack__."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


@pytest.mark.skipif(not hasattr(np.ndarray, "__dlpack__"), reason="old numpy")
def test_arrays_of_others_come_by_dlpack():
    def body(comm):
        mine = np.arange(6.0).reshape(2, 3)
        assert np.array_equal(comm.allreduce(Capsule(mine)), 2 * mine)
        out = np.empty((2, 2, 3))
        comm.allgather(Capsule(mine), Capsule(out))
        assert np.array_equal(out[1], mine)
    threads(2, body)


class OnDevice:
    """An array that claims to lie in memory of a CUDA device."""

    def __init__(self):
        from ulyx.arrays import _DLTensor
        self.shape = (ctypes.c_int64 * 1)(4)
        self.tensor = _DLTensor(data=64, device_type=2, ndim=1, code=2, bits=32,
                                lanes=1, shape=self.shape)

    def __dlpack__(self, **options):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_device_memory_is_not_taken_for_the_host_s():
    comm, = ulyx.Communicator.local(1)
    plan = ulyx.Plan(comm, [ulyx.Tensor(1, 4, "float32")], [1])
    calls = [lambda: comm.allreduce(OnDevice()),
             lambda: comm.allgather(np.zeros(4, "f4"), OnDevice()),
             lambda: comm.broadcast(OnDevice()),
             lambda: plan.execute(ulyx.SEQ_TO_HEAD, [OnDevice()])]
    for call in calls:
        with pytest.raises(ulyx.InvalidArgumentError, match="CUDA device, and"):
            call()


@pytest.mark.parametrize("call, text", [
    (lambda c: c.allreduce([1.0]), "src is a list"),
    (lambda c: c.allreduce(np.arange(3)), "src is of type int64"),
    (lambda c: c.allreduce(np.zeros((4, 4))[:, ::2]), "not contiguous"),
    (lambda c: c.allreduce(np.zeros(4), np.zeros(3)), "24 bytes, not 32"),
    (lambda c: c.alltoall(np.zeros(3, np.uint8)), "no multiple of 2"),
    (lambda c: c.alltoallv(np.zeros(3), [1, 1]), "must add up"),
    (lambda c: c.alltoallv(np.zeros(3), [3]), "1 entries, not 2"),
    (lambda c: c.allreduce(np.zeros(2), np.frombuffer(b"0" * 16)), "read-only"),
])
def test_arrays_that_do_not_fit_are_refused(call, text):
    comms = ulyx.Communicator.local(2)
    with pytest.raises((ulyx.InvalidArgumentError, ulyx.UnsupportedError),
                       match=text):
        call(comms[0])


def test_sizes_that_differ_are_the_same_error_on_all_ranks():
    failures = errors_of(2, lambda c: c.allreduce(np.zeros(4 + c.rank)))
    assert all(isinstance(f, (ulyx.MismatchError, ulyx.PeerRefusedError))
               for f in failures)


def test_flight_recorders_are_written(tmp_path):
    first, second = ulyx.Communicator.local(2, concurrent=True)
    first.dump(str(tmp_path / "%r.json"))
    dumped = json.loads((tmp_path / "0.json").read_text())
    assert [c["rank"] for c in dumped["communicators"]] == [0, 1]
    with pytest.raises(ulyx.SystemCallError, match="No such file"):
        first.dump(str(tmp_path / "no" / "folder"))
    first.close()
    second.close()
