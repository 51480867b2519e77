# SPDX-License-Identifier: Apache-2.0
"""Distributed attention with gradients: the layer around ulyx.DistAttention.

In eager mode attention is the autograd.Function below. In compiled code it is an
operator of torch.library (_operators.py), because dynamo would trace into a
Function and lose its gradients. Both run `forward` and `backward`.
"""
from typing import (Any, Callable, Dict, List, NamedTuple, Optional, Sequence,
                    Tuple)

import torch

from ..arrays import Docs
from ..communicator import Communicator
from ..dist_attention import NOT_MOVED, DistAttention, Moved
from ..errors import InvalidArgumentError, UlyxError
from ..plan import Part
from . import _arguments, _device, _names, _tensors
from ._cache import Cache, Capacity, Lengths, Spec


class Kind(NamedTuple):
    """The key of an attention, without lengths."""

    batch: int
    heads: int
    kv_heads: int
    dim_qk: int
    dim_v: int
    dtype: int
    mask: str  # "none", "causal", "window"
    left: int
    right: int
    align: str
    scale: float
    softcap: float
    order: str
    uneven: bool  # whether splits are given
    cross: bool  # whether keys have rows of their own
    max_docs: int
    # on device memory, where the rows of an object do not change
    lengths: Optional[Lengths] = None


class Call(NamedTuple):
    """One call: what it runs on, and its arguments other than tensors. Without
    documents, calls with the same shapes and options share one Call."""

    comm: Communicator
    cache: Cache
    spec: Spec
    docs: Optional[Docs]
    docs_k: Optional[Docs]
    layouts: Tuple[Optional[_tensors.Strides], ...]  # of q, k, v; [b, s, h, d]
    local: Tuple[int, int]  # rows of q and of k on this rank
    axes: _tensors.Axes = None  # the axes that all tensors of the call have swapped


class New(NamedTuple):
    """Makes the tensors that calls with swapped axes return."""

    out: Callable[[], torch.Tensor]
    grads: Tuple[Callable[[], torch.Tensor], ...]  # for q, k, v
    dense: _tensors.Strides  # strides of out


