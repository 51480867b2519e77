# SPDX-License-Identifier: Apache-2.0
"""Communicators: their ranks, how ranks meet, and plain collectives."""
import ctypes
import itertools
import os
import threading
import time
import traceback
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import _abi, arrays, errors, memory
from ._interrupt import interruptible, waiting
from ._library import check, lib

ID_BYTES = _abi.UNIQUE_ID_BYTES
LEAVE_S = 5.0  # how long another thread's call may take to end after an abort
_WITHOUT_LAUNCHER = (
    "Start the program by torchrun, mpirun or srun; or set ULYX_RANK, ULYX_NRANKS "
    "and ULYX_COMM_ID of each process (ULYX_RANK=0 ULYX_NRANKS=1 is one process "
    "alone); or make the communicator by Communicator.local(nranks), whose ranks "
    "are threads of this process, or by Communicator.from_group(), of "
    "torch.distributed")
AllGather = Callable[[bytes], Sequence[bytes]]


class UniqueId(bytes):
    """Where ranks meet: plain bytes, to be copied by any means to all ranks of
    one communicator, and to no other process, because any process that has them
    can join."""

    @property
    def text(self) -> str:
        """As text, for ULYX_COMM_ID or a launcher's argument."""
        known = _abi.ulyx_unique_id_t.from_buffer_copy(self)
        text = ctypes.create_string_buffer(640)
        check(lib.ulyx_unique_id_to_string(ctypes.byref(known), text, 640))
        return text.value.decode()

    @classmethod
    def from_text(cls, text: str) -> "UniqueId":
        """The reverse of `text`."""
        known = _abi.ulyx_unique_id_t()
        check(lib.ulyx_unique_id_from_string(text.encode(),
                                             ctypes.byref(known)))
        return cls(bytes(known))

    def destroy(self) -> None:
        """Ends an id that this process made and that no rank needs any more."""
        known = _abi.ulyx_unique_id_t.from_buffer_copy(self)
        check(lib.ulyx_unique_id_destroy(ctypes.byref(known)))


def unique_id() -> UniqueId:
    """Opens a meeting point in this process, for one communicator."""
    made = _abi.ulyx_unique_id_t()
    check(lib.ulyx_unique_id_create(ctypes.byref(made)))
    return UniqueId(bytes(made))


class Launch(NamedTuple):
    """How a launcher has started this process; nranks is 0 if none has."""

    rank: int
    nranks: int
    local_rank: int
    local_nranks: int
    launcher: Optional[str]


def launch() -> Launch:
    """Returns whether, and as which rank, a launcher has started this
    process."""
    found = _abi.ulyx_launch_t()
    check(lib.ulyx_launch_query(ctypes.byref(found)))
    name = found.launcher
    return Launch(found.rank, found.nranks, found.local_rank,
                  found.local_nranks, name.decode() if name else None)


