# SPDX-License-Identifier: Apache-2.0
"""Distributed attention: exchange q, k, v; attend; exchange back; and the
backward pass of this. dist_attention.h of the C library has every detail."""
import ctypes
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _abi, arrays, errors
from ._interrupt import waiting
from ._library import check, lib, text_of
from .communicator import Communicator
from .plan import (WORK, Owned, PartTable, PlanQueries, RowTable, choice, create,
                   set_fields, set_mask)

SAVE = {None: _abi.SAVE_DEFAULT, "heads": _abi.SAVE_HEADS,
        "none": _abi.SAVE_NONE}
_STRIDES = ("q_strides", "k_strides", "v_strides", "out_strides",
            "dout_strides")


def aligned(size: int) -> np.ndarray:
    """Bytes whose address is a multiple of 64."""
    whole = np.empty(size + 64, np.uint8)
    begin = -whole.ctypes.data % 64
    return whole[begin:begin + size]


def attention_kernels(memory: str = "host") -> List[str]:
    """The names of the attention kernels that this machine runs for a kind of
    memory, "host" or "cuda", fastest first. Each is a value for the option
    `kernel` of DistAttention. The list is empty for "cuda" without a driver or
    in a build without kernels.

    Raises InvalidArgumentError for another kind."""
    kinds = {"host": _abi.MEMORY_HOST, "cuda": _abi.MEMORY_CUDA}
    if memory not in kinds:
        raise errors.InvalidArgumentError(
            f"memory is {memory!r}, expected 'host' or 'cuda'")
    count = ctypes.c_int32()
    names = (ctypes.c_char_p * 16)()
    check(lib.ulyx_attention_list_kernels(
        kinds[memory], names, len(names), ctypes.byref(count)))
    return [name.decode() for name in names[:min(count.value, len(names))]
            if name is not None]


class Moved:
    """Strides for those tensors of a call that do not lie as at creation. For
    each name of such a tensor: one triple per part, (batch, row, head) in
    bytes; three zeros mean dense. Passing the same object to the next call of
    the pass saves setting its strides again."""

    def __init__(self, strides: Dict[str, Any]) -> None:
        self.fields: Dict[str, Any] = {}
        for name, parts in strides.items():
            flat = [stride for part in parts for stride in part]
            self.fields[name + "_strides"] = (ctypes.c_int64 * len(flat))(*flat)


NOT_MOVED = Moved({})


class HeadGroupPlan(PlanQueries):
    """The plan of a head group, which can only be asked for its numbers: rows,
    heads, positions."""

    def __init__(self, owner: "DistAttention", group: int) -> None:
        self.owner, self.comm, self.group = owner, owner.comm, group

    def _plan(self) -> int:
        plan = ctypes.c_void_p()
        check(lib.ulyx_dist_attention_get_plan(
            self.owner.handle, self.group, ctypes.byref(plan), None))
        return plan.value or 0