class Entry:
    """An attention of the library, and how this rank's tensors lie in it, for
    the lengths of one call, or for all lengths up to a capacity."""

    def __init__(self, call: Call, capacity: Capacity,
                 layouts: Sequence[_tensors.Strides]) -> None:
        kind: Any = call.spec.kind
        self.comm, self.kind = call.comm, kind
        self.lengths, self.docs, self.docs_k = \
            call.spec.lengths, call.docs, call.docs_k
        self.whole: Any = None, None  # documents, as check_documents() had them
        self.dtype = _tensors.TORCH_DTYPES[kind.dtype]
        # Where rows change, also by the documents of zigzag_docs, `dense` is
        # valid for all of them, and calls pass strides that depend on the rows.
        self.moving = capacity is not None or kind.order == "zigzag_docs"
        self.given = [
            None if self.moving and not _tensors.of_any_rows(
                layout, kind.batch) else layout for layout in layouts]
        strides: Any = {
            f"{name}_strides": [(0, 0, 0) if layout is None else
                                _tensors.in_bytes(layout, self.dtype)]
            for name, layout in zip("qkv", self.given)}
        self.dist = DistAttention(
            call.comm, self._parts(capacity), heads=kind.heads,
            kv_heads=kind.kv_heads, dim_qk=kind.dim_qk, dim_v=kind.dim_v,
            batch=kind.batch, dtype=kind.dtype, mask=kind.mask,
            window=(kind.left, kind.right) if kind.mask == "window" else None,
            align=kind.align, scale=kind.scale, softcap=kind.softcap,
            documents=call.docs, documents_k=call.docs_k,
            max_docs=kind.max_docs, threads=torch.get_num_threads(),
            save="heads", head_memory=_tensors.head_memory(call.comm),
            **strides)
        self._measure()

    def _parts(self, capacity: Capacity) -> List[Part]:
        rows, splits = self.lengths
        return [Part(count, axis=axis, order=self.kind.order,
                     splits=splits if axis == 0 else None,
                     row_capacity=0 if capacity is None else capacity[axis])
                for axis, count in enumerate(rows)]

    def _measure(self) -> None:
        """Computes what follows from rows and documents: this rank's rows, and
        the tensors made from them."""
        kind, plan = self.kind, self.dist.plan()
        rows = plan.seq_rows(0)
        kv_rows = plan.seq_rows(1) if kind.cross else rows
        self.local = rows, kv_rows
        out_shape = (kind.batch, rows, kind.heads, kind.dim_v)
        shapes = ((kind.batch, rows, kind.heads, kind.dim_qk),
                  (kind.batch, kv_rows, kind.kv_heads, kind.dim_qk),
                  (kind.batch, kv_rows, kind.kv_heads, kind.dim_v))
        dense = [_tensors.dense_strides(shape) for shape in shapes]
        self.layouts = tuple(
            usual if layout is None else
            (usual[0], *layout[1:]) if self.moving else layout
            for layout, usual in zip(self.given, dense))
        self.shapes = (out_shape, *shapes)
        self.new_saved = _tensors.block_maker(self.comm, self.dist.saved_bytes)
        self.new: Dict[_tensors.Axes, New] = {}
        self.moves: Dict[Any, Moved] = {}  # for calls whose tensors lie otherwise

    def new_of(self, axes: _tensors.Axes) -> New:
        """Makes a New once for the present rows."""
        found = self.new.get(axes)
        if found is None:
            dense = _tensors.dense_strides(self.shapes[0])
            out, *grads = (
                _tensors.maker(self.comm, shape, layout, self.dtype, axes)
                for shape, layout in zip(self.shapes, (dense, *self.layouts)))
            found = self.new[axes] = New(
                out, tuple(grads), _tensors.swapped((*dense, 1), axes))
        return found

    def inputs(self, call: Call, qkv: Sequence[torch.Tensor]
               ) -> Tuple[Sequence[torch.Tensor], Moved]:
        """For a call whose q, k, v have other strides than this object's: returns
        the tensors and their strides. A tensor that the library cannot take as it
        lies is copied."""
        moved = self.moves.get(call.layouts)
        if moved is not None:
            return qkv, moved
        strides: Dict[str, Any] = {}
        qkv = [_tensors.told(name, _tensors.bshd(tensor, call.axes), layout,
                             usual, self.comm, strides)
               for name, tensor, layout, usual in
               zip("qkv", qkv, call.layouts, self.layouts)]
        moved = Moved(strides)
        if None not in call.layouts:
            self.remember(call.layouts, moved)
        return qkv, moved

    def outputs(self, axes: _tensors.Axes, dout: torch.Tensor,
                out: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, Moved]:
        """As inputs(), for dout and out of backward where they are not dense; hooks
        may have moved out since forward."""
        key = axes, dout.stride(), out.stride()
        moved = self.moves.get(key)
        if moved is not None:
            return dout, out, moved
        strides: Dict[str, Any] = {}
        dense = _tensors.dense_strides(self.shapes[0])
        whole = [_tensors.bshd(tensor, axes) for tensor in (dout, out)]
        layouts = [_tensors.layout_on(self.comm, tensor) for tensor in whole]
        dout, out = (
            _tensors.told(name, tensor, layout, dense, self.comm, strides)
            for name, tensor, layout in zip(("dout", "out"), whole, layouts))
        moved = Moved(strides)
        if None not in layouts:
            self.remember(key, moved)
        return dout, out, moved

    def remember(self, key: Any, moved: Moved) -> None:
        """Keeps the strides of a call, on this rank alone. No other rank depends
        on the entry, so it may be forgotten at any time."""
        if len(self.moves) >= 256:
            self.moves.clear()
        self.moves[key] = moved

    def follow(self, call: Call) -> Tuple[Optional[Docs], Optional[Docs]]:
        """Gives the object the rows and documents of the call. Returns the
        documents that the call itself must pass, if they differ from those of
        the last call: backward needs those that forward had."""
        lengths, docs, docs_k = call.spec.lengths, call.docs, call.docs_k
        if lengths != self.lengths:
            self.dist.update_rows(lengths.rows, lengths.splits_of_parts, docs,
                                  docs_k)
        elif docs == self.docs and docs_k == self.docs_k:
            return None, None
        elif docs is not None and self.kind.order != "zigzag_docs":
            return docs, docs_k
        else:
            self.dist.update(docs, docs_k, stream=_device.stream_of(self.comm))
        self.lengths, self.docs, self.docs_k = lengths, docs, docs_k
        self._measure()
        return None, None

    def check_rows(self, local: Tuple[int, int]) -> None:
        """Checks that this rank has the rows that it must have."""
        if local == self.local:
            return
        rows, nranks = self.lengths.rows, self.comm.nranks
        raise InvalidArgumentError(
            f"rank {self.comm.rank}: q has {local[0]} rows and k {local[1]}; of "
            f"{rows[0]} rows over {nranks} ranks this one has {self.local[0]}"
            + (f", and {self.local[1]} of {rows[1]} rows of keys"
               if self.kind.cross else "")
            + ("" if self.lengths.splits else
               ": another division is given by splits="))

    def check_documents(self, docs: Optional[Docs],
                        docs_k: Optional[Docs]) -> None:
        """Checks that cumulative lengths cover all tokens. The library itself would
        accept others, and give the tokens outside of documents zeros."""
        _check_documents(docs, docs_k, self.kind.batch, self.lengths)
        self.whole = docs, docs_k

    def refuse(self, backward: bool, error: Exception) -> None:
        """Takes this rank's place in a call that it cannot make: the peers,
        which would otherwise wait, get the error's text."""
        try:
            self.dist.refuse(backward, _names.reason_of(error),
                             _device.stream_of(self.comm))
        except UlyxError:
            pass  # the caller raises its own error