class _Handle:
    """A ulyx_comm_t, and the objects that must be destroyed before it.

    The Communicator's finalizer closes the handle when the Communicator is
    collected, at the latest when the interpreter ends."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.lock = threading.Lock()
        self.pool: Any = None  # memory.Pool; on a device ulyx.torch's pool
        # children that were busy when their last reference went
        self.late: List[int] = []
        self.children: Dict[int, Callable[[int], int]] = {}
        self.pid = os.getpid()
        self.inside = 0  # number of calls in which a thread is now
        self.alone = False  # whether this is the only rank

    def abort(self) -> None:
        # The thread that watches for Ctrl-C calls this too. The lock keeps that
        # thread from using a handle that is being destroyed.
        with self.lock:
            if self.value:
                lib.ulyx_comm_abort(self.value)

    def adopt(self, child: int, destroy: Callable[[int], int]) -> None:
        late, self.late = self.late, []
        for busy in late:
            try:
                self.drop(busy)
            except errors.BusyError:
                self.late.append(busy)
        self.children[child] = destroy

    def drop(self, child: int) -> None:
        """Destroys a child (a plan or the like). If this raises an error, the
        child stays."""
        destroy = self.children.pop(child, None)
        if destroy is not None and self.pid == os.getpid():
            status = destroy(child)
            if status:
                self.children[child] = destroy
            check(status)

    def drop_soon(self, child: int) -> None:
        """As drop(), for a child without references. If a thread or a stream is
        in a call of the child, a later adopt() or close() destroys the
        child."""
        try:
            self.drop(child)
        except errors.BusyError:
            self.late.append(child)
        except errors.UlyxError:
            pass  # close() destroys the child

    def close(self) -> None:
        if not self.value or self.pid != os.getpid():
            return
        if self.inside:
            raise errors.BusyError(
                "close: another thread is in a call on the communicator")
        if self.pool is not None:
            self.pool.settle()
        for child in list(self.children):
            self.drop(child)
        if self.pool is not None:
            self.pool.close()
        with self.lock:
            check(lib.ulyx_comm_destroy(self.value))
            self.value = 0


def _close_quietly(handle: _Handle) -> None:
    # At the interpreter's end a daemon thread may still be in a call. An abort
    # ends the call; if the call does not end, the handle is left open.
    if handle.inside and handle.pid == os.getpid():
        handle.abort()
        end = time.monotonic() + LEAVE_S
        while handle.inside and time.monotonic() < end:
            time.sleep(0.001)
    try:
        handle.close()
    except errors.UlyxError:
        pass  # the handle is left, because no caller could receive the error


# Compiled code refers to a communicator by its number in this process.
_numbered: "weakref.WeakValueDictionary[int, Communicator]" = \
    weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def by_number(number: int) -> "Communicator":
    """Returns the communicator whose `number` this is."""
    comm = _numbered.get(int(number))  # traced code passes a symbol
    if comm is None:
        raise errors.InvalidArgumentError(
            f"communicator {number} does not exist any more")
    return comm


class Communicator:
    """One rank's handle on a group of ranks.

    Make collective calls in the same order on all ranks, and one at a time on
    one communicator. Any thread may call abort() and queries.
    """

    def __init__(self, handle: int, device: Optional[int] = None) -> None:
        self._handle = _Handle(handle)
        self.device = device
        self.cuda = device is not None
        self._finalizer = weakref.finalize(self, _close_quietly, self._handle)
        number = ctypes.c_int32()
        check(lib.ulyx_comm_get_rank(handle, ctypes.byref(number)))
        self.rank: int = number.value
        check(lib.ulyx_comm_get_nranks(handle, ctypes.byref(number)))
        self.nranks: int = number.value
        self._handle.alone = self.nranks == 1
        self.number = next(_numbers)
        _numbered[self.number] = self

    # ---- how ranks meet ------------------------------------------------------
    @staticmethod
    def _params(timeout: Optional[float], name: Optional[str],
                device: Optional[int],
                concurrent: bool = False) -> _abi.ulyx_comm_params_t:
        params = _abi.ulyx_comm_params_t(timeout_s=timeout or 0)
        if concurrent:
            params.flags = _abi.COMM_CONCURRENT
        if name is not None:
            params.name = name.encode()
        if device is not None:
            params.memory_kind, params.device = _abi.MEMORY_CUDA, device
        return params

    @classmethod
    def _create(cls, device: Optional[int], function: Any,
                *arguments: Any) -> "Communicator":
        """Calls function(*arguments, &comm). Ctrl-C ends the call at once."""
        def call() -> int:
            handle = ctypes.c_void_p()
            check(function(*arguments, ctypes.byref(handle)))
            return handle.value or 0
        return cls(interruptible(call, lib.ulyx_comm_destroy), device)

    @classmethod
    def from_env(cls, *, timeout: Optional[float] = None,
                 name: Optional[str] = None,
                 device: Optional[int] = None,
                 concurrent: bool = False) -> "Communicator":
        """Makes a communicator of all ranks that a launcher has started. Rank,
        size and meeting point come from the launcher: torchrun, mpirun, srun,
        ...

        timeout: seconds, for the creation and all later calls (None:
        ULYX_TIMEOUT, or 600). device: ordinal of the CUDA device that has the
        tensors; None: tensors are on the host. name: shown in logs and errors.
        concurrent: a second thread will make calls too (ULYX_COMM_CONCURRENT).
        Without concurrent, ranks that wait for that thread can be taken for
        ranks in different calls.
        """
        params = cls._params(timeout, name, device, concurrent)
        try:
            return cls._create(device, lib.ulyx_comm_create_from_env,
                               ctypes.byref(params))
        except errors.InvalidArgumentError as error:
            if "no launcher recognised" in str(error):
                error.args = (f"{error}. {_WITHOUT_LAUNCHER}",)
            raise

    @classmethod
    def from_unique_id(cls, identifier: bytes, nranks: int, rank: int, *,
                       timeout: Optional[float] = None,
                       name: Optional[str] = None,
                       device: Optional[int] = None,
                       concurrent: bool = False) -> "Communicator":
        """All nranks ranks make this call with the same unique_id()."""
        if len(identifier) != ID_BYTES:
            raise errors.InvalidArgumentError(
                f"a unique id has {ID_BYTES} bytes, not {len(identifier)}")
        params = cls._params(timeout, name, device, concurrent)
        known = _abi.ulyx_unique_id_t.from_buffer_copy(identifier)
        return cls._create(device, lib.ulyx_comm_create, ctypes.byref(known),
                           nranks, rank, ctypes.byref(params))

    @classmethod
    def from_group(cls, group: Any = None, **options: Any) -> "Communicator":
        """Makes a communicator of the ranks of a torch.distributed process
        group (None: the default group), in the group's order. The group is used
        for this call only."""
        from torch import distributed as dist
        rank, nranks = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise errors.InvalidArgumentError(
                "this process is not in the process group")
        boxes = [None] * nranks
        dist.all_gather_object(boxes, _offered_id(rank), group=group)
        return cls.from_unique_id(_accepted_id(boxes[0]), nranks, rank,
                                  **options)

    @classmethod
    def from_mpi(cls, comm: Any, **options: Any) -> "Communicator":
        """Makes a communicator of the ranks of an mpi4py communicator, which is
        used for this call only."""
        rank, nranks = comm.Get_rank(), comm.Get_size()
        offered = comm.bcast(_offered_id(rank), root=0)
        return cls.from_unique_id(_accepted_id(offered), nranks, rank,
                                  **options)

    @classmethod
    def from_allgather(cls, allgather: AllGather, nranks: int, rank: int, *,
                       timeout: Optional[float] = None,
                       name: Optional[str] = None,
                       device: Optional[int] = None,
                       concurrent: bool = False) -> "Communicator":
        """Meets through the caller's allgather(bytes), which returns a bytes
        object per rank. An exception of allgather ends the creation and is
        raised here."""
        failure: List[BaseException] = []

        def gather(_: Any, mine: Any, everyones: Any, size: int) -> int:
            # A ctypes callback that raises returns garbage, so no exception may
            # leave it.
            try:
                given = allgather(ctypes.string_at(mine, size))
                pieces = [bytes(piece) for piece in given]
                if len(pieces) != nranks or any(len(p) != size for p in pieces):
                    raise errors.InvalidArgumentError(
                        f"allgather returned {len(pieces)} pieces of "
                        f"{sorted({len(p) for p in pieces})} bytes, not "
                        f"{nranks} of {size}")
                ctypes.memmove(everyones, b"".join(pieces), size * nranks)
                return 0
            except BaseException as error:
                failure.append(error)
                return 1

        params = cls._params(timeout, name, device, concurrent)
        handle = ctypes.c_void_p()
        status = lib.ulyx_comm_create_from_allgather(
            _abi.ulyx_allgather_fn(gather), None, nranks, rank,
            ctypes.byref(params), ctypes.byref(handle))
        if failure:
            raise failure[0]
        check(status)
        assert handle.value
        return cls(handle.value, device)

    @classmethod
    def local(cls, nranks: int, *, timeout: Optional[float] = None,
              name: Optional[str] = None,
              concurrent: bool = False) -> List["Communicator"]:
        """All ranks of a new communicator within this process, one per
        thread."""
        params = cls._params(timeout, name, None, concurrent)
        handles = (ctypes.c_void_p * max(nranks, 1))()
        check(lib.ulyx_comm_create_local(nranks, ctypes.byref(params), handles))
        return [cls(handle) for handle in handles if handle]

    # ---- life ----------------------------------------------------------------
    @property
    def handle(self) -> int:
        """The ulyx_comm_t * of the C library."""
        if not self._handle.value:
            raise errors.InvalidArgumentError("the communicator is closed")
        return self._handle.value

    @property
    def closed(self) -> bool:
        """close() has been called."""
        return not self._handle.value

    def close(self) -> None:
        """Destroys the handle with its plans and windows; local. No peer may
        still be in a call with this rank: barrier() before close() ensures
        this."""
        self._handle.close()
        self._finalizer.detach()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<ulyx.Communicator rank {self.rank} of {self.nranks}{state}>"

    def abort(self) -> None:
        """Fails the communicator here and at all peers; from any thread."""
        self._handle.abort()

    def error(self) -> Optional[errors.UlyxError]:
        """The error that has failed the communicator, or None. Never waits."""
        status = ctypes.c_int32()
        check(lib.ulyx_comm_get_async_error(self.handle, ctypes.byref(status)))
        if not status.value:
            return None
        return errors.of(status.value,
                         lib.ulyx_last_error().decode(errors="replace"))

    def dead_ranks(self) -> List[int]:
        """The ranks known to be dead, ascending."""
        ranks, count = (ctypes.c_int32 * self.nranks)(), ctypes.c_int32()
        check(lib.ulyx_comm_get_dead_ranks(self.handle, self.nranks, ranks,
                                           ctypes.byref(count)))
        return list(ranks[:count.value])

    def dump(self, path: Optional[str] = None) -> None:
        """Writes the flight recorders of this process as JSON, for `ulyx_info
        report`. path: the file; %h, %p and %r in it become host, process and
        rank. None: ULYX_DUMP_FILE."""
        name = os.fsencode(path) if path is not None else None
        check(lib.ulyx_comm_dump(self.handle, name))

    @property
    def memory_bytes(self) -> int:
        """Host memory that the library holds for this communicator."""
        number = ctypes.c_int64()
        check(lib.ulyx_comm_get_memory(self.handle, ctypes.byref(number)))
        return number.value

    def trim(self) -> None:
        """Gives back host memory that the library keeps for later; local."""
        self._call(lib.ulyx_comm_trim)

    @property
    def pool(self) -> memory.Pool:
        """Memory that all ranks reach directly (see ulyx.memory)."""
        if self.cuda:
            raise errors.UnsupportedError(
                "the communicator is for device memory; ulyx.torch has a pool "
                "of its own")
        if self._handle.pool is None:
            self._handle.pool = memory.Pool(self.handle)
        return self._handle.pool  # type: ignore[no-any-return]

    def empty(self, shape: Any, dtype: arrays.DType = "float32") -> Any:
        """A numpy array in memory that all ranks reach, which saves a copy when
        the array is moved. Local; contents are undefined."""
        return self.pool.empty(shape, dtype)

    # ---- groups --------------------------------------------------------------
    def split(self, color: int, key: int = 0, *,
              timeout: Optional[float] = None,
              name: Optional[str] = None) -> Optional["Communicator"]:
        """Collective. Ranks of one color form a new communicator, ordered by
        (key, rank); color < 0 gives None."""
        params = self._params(timeout, name, self.device)
        handle = ctypes.c_void_p()
        self._call(lib.ulyx_comm_split, color, key, ctypes.byref(params)
                   if timeout or name else None, ctypes.byref(handle))
        return Communicator(handle.value, self.device) if handle.value else None

    def shrink(self, *, timeout: Optional[float] = None,
               name: Optional[str] = None) -> "Communicator":
        """Returns a new communicator of the living ranks, over which the call
        is collective. The caller still has to close the old communicator."""
        params = self._params(timeout, name, self.device)
        handle = ctypes.c_void_p()
        self._call(lib.ulyx_comm_shrink, ctypes.byref(params)
                   if timeout or name else None, ctypes.byref(handle))
        assert handle.value
        return Communicator(handle.value, self.device)

    def agree(self, value: int, how: str = "and") -> int:
        """Collective, also on a failed communicator: "and", "min" or "max" of
        all ranks' values, equal on all living ranks."""
        ways = {"and": _abi.AGREE_AND, "min": _abi.AGREE_MIN,
                "max": _abi.AGREE_MAX}
        if how not in ways:
            raise errors.InvalidArgumentError(
                f"how is {how!r}; there are {', '.join(ways)}")
        agreed = ctypes.c_uint64()
        self._call(lib.ulyx_comm_agree, value, ways[how], ctypes.byref(agreed),
                   None)
        return agreed.value

    # ---- collectives ---------------------------------------------------------
    def _call(self, function: Any, *arguments: Any) -> None:
        check(waiting(self._handle, function, self.handle, *arguments))

    def barrier(self) -> None:
        """Waits for all ranks."""
        self._call(lib.ulyx_comm_barrier)

    def alltoall(self, src: Any, out: Any = None, *, stream: Any = None) -> Any:
        """out[p] <- rank p's src[this rank]; src has nranks equal pieces one
        after another. Returns out (None: a new array)."""
        source = arrays.dense(src, "src", cuda=self.cuda)
        piece, rest = divmod(source.bytes, self.nranks)
        if rest:
            raise errors.InvalidArgumentError(
                f"src has {source.bytes} bytes, no multiple of {self.nranks}")
        result = arrays.like(source) if out is None else out
        target = self._target(result, source.bytes)
        self._call(lib.ulyx_alltoall, source.address, target.address, piece,
                   stream)
        return result

    def alltoallv(self, src: Any, src_counts: Sequence[int], out: Any = None,
                  out_counts: Optional[Sequence[int]] = None, *,
                  stream: Any = None) -> Any:
        """Pieces of different sizes, counted in elements, one after another;
        out_counts defaults to src_counts."""
        source = arrays.dense(src, "src", cuda=self.cuda)
        size = arrays.SIZES[source.dtype]
        given = arrays.int64s(src_counts, "src_counts", self.nranks) * size
        taken = given if out_counts is None else \
            arrays.int64s(out_counts, "out_counts", self.nranks) * size
        if given.sum() != source.bytes or given.min() < 0 or taken.min() < 0:
            raise errors.InvalidArgumentError(
                f"src_counts {list(src_counts)} must add up to src's "
                f"{source.bytes // size} elements; no count may be negative, "
                "nor one of out_counts")
        result = out if out is not None else arrays.like(
            source, shape=(int(taken.sum()) // size,))
        target = self._target(result, int(taken.sum()))
        given_at, taken_at = _starts(given), _starts(taken)
        self._call(lib.ulyx_alltoallv, source.address, given.ctypes.data,
                   given_at.ctypes.data, target.address, taken.ctypes.data,
                   taken_at.ctypes.data, stream)
        return result

    def allreduce(self, src: Any, out: Any = None, *, stream: Any = None) -> Any:
        """Sum over all ranks, with the same bits on each; out may be src."""
        source = arrays.dense(src, "src", cuda=self.cuda)
        result = arrays.like(source) if out is None else out
        target = self._target(result, source.bytes)
        count = source.bytes // arrays.SIZES[source.dtype]
        self._call(lib.ulyx_allreduce, source.address, target.address, count,
                   source.dtype, stream)
        return result

    def allgather(self, src: Any, out: Any = None, *, stream: Any = None) -> Any:
        """out[p] <- rank p's src; out has one axis more than src."""
        source = arrays.dense(src, "src", cuda=self.cuda)
        result = out if out is not None else arrays.like(
            source, shape=(self.nranks, *source.shape))
        target = self._target(result, source.bytes * self.nranks)
        self._call(lib.ulyx_allgather, source.address, target.address,
                   source.bytes, stream)
        return result

    def broadcast(self, buffer: Any, root: int = 0, *,
                  stream: Any = None) -> Any:
        """buffer <- root's buffer, in place."""
        target = arrays.dense(buffer, "buffer", output=self.rank != root,
                              cuda=self.cuda)
        self._call(lib.ulyx_broadcast, target.address, target.bytes, root,
                   stream)
        return buffer

    def _target(self, out: Any, size: int) -> arrays.Array:
        target = arrays.dense(out, "out", output=True, cuda=self.cuda)
        if target.bytes != size:
            raise errors.InvalidArgumentError(
                f"out has {target.bytes} bytes, not {size}")
        return target


def _starts(sizes: Any) -> Any:
    """Returns where pieces of these sizes begin, one after another."""
    return sizes.cumsum() - sizes


def _offered_id(rank: int) -> Any:
    """Returns rank 0's unique id, or the reason why rank 0 has none. All ranks
    receive one of both, because otherwise they would wait."""
    if rank:
        return None
    try:
        return unique_id()
    except errors.UlyxError as error:
        return (error.status, "".join(
            traceback.format_exception_only(type(error), error)).strip())


def _accepted_id(offered: Any) -> bytes:
    if isinstance(offered, tuple):
        status, text = offered
        raise errors.of(status, f"rank 0 could not open a meeting point: {text}")
    return bytes(offered)
