# SPDX-License-Identifier: Apache-2.0
"""Plans: one exchange of 1 to 8 tensors between the sequence-sharded layout
[b, s_r, h, d] and the head-sharded layout [b, S, h_r, d], made once and
executed any number of times. reshuffle.h of the C library has every detail;
parameters have its names."""
import ctypes
import threading
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _abi, arrays, errors
from ._interrupt import waiting
from ._library import check, lib, text_of
from .communicator import Communicator, _Handle

SEQ_TO_HEAD = _abi.SEQ_TO_HEAD
HEAD_TO_SEQ = _abi.HEAD_TO_SEQ
SEQ_TO_HEAD_ADJOINT = _abi.SEQ_TO_HEAD_ADJOINT
HEAD_TO_SEQ_ADJOINT = _abi.HEAD_TO_SEQ_ADJOINT

ORDERS = {"contiguous": _abi.TOKENS_CONTIGUOUS, "zigzag": _abi.TOKENS_ZIGZAG,
          "zigzag_docs": _abi.TOKENS_ZIGZAG_DOCS}
MASKS = {None: _abi.MASK_NONE, "none": _abi.MASK_NONE,
         "causal": _abi.MASK_CAUSAL, "window": _abi.MASK_WINDOW}
WORK = {"heads": _abi.WORK_HEADS, "balanced": _abi.WORK_BALANCED}


def choice(value: Any, table: Dict[Any, int], name: str) -> int:
    """Returns the library's number of a word."""
    if value in table:
        return table[value]
    raise errors.InvalidArgumentError(
        f"{name} is {value!r}; there are {', '.join(map(repr, table))}")


class Part(NamedTuple):
    """A run of rows of a token axis, sharded over the ranks or replicated."""

    rows: int
    axis: int = 0
    replicated: bool = False
    order: str = "contiguous"  # or "zigzag", "zigzag_docs"
    splits: Optional[Sequence[int]] = None  # rows on each rank; None: balanced
    row_capacity: int = 0  # most rows that update_rows() gives; 0: rows stay


class Tensor(NamedTuple):
    """A tensor of a plan."""

    heads: int
    dim: int
    dtype: arrays.DType = "bfloat16"
    part: int = 0
    kv: bool = False  # ULYX_HEADS_KV: keys and values
    partial_dtype: Optional[arrays.DType] = None
    flags: int = 0  # ulyx.TENSOR_FULL, ulyx.TENSOR_GRAD_EQUAL
    elem_bytes: int = 0  # of "bytes"
    seq_strides: Tuple[int, int, int] = (0, 0, 0)  # bytes; zeros: dense
    head_strides: Tuple[int, int, int] = (0, 0, 0)
    partial_strides: Tuple[int, int, int] = (0, 0, 0)


class Segment(NamedTuple):
    """A run of rows of one head on a packed head side."""

    head: int
    batch: int
    row_begin: int
    row_end: int
    offset: int


class PartTable:
    """Parts in the form that the library reads, and what keeps them alive."""

    def __init__(self, parts: Sequence[Any], nranks: int) -> None:
        self.parts = [part if isinstance(part, Part) else Part(part)
                      for part in parts]
        self.array = (_abi.ulyx_part_t * max(1, len(self.parts)))()
        self.splits: List[np.ndarray] = []
        for struct, part in zip(self.array, self.parts):
            struct.axis, struct.rows = part.axis, part.rows
            struct.row_capacity = part.row_capacity
            struct.kind = _abi.PART_REPLICATED if part.replicated \
                else _abi.PART_SHARDED
            struct.order = choice(part.order, ORDERS, "order of a part")
            if part.splits is not None:
                splits = arrays.int64s(part.splits, "splits of a part", nranks)
                self.splits.append(splits)
                struct.splits = splits.ctypes.data


class RowTable:
    """New rows for the parts of a plan, in the form that the library's
    update_rows calls read. splits is None, or has one entry per part; the entry
    is None for a part that got no splits at creation."""

    def __init__(self, parts: Sequence[Part], nranks: int, rows: Sequence[int],
                 splits: Optional[Sequence[Optional[Sequence[int]]]]) -> None:
        self.rows = arrays.int64s(rows, "rows", len(parts))
        self.arrays = [None if given is None else
                       arrays.int64s(given, "splits of a part", nranks)
                       for given in splits or ()]
        if splits is not None and len(self.arrays) != len(parts):
            raise errors.InvalidArgumentError(
                f"splits has {len(self.arrays)} entries, nparts is "
                f"{len(parts)}")
        self.table = (ctypes.c_void_p * len(parts))(
            *(None if array is None else array.ctypes.data
              for array in self.arrays))
        self.rows_at = self.rows.ctypes.data
        self.splits_at = None if splits is None else \
            ctypes.addressof(self.table)
        self.parts = tuple(
            part._replace(rows=int(count)) if array is None else
            part._replace(rows=int(count), splits=tuple(map(int, array)))
            for part, count, array in zip(
                parts, self.rows, self.arrays or [None] * len(parts)))


