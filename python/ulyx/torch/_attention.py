# SPDX-License-Identifier: Apache-2.0
"""Distributed attention with gradients: the layer around ulyx.DistAttention.

In eager mode it is an autograd.Function, as cheap as torch's own attention; in
compiled code an operator of torch.library (_operators.py), for a Function that
dynamo looks into there would lose its gradients. Both run `forward` and
`backward` below.
"""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..arrays import Docs
from ..communicator import Communicator
from ..dist_attention import DistAttention
from ..errors import InvalidArgumentError, UlyxError, UnsupportedError
from ..plan import Part
from . import _context, _tensors
from ._cache import Cache, cache_of

Window = Tuple[Optional[int], Optional[int]]
LAYOUTS = {"bshd": None, "bhsd": (1, 2), "sbhd": (0, 1)}


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
        self.layouts = tuple(layouts)
        self.dtype = _tensors.TORCH_DTYPES[spec.dtype]
        strides = {
            f"{name}_strides": [tuple(self.dtype.itemsize * stride
                                      for stride in layout)]
            for name, layout in zip("qkv", layouts)}
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
        self.q_shape = (spec.batch, self.rows, spec.heads, spec.dim_qk)
        self.k_shape = (spec.batch, self.kv_rows, spec.kv_heads, spec.dim_qk)
        v_shape = (spec.batch, self.kv_rows, spec.kv_heads, spec.dim_v)
        out_shape = (spec.batch, self.rows, spec.heads, spec.dim_v)
        self.out_dense = (*_tensors.dense_strides(out_shape), 1)
        self.new_out = _tensors.maker(
            self.comm, out_shape, self.out_dense[:3], self.dtype)
        self.new_grads = [
            _tensors.maker(self.comm, shape, layout, self.dtype)
            for shape, layout in zip((self.q_shape, self.k_shape, v_shape),
                                     self.layouts)]

    def set_documents(self, docs: Optional[Docs],
                      docs_k: Optional[Docs]) -> None:
        """The tables of the next call, which backward needs as forward had
        them."""
        if self.docs is docs and self.docs_k is docs_k:
            return
        if self.docs != docs or self.docs_k != docs_k:
            self.dist.update(docs, docs_k)
            if self.spec.order == "zigzag_docs":
                self._measure()
        self.docs, self.docs_k = docs, docs_k

    def check_rows(self, q: torch.Tensor, k: torch.Tensor) -> None:
        """This rank has the rows that it is to have. Else a call without a
        workspace, which the library refuses, tells the peers, who would wait
        for this rank."""
        if q.shape[1] == self.rows and k.shape[1] == self.kv_rows:
            return
        try:
            self.dist.forward_addresses([0], [0], [0], [0], 0, 0, 0, 0)
        except UlyxError:
            pass
        raise InvalidArgumentError(
            f"rank {self.comm.rank}: q has {q.shape[1]} rows and k "
            f"{k.shape[1]}; of {self.spec.rows} rows over {self.comm.nranks} "
            f"ranks this one has {self.rows}"
            + ("" if self.spec.kv_rows < 0 else
               f", and {self.kv_rows} of {self.spec.kv_rows} rows of keys"))


class Call(NamedTuple):
    """One call: what it is on and what it takes beside its tensors."""

    comm: Communicator
    cache: Cache
    spec: Spec
    docs: Optional[Docs]
    docs_k: Optional[Docs]
    layouts: Tuple[Optional[_tensors.Strides], ...]  # of q, k, v


def forward(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor]
            ) -> Tuple[torch.Tensor, torch.Tensor, Entry]:
    """(out, saved, entry) of [b, s, h, d] tensors."""
    comm, cache, spec, docs, docs_k, layouts = call

    def make() -> Entry:
        chosen = [layout or _tensors.dense_strides(tuple(t.shape))
                  for layout, t in zip(layouts, (q, k, v))]
        return Entry(comm, spec, docs, docs_k, chosen)

    with cache:
        entry: Entry = cache.get(spec, make)
        entry.set_documents(docs, docs_k)
        entry.check_rows(q, k)
        if layouts != entry.layouts:
            q, k, v = (_tensors.placed(tensor, layout, comm) for tensor, layout
                       in zip((q, k, v), entry.layouts))
        dist = entry.dist
        out, saved = entry.new_out(), _tensors.block(comm, dist.saved_bytes)
        workspace = cache.workspace(dist.workspace_bytes)
        dist.forward_addresses(
            (q.data_ptr(),), (k.data_ptr(),), (v.data_ptr(),),
            (out.data_ptr(),), saved.data_ptr(), dist.saved_bytes,
            workspace, dist.workspace_bytes,
            sinks=None if sinks is None else sinks.data_ptr(),
            alibi_slopes=None if slopes is None else slopes.data_ptr())
    return out, saved, entry