def max_docs(docs: Optional[Docs], docs_k: Optional[Docs]) -> int:
    """Returns how many documents to reserve, for later calls too: a power of
    two."""
    if docs is None and docs_k is None:
        return 0
    count = max(d.count for d in (docs, docs_k) if d is not None)
    return max(64, 1 << max(0, count - 1).bit_length())


def entry_of(call: Call, qkv: Sequence[torch.Tensor]) -> Entry:
    """Returns the attention of a call, and makes it if there is none."""
    def make(capacity: Capacity) -> Entry:
        return Entry(call, capacity, [
            layout or _tensors.dense_strides(
                _tensors.swapped(tuple(t.shape), call.axes))
            for layout, t in zip(call.layouts, qkv)])
    return call.cache.find(call.spec, make)  # type: ignore[no-any-return]


def _check_documents(docs: Optional[Docs], docs_k: Optional[Docs], batch: int,
                     lengths: Lengths) -> None:
    for name, table, rows in (("documents", docs, lengths.rows[0]),
                              ("documents_k", docs_k, lengths.rows[-1])):
        if table is not None:
            _arguments.check_documents(table, name, batch, rows)


def _explain(error: UlyxError, call: Call) -> None:
    """Puts an error into the caller's words. Documents that end beyond the tokens
    are the library's to refuse, when the object is made."""
    kind: Any = call.spec.kind
    if isinstance(error, InvalidArgumentError):
        try:
            _check_documents(call.docs, call.docs_k, kind.batch,
                             call.spec.lengths)
        except InvalidArgumentError as documents:
            error.args = documents.args
    _names.explain(error, _names.ATTENTION, call.comm, call.spec.lengths,
                   call.local[0])