def set_fields(params: Any, options: Dict[str, Any], keep: List[Any]) -> None:
    """Sets fields of a params struct by name. Words become numbers, lists
    become arrays, text becomes bytes."""
    for name, value in options.items():
        if name not in params._names_:
            raise TypeError(f"{type(params).__name__} has no field {name!r}")
        if isinstance(value, str):
            value = value.encode()
        elif name in ("head_splits",) and value is not None:
            value = arrays.int64s(value, name)
            keep.append(value)
            value = value.ctypes.data
        setattr(params, name, value)


def set_mask(params: Any, mask: Optional[str],
             window: Optional[Tuple[Optional[int], Optional[int]]],
             align: str, diagonal: int) -> None:
    """Sets the mask: None, "causal", or "window" (keys before, keys after; None
    removes the limit on a side)."""
    if window is not None and mask is None:
        mask = "window"
    params.mask_kind = choice(mask, MASKS, "mask")
    params.mask_align = choice(
        align, {"bottom_right": _abi.ALIGN_BOTTOM_RIGHT,
                "top_left": _abi.ALIGN_TOP_LEFT}, "align")
    params.mask_diagonal = diagonal
    if params.mask_kind == _abi.MASK_WINDOW:
        if window is None:
            raise errors.InvalidArgumentError(
                "mask 'window' needs window=(keys before, keys after)")
        left, right = window
        params.mask_left = _abi.UNBOUNDED if left is None else left
        params.mask_right = _abi.UNBOUNDED if right is None else right
    elif window is not None:
        raise errors.InvalidArgumentError(f"a window, and mask {mask!r}")


class Owned:
    """An object of the library that belongs to a communicator and is destroyed
    with it."""

    def _own(self, comm: Communicator, value: int, destroy: Any) -> None:
        self.comm = comm
        self._value: int = value
        self._parent: _Handle = comm._handle
        self._lock = threading.Lock()
        self._parent.adopt(value, destroy)
        self._finalizer = weakref.finalize(self, self._parent.drop_soon, value)

    @property
    def handle(self) -> int:
        """The pointer of the C library."""
        value = self._value
        if value not in self._parent.children:
            raise errors.InvalidArgumentError(
                f"the {type(self).__name__} is closed, or its communicator is")
        return value

    def close(self) -> None:
        """Destroys the object; local."""
        self._parent.drop(self._value)
        self._finalizer.detach()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _refuse_second(self) -> None:
        # The structs of calls are kept and filled again, by one thread at a
        # time.
        raise errors.BusyError(
            f"another thread is in a call of this {type(self).__name__}")


def create(comm: Communicator, function: Any, params: Any) -> int:
    """Calls function(comm, &params, &object), a collective creation, and
    returns the object."""
    value = ctypes.c_void_p()
    check(waiting(comm._handle, function, comm.handle, ctypes.byref(params),
                  ctypes.byref(value)))
    assert value.value
    return value.value