def backward(call: Call, entry: Entry, dout: torch.Tensor, out: torch.Tensor,
             saved: torch.Tensor, sinks: Optional[torch.Tensor],
             slopes: Optional[torch.Tensor]) -> List[Optional[torch.Tensor]]:
    """[dq, dk, dv, d_sinks]; d_sinks is this rank's share."""
    comm, cache = call.comm, call.cache
    with cache:
        entry.set_documents(call.docs, call.docs_k)
        dist = entry.dist
        dq, dk, dv = (new() for new in entry.new_grads)
        dense = entry.out_dense
        if dout.stride() != dense:
            dout = _tensors.placed(dout, dense[:3], comm)
        if out.stride() != dense:  # as hooks may give it back
            out = _tensors.placed(out, dense[:3], comm)
        saved = _tensors.in_window(comm, saved)
        d_sinks = None if sinks is None else torch.empty_like(sinks)
        dist.backward_addresses(
            None, None, None, (out.data_ptr(),), (dout.data_ptr(),),
            (dq.data_ptr(),), (dk.data_ptr(),), (dv.data_ptr(),),
            saved.data_ptr(), dist.saved_bytes,
            cache.workspace(dist.workspace_bytes), dist.workspace_bytes,
            sinks=None if sinks is None else sinks.data_ptr(),
            alibi_slopes=None if slopes is None else slopes.data_ptr(),
            d_sink=None if d_sinks is None else d_sinks.data_ptr())
    return [dq, dk, dv, d_sinks]


def _gradients(ctx: Any, dout: torch.Tensor) -> Any:
    out, saved, sinks, slopes = ctx.saved_tensors
    return (None, *backward(ctx.call, ctx.entry, dout, out, saved, sinks,
                            slopes), None)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, q: torch.Tensor, k: torch.Tensor,
                v: torch.Tensor, sinks: Optional[torch.Tensor],
                slopes: Optional[torch.Tensor]) -> torch.Tensor:
        out, saved, ctx.entry = forward(call, q, k, v, sinks, slopes)
        ctx.save_for_backward(out, saved, sinks, slopes)
        ctx.call = call
        return out

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> Any:  # type: ignore[override]
        return _tensors.once(_gradients, ctx, dout)


# ---- what a caller may say ----------------------------------------------------
def shape_of(tensor: torch.Tensor, name: str) -> _tensors.Shape:
    """Shape of an input, which has four axes and lies on the host."""
    if tensor.dim() != 4:
        raise InvalidArgumentError(
            f"{name} has {tensor.dim()} axes; batch, rows, heads and dim are 4")
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"{name} is on {tensor.device}; tensors are to lie on the CPU")
    return tuple(tensor.shape)  # type: ignore[return-value]