class DistAttention(Owned):
    """Attention over all ranks. Creation is collective.

    parts: each is a Part, or the number of its rows over all ranks. Queries
    lie on axis 0 of the parts; keys on axis 1 if any part names axis 1, else
    on axis 0 with the queries. mask: None, "causal", or "window" with
    window=(keys before, keys after). documents: the documents of the first
    call (None: each batch item is one document). save: what forward keeps for
    backward, "heads" or "none" (None: "none" with a ceiling of the workspace,
    else "heads"). Strides are {batch, row, head} in bytes, one triple per part.
    Further options are fields of ulyx_dist_attention_params_t by name.
    """

    def __init__(self, comm: Communicator, parts: Sequence[Any], *, heads: int,
                 dim_qk: int, kv_heads: int = 0, dim_v: int = 0, batch: int = 1,
                 dtype: arrays.DType = "bfloat16",
                 param_dtype: Optional[arrays.DType] = None,
                 work: str = "heads", mask: Optional[str] = None,
                 window: Optional[Tuple[Optional[int], Optional[int]]] = None,
                 align: str = "bottom_right", diagonal: int = 0,
                 scale: float = 0.0, softcap: float = 0.0,
                 documents: Any = None, documents_k: Any = None,
                 save: Optional[str] = None, threads: int = 0,
                 timeout: Optional[float] = None, **options: Any) -> None:
        table = PartTable(parts, comm.nranks)
        self.parts = tuple(table.parts)
        self.batch, self.heads = batch, heads
        self.kv_heads = kv_heads or heads
        self.dim_qk, self.dim_v = dim_qk, dim_v or dim_qk
        self.dtype = arrays.dtype_code(dtype)
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        params = _abi.ulyx_dist_attention_params_t(
            batch=batch, heads=heads, kv_heads=kv_heads, dim_qk=dim_qk,
            dim_v=dim_v, dtype=self.dtype,
            param_dtype=0 if param_dtype is None
            else arrays.dtype_code(param_dtype),
            parts=ctypes.addressof(table.array), nparts=len(self.parts),
            work_split=choice(work, WORK, "work"), scale=scale,
            softcap=softcap, save=choice(save, SAVE, "save"), threads=threads,
            timeout_s=timeout or 0, docs_q=docs[0].pointer if docs[0] else None,
            docs_k=docs[1].pointer if docs[1] else None)
        set_mask(params, mask, window, align, diagonal)
        keep: List[Any] = [table, docs]
        self._strides: Dict[str, List[Tuple[int, ...]]] = {}
        for name in _STRIDES:
            given = options.pop(name, None)
            if given is not None:
                triples = np.ascontiguousarray(given, np.int64).reshape(-1, 3)
                keep.append(triples)
                setattr(params, name, triples.ctypes.data)
                self._strides[name] = [tuple(map(int, t)) for t in triples]
        set_fields(params, options, keep)
        self.flags = params.flags
        self.param_dtype = params.param_dtype or (
            _abi.DTYPE_F64 if self.dtype == _abi.DTYPE_F64 else _abi.DTYPE_F32)
        self._own(comm, create(comm, lib.ulyx_dist_attention_create, params),
                  lib.ulyx_dist_attention_destroy)
        workspace, held = ctypes.c_int64(), ctypes.c_int64()
        check(lib.ulyx_dist_attention_get_bytes(
            self.handle, ctypes.byref(workspace), None, ctypes.byref(held)))
        self.workspace_bytes, self.held_bytes = workspace.value, held.value
        self.saved_bytes = self._saved_bytes()
        self._workspace: Optional[np.ndarray] = None
        self._axes = self._axis_parts()
        self._calls = _Call(len(self._axes[0]), len(self._axes[1]))

    def _axis_parts(self) -> Tuple[List[int], List[int]]:
        queries = [i for i, part in enumerate(self.parts) if part.axis == 0]
        keys = [i for i, part in enumerate(self.parts) if part.axis == 1]
        return queries, keys or queries

    # ---- queries -------------------------------------------------------------
    def plan(self, group: int = 0) -> HeadGroupPlan:
        """Rows, heads and positions of this rank; the plan's tensors are q, k,
        v."""
        return HeadGroupPlan(self, group)

    def describe(self) -> str:
        """Head groups, memory, rows of every rank, kernel, plans."""
        return text_of(lib.ulyx_dist_attention_describe, self.handle)

    def times(self) -> Dict[str, Any]:
        """Seconds and bytes of the last call on this rank."""
        found = _abi.ulyx_dist_attention_times_t()
        check(lib.ulyx_dist_attention_get_times(self.handle,
                                                ctypes.byref(found)))
        return {name: getattr(found, name) for name in found._names_[1:]}

    def saved_tensors(self) -> List[Dict[str, Any]]:
        """The tensors of which `saved` consists: name, head group, dtype,
        offset and bytes."""
        size, count = ctypes.sizeof(_abi.ulyx_saved_tensor_t), ctypes.c_int64()
        check(lib.ulyx_dist_attention_get_saved(self.handle, 0, size, None,
                                                ctypes.byref(count)))
        found = (_abi.ulyx_saved_tensor_t * max(count.value, 1))()
        check(lib.ulyx_dist_attention_get_saved(
            self.handle, count.value, size, found, ctypes.byref(count)))
        return [{"name": t.name.decode(), "group": t.group, "dtype": t.dtype,
                 "offset": t.offset, "bytes": t.bytes}
                for t in found[:count.value]]

    def update(self, documents: Any = None, documents_k: Any = None, *,
               stream: Any = None) -> None:
        """Sets the documents from the next call on. Local; all ranks must give
        the same documents. A backward call needs the documents of its forward
        call."""
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        check(lib.ulyx_dist_attention_update(
            self.handle, docs[0].pointer if docs[0] else None,
            docs[1].pointer if docs[1] else None, stream))

    def update_rows(self, rows: Sequence[int],
                    splits: Optional[Sequence[Optional[Sequence[int]]]] = None,
                    documents: Any = None, documents_k: Any = None) -> None:
        """Sets the rows, within the parts' row_capacity, and the documents
        from the next call on. Local; all ranks must give the same, and the next
        call compares what they gave. rows: one entry per part; splits: one
        entry per part, where creation had any. saved_bytes becomes that of the
        new rows. A backward call needs the rows of its forward call."""
        table = RowTable(self.parts, self.comm.nranks, rows, splits)
        docs = arrays.Docs.of(documents), arrays.Docs.of(documents_k)
        check(lib.ulyx_dist_attention_update_rows(
            self.handle, table.rows_at, table.splits_at,
            docs[0].pointer if docs[0] else None,
            docs[1].pointer if docs[1] else None, None))
        self.parts = table.parts
        self.saved_bytes = self._saved_bytes()

    def _saved_bytes(self) -> int:
        saved = ctypes.c_int64()
        check(lib.ulyx_dist_attention_get_saved_bytes(self.handle,
                                                      ctypes.byref(saved)))
        return saved.value

    # ---- calls ---------------------------------------------------------------
    def _shapes(self, axis: int, heads: int, dim: int) -> List[Tuple[int, ...]]:
        plan = self.plan()
        return [(self.batch, plan.seq_rows(part), heads, dim)
                for part in self._axes[axis]]

    def _declared(self, name: str, count: int) -> List[Tuple[int, ...]]:
        """The strides that a tensor's parts got at creation. A gradient has the
        strides of its tensor, except dout where dout_strides were given."""
        dense: List[Tuple[int, ...]] = [(0, 0, 0)] * count
        if name == "dout":
            return self._strides.get(
                "dout_strides", self._strides.get("out_strides", dense))
        return self._strides.get(name.lstrip("d") + "_strides", dense)

    def _tensors(self, given: Any, name: str, axis: int, heads: int, dim: int,
                 moved: Dict[str, Any], output: bool = False
                 ) -> Tuple[List[Any], List[int]]:
        """Returns (arrays, addresses) of a tensor with one array per part. If
        any of the arrays does not lie as at creation, `moved` gets the strides
        of all of them. An output that is None gets new arrays."""
        shapes = self._shapes(axis, heads, dim)
        if given is None and output:
            given = [np.empty(shape, arrays.numpy_dtype(self.dtype))
                     for shape in shapes]
        elif not isinstance(given, (list, tuple)) or \
                isinstance(given, arrays.Array):
            given = [given]
        if len(given) != len(shapes):
            raise errors.InvalidArgumentError(
                f"{name} has {len(given)} tensors, not {len(shapes)}")
        parts = []
        for i, (tensor, shape) in enumerate(zip(given, shapes)):
            found = arrays.array(tensor, f"{name}[{i}]", self.dtype, output)
            if found.shape != shape:
                raise errors.InvalidArgumentError(
                    f"{name}[{i}] has the shape {found.shape}, not {shape}")
            parts.append(found)
        if not all(part.lies_by(strides) for part, strides in
                   zip(parts, self._declared(name, len(parts)))):
            for i, part in enumerate(parts):
                part.check_rows(f"{name}[{i}]")
            moved[name] = [part.strides[:3] for part in parts]
        return list(given), [part.address for part in parts]

    def _params(self, given: Any, name: str) -> Optional[arrays.Array]:
        if given is None:
            return None
        found = arrays.dense(given, name, self.param_dtype)
        if found.shape != (self.heads,):
            raise errors.InvalidArgumentError(
                f"{name} has the shape {found.shape}, not ({self.heads},)")
        return found

    def workspace(self) -> np.ndarray:
        """The workspace of this object, made at the first call."""
        if self._workspace is None:
            self._workspace = aligned(self.workspace_bytes)
        return self._workspace

    @staticmethod
    def _alone(given: Any, result: List[Any]) -> Any:
        """With one part, the array itself in place of a list of one, unless
        the caller has given such a list."""
        return result if isinstance(given, (list, tuple)) or len(result) > 1 \
            else result[0]

    def forward(self, q: Any, k: Any, v: Any, out: Any = None, *,
                sinks: Any = None, alibi_slopes: Any = None,
                lse: Any = None, saved: Any = None, documents: Any = None,
                documents_k: Any = None) -> Tuple[Any, Any]:
        """Returns (out, saved). q, k, v and out are one array, or a list of one
        array per part. Their strides may differ from those at creation, and
        from call to call, if the elements of a row and head are adjacent. saved
        is what backward needs. Where out or saved is not given, new memory is
        made for it (for out, dense). documents: of this call and the calls
        after it; None: unchanged."""
        moved: Dict[str, Any] = {}
        keep_q, q_at = self._tensors(q, "q", 0, self.heads, self.dim_qk, moved)
        keep_k, k_at = self._tensors(k, "k", 1, self.kv_heads, self.dim_qk,
                                     moved)
        keep_v, v_at = self._tensors(v, "v", 1, self.kv_heads, self.dim_v,
                                     moved)
        made, out_at = self._tensors(out, "out", 0, self.heads, self.dim_v,
                                     moved, True)
        sinks, slopes = self._params(sinks, "sinks"), \
            self._params(alibi_slopes, "alibi_slopes")
        if saved is None:
            saved = aligned(self.saved_bytes)
        kept = arrays.dense(saved, "saved", output=True)
        lses = None if lse is None else [
            arrays.dense(one, "lse", output=True).address for one in
            (lse if isinstance(lse, (list, tuple)) else [lse])]
        self.forward_addresses(
            q_at, k_at, v_at, out_at, kept.address, kept.bytes,
            self.workspace().ctypes.data, self.workspace_bytes, lse=lses,
            sinks=sinks.address if sinks else None,
            alibi_slopes=slopes.address if slopes else None,
            documents=arrays.Docs.of(documents),
            documents_k=arrays.Docs.of(documents_k), strides=Moved(moved))
        del keep_q, keep_k, keep_v
        return self._alone(q, made), saved

    def backward(self, dout: Any, out: Any, saved: Any, q: Any = None,
                 k: Any = None, v: Any = None, *, sinks: Any = None,
                 alibi_slopes: Any = None, d_sink: Any = None,
                 documents: Any = None, documents_k: Any = None
                 ) -> Tuple[Any, Any, Any]:
        """Returns (dq, dk, dv), dense. d_sink, where given, gets this rank's
        share of the gradient of the sinks. q, k, v are needed with save="none"
        only. dout, out, q, k and v are given as in forward, but their strides
        need not be those of the forward call. documents: those of the forward
        call, if a call or an update since then has set others."""
        moved: Dict[str, Any] = {}
        _, dout_at = self._tensors(dout, "dout", 0, self.heads, self.dim_v,
                                   moved)
        _, out_at = self._tensors(out, "out", 0, self.heads, self.dim_v, moved)
        inputs: List[Optional[List[int]]] = []
        if (q is None) != (k is None) or (q is None) != (v is None):
            raise errors.InvalidArgumentError(
                "backward takes all of q, k and v, or none")
        for given, name, axis, heads, dim in (
                (q, "q", 0, self.heads, self.dim_qk),
                (k, "k", 1, self.kv_heads, self.dim_qk),
                (v, "v", 1, self.kv_heads, self.dim_v)):
            inputs.append(None if given is None else self._tensors(
                given, name, axis, heads, dim, moved)[1])
        dq, dq_at = self._tensors(None, "dq", 0, self.heads, self.dim_qk, moved,
                                  True)
        dk, dk_at = self._tensors(None, "dk", 1, self.kv_heads, self.dim_qk,
                                  moved, True)
        dv, dv_at = self._tensors(None, "dv", 1, self.kv_heads, self.dim_v,
                                  moved, True)
        sinks, slopes = self._params(sinks, "sinks"), \
            self._params(alibi_slopes, "alibi_slopes")
        share = self._params(d_sink, "d_sink")
        kept = arrays.dense(saved, "saved")
        self.backward_addresses(
            inputs[0], inputs[1], inputs[2], out_at, dout_at, dq_at, dk_at,
            dv_at, kept.address, kept.bytes, self.workspace().ctypes.data,
            self.workspace_bytes, sinks=sinks.address if sinks else None,
            alibi_slopes=slopes.address if slopes else None,
            d_sink=share.address if share else None,
            documents=arrays.Docs.of(documents),
            documents_k=arrays.Docs.of(documents_k), strides=Moved(moved))
        return (self._alone(dout, dq), self._alone(dout, dk),
                self._alone(dout, dv))

    def forward_addresses(self, q: Any, k: Any, v: Any, out: Any, saved: int,
                          saved_bytes: int, workspace: int,
                          workspace_bytes: int, sinks: Optional[int] = None,
                          alibi_slopes: Optional[int] = None,
                          lse: Any = None, stream: Any = None,
                          documents: Optional[arrays.Docs] = None,
                          documents_k: Optional[arrays.Docs] = None,
                          strides: Moved = NOT_MOVED) -> None:
        """forward() on sequences of bare addresses, which only the library
        checks. strides: those of the tensors that do not lie as at creation."""
        handle = self.handle
        if not self._lock.acquire(False):
            self._refuse_second()
        try:
            slots, call = self._calls, self._calls.forward
            slots.q[:], slots.k[:], slots.v[:], slots.out[:] = q, k, v, out
            if lse is None:
                call.lse = None
            else:
                slots.lse[:] = lse
                call.lse = ctypes.addressof(slots.lse)
            call.sinks, call.alibi_slopes = sinks, alibi_slopes
            call.workspace, call.workspace_bytes = workspace, workspace_bytes
            call.saved, call.saved_bytes = saved, saved_bytes
            call.docs_q = None if documents is None else documents.pointer
            call.docs_k = None if documents_k is None else documents_k.pointer
            if strides is not slots.moved[0]:
                slots.move(0, strides)
            status = waiting(self._parent, lib.ulyx_dist_attention_forward,
                             handle, slots.forward_at, stream)
            if status:
                check(status)
        finally:
            self._lock.release()

    def backward_addresses(self, q: Any, k: Any, v: Any, out: Any, dout: Any,
                           dq: Any, dk: Any, dv: Any, saved: int,
                           saved_bytes: int, workspace: int,
                           workspace_bytes: int,
                           sinks: Optional[int] = None,
                           alibi_slopes: Optional[int] = None,
                           d_sink: Optional[int] = None, stream: Any = None,
                           documents: Optional[arrays.Docs] = None,
                           documents_k: Optional[arrays.Docs] = None,
                           strides: Moved = NOT_MOVED) -> None:
        """backward() on sequences of bare addresses, which only the library
        checks; q, k and v may be None together. strides: as forward's."""
        handle = self.handle
        if not self._lock.acquire(False):
            self._refuse_second()
        try:
            slots, call = self._calls, self._calls.backward
            if q is None or k is None or v is None:
                call.q = call.k = call.v = None
            else:
                slots.q[:], slots.k[:], slots.v[:] = q, k, v
                call.q, call.k, call.v = (
                    ctypes.addressof(slot)
                    for slot in (slots.q, slots.k, slots.v))
            slots.out[:], slots.dout[:] = out, dout
            slots.dq[:], slots.dk[:], slots.dv[:] = dq, dk, dv
            call.sinks, call.alibi_slopes = sinks, alibi_slopes
            call.d_sink = d_sink
            call.workspace, call.workspace_bytes = workspace, workspace_bytes
            call.saved, call.saved_bytes = saved, saved_bytes
            call.docs_q = None if documents is None else documents.pointer
            call.docs_k = None if documents_k is None else documents_k.pointer
            if strides is not slots.moved[1]:
                slots.move(1, strides)
            status = waiting(self._parent, lib.ulyx_dist_attention_backward,
                             handle, slots.backward_at, stream)
            if status:
                check(status)
        finally:
            self._lock.release()

    def refuse(self, backward: bool, reason: str, stream: Any = None) -> None:
        """Takes this rank's place in a call that its peers make and that this
        rank cannot make. The peers get PeerRefusedError with the reason (at
        most 159 bytes of it) and need not wait until their deadlines. Returns
        once the peers are notified."""
        handle = self.handle
        if not self._lock.acquire(False):
            self._refuse_second()
        try:
            check(waiting(
                self._parent, lib.ulyx_dist_attention_refuse, handle,
                int(backward), reason.encode(), stream))
        except errors.InvalidArgumentError:
            pass  # the status of a call that has been refused
        finally:
            self._lock.release()