class PlanQueries:
    """The queries of a plan, which are local and may be made at any time."""

    comm: Communicator

    def _plan(self) -> int:
        raise NotImplementedError

    def _numbers(self, function: Any, kinds: Sequence[Any],
                 *arguments: Any) -> Tuple[int, ...]:
        outputs = [kind() for kind in kinds]
        check(function(self._plan(), *arguments,
                       *(ctypes.byref(output) for output in outputs)))
        return tuple(output.value for output in outputs)

    def _rank(self, rank: Optional[int]) -> int:
        return self.comm.rank if rank is None else rank

    def seq_rows(self, part: int = 0, rank: Optional[int] = None) -> int:
        """Rows of a part on a rank (None: this one)."""
        return self._numbers(lib.ulyx_plan_get_seq_rows, [ctypes.c_int64],
                             part, self._rank(rank))[0]

    def positions(self, part: int = 0, rank: Optional[int] = None) -> np.ndarray:
        """Global position within the part of each row of a rank."""
        count = self.seq_rows(part, rank)
        found = np.empty(count, np.int64)
        check(lib.ulyx_plan_get_positions(self._plan(), part, self._rank(rank),
                                          count, found.ctypes.data))
        return found

    def head_range(self, tensor: int = 0,
                   rank: Optional[int] = None) -> Tuple[int, int]:
        """(first, count) of the heads of a tensor that a rank holds."""
        first, count = self._numbers(
            lib.ulyx_plan_get_heads, [ctypes.c_int64] * 2, tensor,
            self._rank(rank))
        return first, count

    def packed_rows(self, tensor: int = 0,
                    rank: Optional[int] = None) -> Optional[int]:
        """Rows of a packed head side on a rank; None where it is not packed."""
        packed, rows = self._numbers(
            lib.ulyx_plan_get_packed_rows, [ctypes.c_int32, ctypes.c_int64],
            tensor, self._rank(rank))
        return rows if packed else None

    def segments(self, tensor: int = 0,
                 rank: Optional[int] = None) -> List[Segment]:
        """The runs of rows of a packed tensor on a rank."""
        size = ctypes.sizeof(_abi.ulyx_segment_t)
        count = ctypes.c_int64()
        arguments = (self._plan(), tensor, self._rank(rank))
        check(lib.ulyx_plan_get_segments(*arguments, 0, size, None,
                                         ctypes.byref(count)))
        found = (_abi.ulyx_segment_t * max(count.value, 1))()
        check(lib.ulyx_plan_get_segments(*arguments, count.value, size, found,
                                         ctypes.byref(count)))
        return [Segment(s.head, s.batch, s.row_begin, s.row_end, s.offset)
                for s in found[:count.value]]

    def kv_map(self, q_tensor: int = 0, kv_tensor: int = 1) -> np.ndarray:
        """For each query head of this rank, the local KV head that it reads."""
        count = ctypes.c_int64()
        arguments = (self._plan(), q_tensor, kv_tensor)
        check(lib.ulyx_plan_get_kv_map(*arguments, 0, None,
                                       ctypes.byref(count)))
        found = np.empty(count.value, np.int64)
        check(lib.ulyx_plan_get_kv_map(*arguments, count.value,
                                       found.ctypes.data, ctypes.byref(count)))
        return found

    def partial_dtype(self, tensor: int = 0) -> int:
        """The dtype of a tensor's source in SEQ_TO_HEAD_ADJOINT."""
        return self._numbers(lib.ulyx_plan_get_partial_dtype, [ctypes.c_int32],
                             tensor)[0]

    def extent(self, tensor: int, direction: int, source: bool) -> int:
        """Bytes from a tensor's base to its last byte on this rank."""
        side = _abi.SIDE_SRC if source else _abi.SIDE_DST
        return self._numbers(lib.ulyx_plan_get_extent, [ctypes.c_int64], tensor,
                             direction, side)[0]

    def traffic(self, direction: int = SEQ_TO_HEAD) -> Dict[str, int]:
        """The traffic of an exchange in one direction, in bytes."""
        found = _abi.ulyx_traffic_t()
        check(lib.ulyx_plan_get_traffic(self._plan(), direction,
                                        ctypes.byref(found)))
        return {name: getattr(found, name) for name in found._names_[1:]}

    @property
    def memory_bytes(self) -> int:
        """Bytes that the library holds for this plan on this rank."""
        return self._numbers(lib.ulyx_plan_get_memory, [ctypes.c_int64])[0]


