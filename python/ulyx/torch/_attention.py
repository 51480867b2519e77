# SPDX-License-Identifier: Apache-2.0
"""Distributed attention with gradients: the layer around ulyx.DistAttention.

In eager mode it is the autograd.Function below; in compiled code an operator of
torch.library (_operators.py), for a Function that dynamo looks into there would
lose its gradients. Both run `forward` and `backward`.
"""
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..arrays import Docs
from ..communicator import Communicator
from ..dist_attention import DistAttention
from ..errors import InvalidArgumentError, UlyxError
from ..plan import Part
from . import _tensors
from ._cache import Cache


class Spec(NamedTuple):
    """What an attention is made for: nothing of it is a rank's own."""

    batch: int
    rows: int
    kv_rows: int  # -1: the queries' own
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
    splits: Optional[Tuple[int, ...]]
    max_docs: int


class Entry:
    """An attention of the library, and how this rank's tensors lie in it."""

    def __init__(self, comm: Communicator, spec: Spec, docs: Optional[Docs],
                 docs_k: Optional[Docs], layouts: Sequence[Any]) -> None:
        self.comm, self.spec = comm, spec
        self.docs, self.docs_k = docs, docs_k
        self.dtype = _tensors.TORCH_DTYPES[spec.dtype]
        # Of zigzag_docs the rows change with the documents: dense is what holds
        # for all of them, and whatever lies otherwise is copied.
        self.given = [None if spec.order == "zigzag_docs" else layout
                      for layout in layouts]
        strides: Any = {
            f"{name}_strides": [(0, 0, 0) if layout is None else tuple(
                self.dtype.itemsize * stride for stride in layout)]
            for name, layout in zip("qkv", self.given)}
        parts = [Part(spec.rows, order=spec.order, splits=spec.splits)]
        if spec.kv_rows >= 0:
            parts.append(Part(spec.kv_rows, axis=1, order=spec.order))
        self.dist = DistAttention(
            comm, parts, heads=spec.heads, kv_heads=spec.kv_heads,
            dim_qk=spec.dim_qk, dim_v=spec.dim_v, batch=spec.batch,
            dtype=spec.dtype, mask=spec.mask,
            window=(spec.left, spec.right) if spec.mask == "window" else None,
            align=spec.align, scale=spec.scale, softcap=spec.softcap,
            documents=docs, documents_k=docs_k, max_docs=spec.max_docs,
            threads=torch.get_num_threads(), save="heads",
            head_memory=_abi.POINTER_WINDOW, **strides)
        self._measure()

    def _measure(self) -> None:
        """Rows of this rank, which zigzag_docs makes depend on documents, and
        the tensors that come of them."""
        spec, plan = self.spec, self.dist.plan()
        self.rows = plan.seq_rows(0)
        self.kv_rows = self.rows if spec.kv_rows < 0 else plan.seq_rows(1)
        out_shape = (spec.batch, self.rows, spec.heads, spec.dim_v)
        shapes = ((spec.batch, self.rows, spec.heads, spec.dim_qk),
                  (spec.batch, self.kv_rows, spec.kv_heads, spec.dim_qk),
                  (spec.batch, self.kv_rows, spec.kv_heads, spec.dim_v))
        self.layouts = tuple(layout or _tensors.dense_strides(shape)
                             for layout, shape in zip(self.given, shapes))
        self.out_dense = (*_tensors.dense_strides(out_shape), 1)
        self.new_out = _tensors.maker(
            self.comm, out_shape, self.out_dense[:3], self.dtype)
        self.new_grads = [
            _tensors.maker(self.comm, shape, layout, self.dtype)
            for shape, layout in zip(shapes, self.layouts)]

    def set_documents(self, docs: Optional[Docs],
                      docs_k: Optional[Docs]) -> None:
        """The tables of the next call, which backward needs as forward had
        them."""
        if self.docs != docs or self.docs_k != docs_k:
            self.dist.update(docs, docs_k)
            if self.spec.order == "zigzag_docs":
                self._measure()
        self.docs, self.docs_k = docs, docs_k

    def check_rows(self, q: torch.Tensor, k: torch.Tensor) -> None:
        """This rank has the rows that it is to have."""
        if q.shape[1] == self.rows and k.shape[1] == self.kv_rows:
            return
        raise InvalidArgumentError(
            f"rank {self.comm.rank}: q has {q.shape[1]} rows and k "
            f"{k.shape[1]}; of {self.spec.rows} rows over {self.comm.nranks} "
            f"ranks this one has {self.rows}"
            + ("" if self.spec.kv_rows < 0 else
               f", and {self.kv_rows} of {self.spec.kv_rows} rows of keys"))

    def refuse(self, backward: bool) -> None:
        """Takes this rank's place in a call that it cannot make: without a
        workspace the library refuses it, and tells the peers, who would wait."""
        nothing = (0,)
        try:
            if backward:
                self.dist.backward_addresses(
                    None, None, None, nothing, nothing, nothing, nothing,
                    nothing, 0, 0, 0, 0)
            else:
                self.dist.forward_addresses(nothing, nothing, nothing, nothing,
                                            0, 0, 0, 0)
        except UlyxError:
            pass