def forward(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            sinks: Optional[torch.Tensor] = None,
            slopes: Optional[torch.Tensor] = None, *, room: int = 0
            ) -> Tuple[torch.Tensor, torch.Tensor, Entry]:
    """Returns (out, saved, entry) of [b, s, h, d] tensors, or of tensors whose
    axes are swapped as in the call. room: bytes of saved, if the caller has
    computed them."""
    comm, cache = call.comm, call.cache
    cache.enter()
    try:
        moved = NOT_MOVED
        last, entry = cache.last
        if last is not call.spec:
            entry = entry_of(call, (q, k, v))
        dist, docs, docs_k = entry.dist, None, None
        try:
            if entry.docs is not call.docs or entry.docs_k is not call.docs_k \
                    or entry.lengths is not call.spec.lengths:
                docs, docs_k = entry.follow(call)
            if call.local != entry.local:
                entry.check_rows(call.local)
            if call.docs is not entry.whole[0] or \
                    call.docs_k is not entry.whole[1]:
                entry.check_documents(call.docs, call.docs_k)
            if call.layouts != entry.layouts:
                (q, k, v), moved = entry.inputs(call, (q, k, v))
            saved = _tensors.promised(comm, room, dist.saved_bytes) if room \
                else entry.new_saved()
            out = entry.new_of(call.axes).out()
            workspace = cache.workspace(dist.workspace_bytes)
        except Exception as error:
            entry.refuse(False, error)
            raise
        dist.forward_addresses(
            (q.data_ptr(),), (k.data_ptr(),), (v.data_ptr(),),
            (out.data_ptr(),), saved.data_ptr(), dist.saved_bytes, workspace,
            dist.workspace_bytes, None if sinks is None else sinks.data_ptr(),
            None if slopes is None else slopes.data_ptr(), None,
            _device.stream_of(comm) if comm.cuda else None, docs, docs_k, moved)
        if docs is not None:
            entry.docs, entry.docs_k = docs, docs_k
    except UlyxError as error:
        _explain(error, call)
        raise
    finally:
        cache.leave()
    return out, saved, entry


def backward(call: Call, entry: Entry, dout: torch.Tensor, out: torch.Tensor,
             saved: torch.Tensor, saved_at: int = 0,
             sinks: Optional[torch.Tensor] = None,
             slopes: Optional[torch.Tensor] = None
             ) -> Tuple[Optional[torch.Tensor], ...]:
    """Returns (dq, dk, dv, d_sinks); d_sinks is this rank's share. saved_at:
    where forward has put saved, which hooks may have moved since."""
    comm, cache = call.comm, call.cache
    cache.enter()
    try:
        moved = NOT_MOVED
        dist, docs, docs_k = entry.dist, None, None
        try:
            if entry.docs is not call.docs or entry.docs_k is not call.docs_k \
                    or entry.lengths is not call.spec.lengths:
                docs, docs_k = entry.follow(call)
            _, (new_q, new_k, new_v), dense = entry.new_of(call.axes)
            dq, dk, dv = new_q(), new_k(), new_v()
            if dout.stride() != dense or out.stride() != dense or comm.cuda:
                dout, out, moved = entry.outputs(call.axes, dout, out)
            if saved.data_ptr() != saved_at:
                saved = _tensors.in_place(comm, saved)
            d_sinks = None if sinks is None else _tensors.like(comm, sinks)
            workspace = cache.workspace(dist.workspace_bytes)
        except Exception as error:
            entry.refuse(True, error)
            raise
        dist.backward_addresses(
            None, None, None, (out.data_ptr(),), (dout.data_ptr(),),
            (dq.data_ptr(),), (dk.data_ptr(),), (dv.data_ptr(),),
            saved.data_ptr(), dist.saved_bytes, workspace, dist.workspace_bytes,
            None if sinks is None else sinks.data_ptr(),
            None if slopes is None else slopes.data_ptr(),
            None if d_sinks is None else d_sinks.data_ptr(),
            _device.stream_of(comm) if comm.cuda else None, docs, docs_k, moved)
        if docs is not None:
            entry.docs, entry.docs_k = docs, docs_k
    except UlyxError as error:
        _explain(error, call)
        raise
    finally:
        cache.leave()
    return dq, dk, dv, d_sinks


def _gradients(ctx: Any, dout: torch.Tensor) -> Any:
    out, saved, *extra = ctx.saved_tensors
    grads = backward(ctx.call, ctx.entry, dout, out, saved,
                     ctx.saved_at, *extra)
    return (None, *grads, None) if extra else (None, *grads[:3])


class Attention(torch.autograd.Function):
    """apply(call, q, k, v), or also with sinks and slopes, one of which may be
    None. Each argument costs time, and most calls have neither."""

    @staticmethod
    def forward(ctx: Any, call: Call, q: torch.Tensor, k: torch.Tensor,
                v: torch.Tensor, *extra: Optional[torch.Tensor]
                ) -> torch.Tensor:
        out, saved, ctx.entry = forward(call, q, k, v, *extra)
        ctx.save_for_backward(out, saved, *extra)
        ctx.call, ctx.saved_at = call, saved.data_ptr()
        return out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            return _tensors.once(_gradients, ctx, dout)
        return _gradients(ctx, dout)