class Plan(Owned, PlanQueries):
    """An exchange, agreed on by all ranks. Creation is collective.

    tensors: each is a Tensor. parts: each is a Part, or the number of its rows
    over all ranks. heads: the number of query heads; None: that of the first
    tensor that is not kv. documents: those of the first call. Further options
    are fields of ulyx_plan_params_t by name (algo="pairwise",
    head_splits=[...], seq_memory=ulyx.POINTER_WINDOW, ...).
    """

    def __init__(self, comm: Communicator, tensors: Sequence[Tensor],
                 parts: Sequence[Any], *, batch: int = 1,
                 heads: Optional[int] = None, work: str = "heads",
                 mask: Optional[str] = None,
                 window: Optional[Tuple[Optional[int], Optional[int]]] = None,
                 align: str = "bottom_right", diagonal: int = 0,
                 documents: Any = None, documents_k: Any = None,
                 timeout: Optional[float] = None, **options: Any) -> None:
        self.tensors, self.batch = tuple(tensors), batch
        table = PartTable(parts, comm.nranks)
        self.parts = tuple(table.parts)
        if heads is None:
            heads = next((t.heads for t in tensors if not t.kv), 1)
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        described = (_abi.ulyx_tensor_t * max(1, len(tensors)))()
        for struct, tensor in zip(described, tensors):
            self._describe(struct, tensor)
        params = _abi.ulyx_plan_params_t(
            batch=batch, heads=heads, nparts=len(self.parts),
            parts=ctypes.addressof(table.array), ntensors=len(tensors),
            tensors=ctypes.addressof(described),
            work_split=choice(work, WORK, "work"), timeout_s=timeout or 0,
            docs_q=docs[0].pointer if docs[0] else None,
            docs_k=docs[1].pointer if docs[1] else None)
        set_mask(params, mask, window, align, diagonal)
        keep: List[Any] = []
        set_fields(params, options, keep)
        self._own(comm, create(comm, lib.ulyx_plan_create, params),
                  lib.ulyx_plan_destroy)
        self._src = (ctypes.c_void_p * len(tensors))()
        self._dst = (ctypes.c_void_p * len(tensors))()
        self._src_strides = (ctypes.c_int64 * (3 * len(tensors)))()
        self._dst_strides = (ctypes.c_int64 * (3 * len(tensors)))()

    @staticmethod
    def _describe(struct: Any, tensor: Tensor) -> None:
        struct.__init__(  # begins with the values of the macro
            part=tensor.part, dtype=arrays.dtype_code(tensor.dtype),
            elem_bytes=tensor.elem_bytes, heads=tensor.heads, dim=tensor.dim,
            ownership=_abi.HEADS_KV if tensor.kv else _abi.HEADS_QUERY,
            partial_dtype=0 if tensor.partial_dtype is None
            else arrays.dtype_code(tensor.partial_dtype), flags=tensor.flags,
            seq_strides=tensor.seq_strides, head_strides=tensor.head_strides,
            partial_strides=tensor.partial_strides)
        if struct.dtype == _abi.DTYPE_BYTES and not struct.elem_bytes:
            struct.elem_bytes = 1

    def _plan(self) -> int:
        return self.handle

    def describe(self) -> str:
        """One line: shape, algorithm, and the reason of each choice."""
        return text_of(lib.ulyx_plan_describe, self.handle)

    def update(self, documents: Any = None, documents_k: Any = None) -> None:
        """Sets the documents from the next call on. Local; all ranks must give
        the same documents."""
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        check(lib.ulyx_plan_update(
            self.handle, docs[0].pointer if docs[0] else None,
            docs[1].pointer if docs[1] else None, None))

    # ---- tensors -------------------------------------------------------------
    def shape(self, tensor: int, direction: int,
              source: bool = False) -> Tuple[int, ...]:
        """Shape of a tensor on this rank, before (source) or after a call."""
        entry = self.tensors[tensor]
        dims = (entry.dim, entry.elem_bytes) if entry.elem_bytes else (entry.dim,)
        sequence = (direction in (SEQ_TO_HEAD, HEAD_TO_SEQ_ADJOINT)) == source
        if sequence:
            return (self.batch, self.seq_rows(entry.part), entry.heads, *dims)
        packed = self.packed_rows(tensor)
        if packed is not None:
            return (packed, *dims)
        axis = self.parts[entry.part].axis
        rows = sum(part.rows for part in self.parts if part.axis == axis)
        return (self.batch, rows, self.head_range(tensor)[1], *dims)

    def _dtype(self, tensor: int, direction: int, source: bool) -> int:
        if direction == SEQ_TO_HEAD_ADJOINT and source:
            return self.partial_dtype(tensor)
        return arrays.dtype_code(self.tensors[tensor].dtype)

    def execute(self, direction: int, src: Sequence[Any],
                dst: Optional[Sequence[Any]] = None, *,
                stream: Any = None) -> List[Any]:
        """Moves all tensors; collective. src and dst: one array per tensor,
        with the strides of the plan (dense by default). In host memory the
        strides may be others, if the elements of a row and head are adjacent.
        Returns dst. In host memory dst may be left out and is then made."""
        count = len(self.tensors)
        if len(src) != count or (dst is not None and len(dst) != count):
            raise errors.InvalidArgumentError(
                f"the plan has {count} tensors; given are {len(src)} sources "
                f"and {count if dst is None else len(dst)} destinations")
        sources = [self._checked(src[i], i, direction, True)
                   for i in range(count)]
        if dst is None and self.comm.cuda:
            raise errors.InvalidArgumentError(
                "destinations of CUDA arrays are to be given")
        if dst is None:
            dst = [np.empty(self.shape(i, direction), arrays.numpy_dtype(
                self._dtype(i, direction, False))) for i in range(count)]
        targets = [self._checked(dst[i], i, direction, False)
                   for i in range(count)]
        self.execute_addresses(
            direction, [s.address for s in sources],
            [t.address for t in targets], stream,
            self._moved(sources, direction, True),
            self._moved(targets, direction, False))
        return list(dst)

    def update_rows(self, rows: Sequence[int],
                    splits: Optional[Sequence[Optional[Sequence[int]]]] = None,
                    documents: Any = None, documents_k: Any = None) -> None:
        """Sets the rows from the next call on, within the parts' row_capacity.
        Local; all ranks must give the same rows, and the next call compares
        them. rows: one entry per part. splits: one entry per part, where
        creation had any. documents: as update()."""
        table = RowTable(self.parts, self.comm.nranks, rows, splits)
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        check(lib.ulyx_plan_update_rows(
            self.handle, table.rows_at, table.splits_at,
            docs[0].pointer if docs[0] else None,
            docs[1].pointer if docs[1] else None, None))
        self.parts = table.parts

    def _moved(self, found: Sequence[arrays.Array], direction: int,
               source: bool) -> Optional[List[Tuple[int, ...]]]:
        """Returns the strides of all tensors if those of any tensor differ from
        the plan's, else None."""
        if all(array.lies_by(self._declared(i, direction, source))
               for i, array in enumerate(found)):
            return None
        return [array.strides[:3] for array in found]

    def _declared(self, tensor: int, direction: int,
                  source: bool) -> Tuple[int, ...]:
        entry = self.tensors[tensor]
        sequence = (direction in (SEQ_TO_HEAD, HEAD_TO_SEQ_ADJOINT)) == source
        return tuple(entry.seq_strides if sequence else (
            entry.partial_strides if direction == SEQ_TO_HEAD_ADJOINT and source
            else entry.head_strides))

    def _checked(self, given: Any, tensor: int, direction: int,
                 source: bool) -> arrays.Array:
        name = f"{'src' if source else 'dst'}[{tensor}]"
        found = arrays.array(given, name, self._dtype(tensor, direction, source),
                             output=not source, cuda=self.comm.cuda)
        shape = self.shape(tensor, direction, source)
        if found.shape != shape:
            raise errors.InvalidArgumentError(
                f"{name} has the shape {found.shape}, not {shape}")
        if len(shape) < 4:  # packed: rows of one batch item and head
            found = found._replace(
                shape=(1, shape[0], 1, *shape[1:]),
                strides=(0, found.strides[0], 0, *found.strides[1:]))
        found.check_rows(name)
        declared = self._declared(tensor, direction, source)
        if self.comm.cuda and not found.lies_by(declared):
            raise errors.InvalidArgumentError(
                f"{name} has the strides {found.strides}; the plan was made for "
                f"{declared if any(declared) else 'dense tensors'}")
        return found

    def refuse(self, direction: int, reason: str, stream: Any = None) -> None:
        """Takes this rank's place in a call that its peers make and that this
        rank cannot make. The peers get PeerRefusedError with the reason (at
        most 159 bytes of it) and need not wait until their deadlines. Returns
        once the peers are notified."""
        if not 0 <= direction < _abi.DIRECTIONS:
            raise errors.InvalidArgumentError(
                f"direction is {direction}, must be 0 to {_abi.DIRECTIONS - 1}")
        handle = self.handle
        if not self._lock.acquire(False):
            self._refuse_second()
        try:
            check(waiting(
                self._parent, lib.ulyx_reshuffle_refuse, handle, direction,
                reason.encode(), stream))
        except errors.InvalidArgumentError:
            pass  # the status of a call that has been refused
        finally:
            self._lock.release()

    def execute_addresses(self, direction: int, src: Any, dst: Any,
                          stream: Any = None, src_strides: Any = None,
                          dst_strides: Any = None) -> None:
        """execute() on sequences of bare addresses, which only the library
        checks. Strides: for each tensor (batch, row, head) in bytes, three
        zeros for dense; None: those of the plan."""
        handle = self.handle
        if not self._lock.acquire(False):
            self._refuse_second()
        try:
            self._src[:], self._dst[:] = src, dst
            if src_strides is None and dst_strides is None:
                check(waiting(self._parent, lib.ulyx_reshuffle_execute, handle,
                              direction, self._src, self._dst, stream))
                return
            strides = []
            for given, held in ((src_strides, self._src_strides),
                                (dst_strides, self._dst_strides)):
                if given is not None:
                    held[:] = [stride for each in given for stride in each]
                strides.append(None if given is None else held)
            check(waiting(
                self._parent, lib.ulyx_reshuffle_execute_strided, handle,
                direction, self._src, strides[0], self._dst, strides[1],
                stream))
        finally:
            self._lock.release()