def one_dtype(*tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """Under autocast all of them in its type, for some operators in front leave
    theirs in float32."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        return tuple(tensor.to(dtype) for tensor in tensors)
    raise InvalidArgumentError(
        f"types differ: {', '.join(str(t.dtype) for t in tensors)}")


def axes_of(layout: str) -> Optional[Tuple[int, int]]:
    """The axes to swap between a layout and bshd."""
    if layout not in LAYOUTS:
        raise InvalidArgumentError(
            f"layout is {layout!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[layout]


def global_rows(rows: Optional[int], splits: Optional[Sequence[int]],
                local: int, nranks: int) -> int:
    """The rows of all ranks together: as told, else as many on each."""
    if rows is not None:
        return rows
    return sum(splits) if splits is not None else local * nranks


def _mask(causal: bool, window: Optional[Window]) -> Tuple[str, int, int]:
    if window is None:
        return ("causal" if causal else "none"), 0, 0
    left, right = window
    if causal:
        if right not in (None, 0):
            raise InvalidArgumentError(
                f"causal, and a window of {right} keys after the own")
        right = 0
    unbounded = _abi.UNBOUNDED
    return ("window", unbounded if left is None else left,
            unbounded if right is None else right)


def _max_docs(docs: Optional[Docs], docs_k: Optional[Docs]) -> int:
    """Room for the documents of later calls too: a power of two."""
    if docs is None and docs_k is None:
        return 0
    count = max(d.count for d in (docs, docs_k) if d is not None)
    return max(64, 1 << max(0, count - 1).bit_length())


def _per_head(given: torch.Tensor, name: str, heads: int,
              dtype: torch.dtype) -> torch.Tensor:
    if tuple(given.shape) != (heads,):
        raise InvalidArgumentError(
            f"{name} has the shape {tuple(given.shape)}, not ({heads},)")
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    return given.to(wanted).contiguous()


class Known(NamedTuple):
    """What the shapes and options of a call decide, once for all its likes."""

    axes: Optional[Tuple[int, int]]
    spec: Spec
    layouts: Tuple[Optional[_tensors.Strides], ...]


def _decide(qkv: Tuple[torch.Tensor, ...], nranks: int, layout: str,
            rows: Optional[int], kv_rows: Optional[int], causal: bool,
            window: Optional[Window], align: str, scale: Optional[float],
            softcap: Optional[float], order: str,
            splits: Optional[Tuple[int, ...]], max_docs: int) -> Known:
    axes = axes_of(layout)
    shapes = [shape_of(tensor, name) for tensor, name in zip(qkv, "qkv")]
    if axes is not None:
        qkv = tuple(tensor.transpose(*axes) for tensor in qkv)
        shapes = [tuple(tensor.shape) for tensor in qkv]  # type: ignore[misc]
    q, k, v = shapes
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or \
            (kv_rows is None and q[1] != k[1]):
        raise InvalidArgumentError(
            f"shapes do not fit: q {q}, k {k}, v {v} (batch, rows, heads, dim)")
    mask, left, right = _mask(causal, window)
    spec = Spec(
        q[0], global_rows(rows, splits, q[1], nranks),
        -1 if kv_rows is None else kv_rows, q[2], k[2], q[3], v[3],
        _tensors.dtype_code(qkv[0], "q"), mask, left, right, align,
        float(scale or 0.0), float(softcap or 0.0), order, splits, max_docs)
    return Known(axes, spec, tuple(_tensors.layout_of(t) for t in qkv))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
              comm: Optional[Communicator] = None, layout: str = "bshd",
              rows: Optional[int] = None, kv_rows: Optional[int] = None,
              causal: bool = False, window: Optional[Window] = None,
              align: str = "bottom_right", documents: Any = None,
              documents_k: Any = None, sinks: Optional[torch.Tensor] = None,
              alibi_slopes: Optional[torch.Tensor] = None,
              scale: Optional[float] = None,
              softcap: Optional[float] = None, order: str = "contiguous",
              splits: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Attention over the sequence that the ranks hold together. Collective, and
    so is its backward.

    q, k, v: this rank's tokens, all heads; [b, s_r, heads, dim] by default,
    layout "bhsd" or "sbhd" swaps axes. Strided views are taken as they lie.
    Fewer KV heads than query heads are GQA. The result has q's layout.

    rows: tokens of all ranks together; None: as many on each. A rank has
    rows / P of them, the first rows mod P ranks one more, unless splits says
    how many each has. order: "contiguous", "zigzag" or "zigzag_docs".
    kv_rows: the keys' own number of rows (cross attention); None: keys and
    queries are the same tokens.

    causal; window=(keys before, keys after), None lifts a side; causal with a
    window of W keys, the own included, is window=(W - 1, 0). documents:
    cumulative lengths over the flattened [b * rows] tokens (cu_seqlens): a
    tensor, an array or a list, the same on all ranks; a token sees its own
    document only. sinks, alibi_slopes: [heads]; the gradient of sinks is this
    rank's share, whose sum over ranks is the gradient, as for any parameter
    that the ranks have a copy of. scale: None is 1 / sqrt(dim).

    Raises ulyx.UlyxError; the text has field, value and rank.
    """
    comm = _context.resolve(comm)
    cache = cache_of(comm)
    docs = None if documents is None else cache.docs_of(documents)
    docs_k = None if documents_k is None else Docs.of(documents_k)
    if not q.dtype == k.dtype == v.dtype:
        q, k, v = one_dtype(q, k, v)
    options = (layout, rows, kv_rows, causal, window, align, scale, softcap,
               order, None if splits is None else tuple(splits),
               0 if docs is docs_k else _max_docs(docs, docs_k))
    asked = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(),
             q.dtype, q.is_cpu and k.is_cpu and v.is_cpu, options)
    known: Known = cache.asked.get(asked)
    if known is None:
        known = _decide((q, k, v), comm.nranks, *options)
        cache.remember(asked, known)
    axes, spec, layouts = known
    if axes is not None:
        q, k, v = (tensor.transpose(*axes) for tensor in (q, k, v))
    if sinks is not None:
        sinks = _per_head(sinks, "sinks", spec.heads, q.dtype)
    if alibi_slopes is not None:
        alibi_slopes = _per_head(alibi_slopes, "alibi_slopes", spec.heads,
                                 q.dtype)
    out = _Attention.apply(Call(comm, cache, spec, docs, docs_k, layouts),
                           q, k, v, sinks, alibi_slopes)
    return out if axes is None else out.transpose(*axes)