class _Call:
    """The structs of a call. Their arrays of pointers stay at the same
    addresses."""

    def __init__(self, queries: int, keys: int) -> None:
        pointers, others = ctypes.c_void_p * queries, ctypes.c_void_p * keys
        self.q, self.k, self.v = pointers(), others(), others()
        self.out, self.lse, self.dout = pointers(), pointers(), pointers()
        self.dq, self.dk, self.dv = pointers(), others(), others()
        self.forward = _abi.ulyx_dist_attention_forward_t()
        self.backward = _abi.ulyx_dist_attention_backward_t()
        for call, names in ((self.forward, ("q", "k", "v", "out")),
                            (self.backward, ("out", "dout", "dq", "dk", "dv"))):
            for name in names:
                setattr(call, name, ctypes.addressof(getattr(self, name)))
        self.forward_at = ctypes.addressof(self.forward)
        self.backward_at = ctypes.addressof(self.backward)
        self.moved = [NOT_MOVED, NOT_MOVED]  # what the structs contain

    def move(self, backward: int, strides: Moved) -> None:
        """Sets the strides of the next call, which replace those of the last
        one."""
        call = self.backward if backward else self.forward
        for field in self.moved[backward].fields:
            setattr(call, field, None)
        self.moved[backward] = strides
        for field, held in self.moved[backward].fields.items():
            setattr(call, field, ctypes.addressof(held))