def max_docs(docs: Optional[Docs], docs_k: Optional[Docs]) -> int:
    """Room for the documents of later calls too: a power of two."""
    if docs is None and docs_k is None:
        return 0
    count = max(d.count for d in (docs, docs_k) if d is not None)
    return max(64, 1 << max(0, count - 1).bit_length())


class Call(NamedTuple):
    """One call: what it is on and what it takes beside its tensors. Calls with
    the same shapes and options share one where they have no documents."""

    comm: Communicator
    cache: Cache
    spec: Spec
    docs: Optional[Docs]
    docs_k: Optional[Docs]
    layouts: Tuple[Optional[_tensors.Strides], ...]  # of q, k, v


def entry_of(call: Call, qkv: Sequence[torch.Tensor]) -> Entry:
    """The attention of a call, made where there is none."""
    entry: Optional[Entry] = call.cache.find(call.spec)
    if entry is None:
        entry = Entry(call.comm, call.spec, call.docs, call.docs_k, [
            layout or _tensors.dense_strides(tuple(t.shape))
            for layout, t in zip(call.layouts, qkv)])
        call.cache.keep(call.spec, entry)
    return entry


def forward(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            sinks: Optional[torch.Tensor] = None,
            slopes: Optional[torch.Tensor] = None, *, room: int = 0
            ) -> Tuple[torch.Tensor, torch.Tensor, Entry]:
    """(out, saved, entry) of [b, s, h, d] tensors. room: bytes of saved, where
    the caller has promised how many they are."""
    comm, cache, _, docs, docs_k, layouts = call
    cache.enter()
    try:
        entry = entry_of(call, (q, k, v))
        dist = entry.dist
        try:
            if entry.docs is not docs or entry.docs_k is not docs_k:
                entry.set_documents(docs, docs_k)
            entry.check_rows(q, k)
            if layouts != entry.layouts:
                q, k, v = (_tensors.placed(tensor, layout, comm)
                           for tensor, layout in
                           zip((q, k, v), entry.layouts))
            saved = _tensors.promised(comm, room, dist.saved_bytes) if room \
                else _tensors.block(comm, dist.saved_bytes)
            out = entry.new_out()
            workspace = cache.workspace(dist.workspace_bytes)
        except Exception:
            entry.refuse(False)
            raise
        dist.forward_addresses(
            (q.data_ptr(),), (k.data_ptr(),), (v.data_ptr(),),
            (out.data_ptr(),), saved.data_ptr(), dist.saved_bytes, workspace,
            dist.workspace_bytes, None if sinks is None else sinks.data_ptr(),
            None if slopes is None else slopes.data_ptr())
    finally:
        cache.leave()
    return out, saved, entry


def backward(call: Call, entry: Entry, dout: torch.Tensor, out: torch.Tensor,
             saved: torch.Tensor, saved_at: int = 0,
             sinks: Optional[torch.Tensor] = None,
             slopes: Optional[torch.Tensor] = None
             ) -> Tuple[Optional[torch.Tensor], ...]:
    """(dq, dk, dv, d_sinks); d_sinks is this rank's share. saved_at: where
    forward has put saved, which hooks may have moved since."""
    comm, cache = call.comm, call.cache
    cache.enter()
    try:
        dist, dense = entry.dist, entry.out_dense
        try:
            if entry.docs is not call.docs or entry.docs_k is not call.docs_k:
                entry.set_documents(call.docs, call.docs_k)
                dense = entry.out_dense
            new_q, new_k, new_v = entry.new_grads
            dq, dk, dv = new_q(), new_k(), new_v()
            if dout.stride() != dense:
                dout = _tensors.placed(dout, dense[:3], comm)
            if out.stride() != dense:  # as hooks may give it back
                out = _tensors.placed(out, dense[:3], comm)
            if saved.data_ptr() != saved_at:
                saved = _tensors.in_window(comm, saved)
            d_sinks = None if sinks is None else torch.empty_like(sinks)
            workspace = cache.workspace(dist.workspace_bytes)
        except Exception:
            entry.refuse(True)
            raise
        dist.backward_addresses(
            None, None, None, (out.data_ptr(),), (dout.data_ptr(),),
            (dq.data_ptr(),), (dk.data_ptr(),), (dv.data_ptr(),),
            saved.data_ptr(), dist.saved_bytes, workspace, dist.workspace_bytes,
            None if sinks is None else sinks.data_ptr(),
            None if slopes is None else slopes.data_ptr(),
            None if d_sinks is None else d_sinks.data_ptr())
    finally:
        cache.leave()
    return dq, dk, dv, d_sinks


def _gradients(ctx: Any, dout: torch.Tensor) -> Any:
    out, saved, *extra = ctx.saved_tensors
    grads = backward(ctx.call, ctx.entry, dout, out, saved,
                     ctx.saved_at, *extra)
    return (None, *grads, None) if extra else (None, *grads[:3])


class Attention(torch.autograd.Function):
    """apply(call, q, k, v), or with sinks and slopes, of which one may be None:
    each argument costs something, and most calls have neither."""

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
