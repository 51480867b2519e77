# SPDX-License-Identifier: Apache-2.0
"""Distributed attention with gradients: the layer around ulyx.DistAttention.

In eager mode it is an autograd.Function, as cheap as torch's own attention; in
compiled code an operator of torch.library (_operators.py), for a Function that
dynamo looks into there would lose its gradients. Both run `forward` and
`backward` below.
"""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from .. import _abi
from ..arrays import Docs
from ..communicator import Communicator
from ..dist_attention import DistAttention
from ..errors import InvalidArgumentError, UnsupportedError
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
        self.q, self.k, self.v = (tuple(layout) for layout in layouts)
        size = _tensors.TORCH_DTYPES[spec.dtype].itemsize
        strides = {
            f"{name}_strides": [tuple(size * stride for stride in layout)]
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

    def set_documents(self, docs: Optional[Docs],
                      docs_k: Optional[Docs]) -> None:
        """The tables of the next call, which backward needs as forward had
        them."""
        if self.docs is not docs or self.docs_k is not docs_k:
            if self.docs != docs or self.docs_k != docs_k:
                self.dist.update(docs, docs_k)
            self.docs, self.docs_k = docs, docs_k

    def refuse(self, cache: Cache, text: str) -> None:
        """Raises; a call without a workspace tells the peers, who would wait
        for this rank otherwise."""
        try:
            self.dist.forward_addresses([0], [0], [0], [0], 0, 0, 0, 0)
        except Exception:
            pass
        raise InvalidArgumentError(f"rank {self.comm.rank}: {text}")

    def check_rows(self, cache: Cache, q: torch.Tensor,
                   k: torch.Tensor) -> None:
        plan, spec = self.dist.plan(), self.spec
        for name, tensor, part, rows in (
                ("q", q, 0, spec.rows),
                ("k", k, len(self.dist.parts) - 1,
                 spec.rows if spec.kv_rows < 0 else spec.kv_rows)):
            expected = plan.seq_rows(part)
            if tensor.shape[1] != expected:
                self.refuse(cache, f"{name} has {tensor.shape[1]} rows; of "
                            f"{rows} over {self.comm.nranks} ranks this one "
                            f"has {expected}")


class Call(NamedTuple):
    """One call: what it is on and what it takes beside its tensors."""

    comm: Communicator
    spec: Spec
    docs: Optional[Docs]
    docs_k: Optional[Docs]


def forward(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor]
            ) -> Tuple[torch.Tensor, torch.Tensor, Entry]:
    """(out, saved, entry) of [b, s, h, d] tensors."""
    comm = call.comm
    with cache_of(comm) as cache:
        layouts = [_tensors.layout_of(t) for t in (q, k, v)]

        def make() -> Entry:
            chosen = [layout or _tensors.dense_strides(tuple(t.shape))
                      for layout, t in zip(layouts, (q, k, v))]
            return Entry(comm, call.spec, call.docs, call.docs_k, chosen)

        entry: Entry = cache.get(call.spec, make)
        entry.check_rows(cache, q, k)
        entry.set_documents(call.docs, call.docs_k)
        dist = entry.dist
        q, k, v = (tensor if layout == have else
                   _tensors.placed(tensor, have, comm)
                   for tensor, layout, have in
                   zip((q, k, v), layouts, (entry.q, entry.k, entry.v)))
        shape = (*q.shape[:3], v.shape[3])
        out = _tensors.empty(comm, shape, _tensors.dense_strides(shape), q.dtype)
        saved = _tensors.block(comm, dist.saved_bytes)
        workspace = cache.workspace(dist.workspace_bytes)
        dist.forward_addresses(
            (q.data_ptr(),), (k.data_ptr(),), (v.data_ptr(),),
            (out.data_ptr(),), saved.data_ptr(), dist.saved_bytes,
            workspace.data_ptr(), dist.workspace_bytes,
            sinks=None if sinks is None else sinks.data_ptr(),
            alibi_slopes=None if slopes is None else slopes.data_ptr())
    return out, saved, entry


def backward(call: Call, entry: Entry, dout: torch.Tensor, out: torch.Tensor,
             saved: torch.Tensor, sinks: Optional[torch.Tensor],
             slopes: Optional[torch.Tensor]) -> List[Optional[torch.Tensor]]:
    """[dq, dk, dv, d_sinks]; d_sinks is this rank's share."""
    comm, spec = call.comm, call.spec
    with cache_of(comm) as cache:
        entry.set_documents(call.docs, call.docs_k)
        dist = entry.dist
        batch, rows = out.shape[:2]
        kv_rows = rows if spec.kv_rows < 0 else dist.plan().seq_rows(1)
        dq, dk, dv = (
            _tensors.empty(comm, (batch, count, heads, dim), strides, out.dtype)
            for count, heads, dim, strides in (
                (rows, spec.heads, spec.dim_qk, entry.q),
                (kv_rows, spec.kv_heads, spec.dim_qk, entry.k),
                (kv_rows, spec.kv_heads, spec.dim_v, entry.v)))
        dense = _tensors.dense_strides(tuple(out.shape))
        dout = _tensors.placed(dout, dense, comm)
        out = _tensors.placed(out, dense, comm)  # as hooks give it back
        saved = _tensors.in_window(comm, saved)
        workspace = cache.workspace(dist.workspace_bytes)
        d_sinks = None if sinks is None else torch.empty_like(sinks)
        dist.backward_addresses(
            None, None, None, (out.data_ptr(),), (dout.data_ptr(),),
            (dq.data_ptr(),), (dk.data_ptr(),), (dv.data_ptr(),),
            saved.data_ptr(), dist.saved_bytes, workspace.data_ptr(),
            dist.workspace_bytes,
            sinks=None if sinks is None else sinks.data_ptr(),
            alibi_slopes=None if slopes is None else slopes.data_ptr(),
            d_sink=None if d_sinks is None else d_sinks.data_ptr())
    return [dq, dk, dv, d_sinks]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, q: torch.Tensor, k: torch.Tensor,
                v: torch.Tensor, sinks: Optional[torch.Tensor],
                slopes: Optional[torch.Tensor]) -> torch.Tensor:
        out, saved, entry = forward(call, q, k, v, sinks, slopes)
        ctx.save_for_backward(out, saved, sinks, slopes)
        ctx.call, ctx.entry = call, entry
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: torch.Tensor) -> Any:  # type: ignore[override]
        out, saved, sinks, slopes = ctx.saved_tensors
        return (None, *backward(ctx.call, ctx.entry, dout, out, saved, sinks,
                                slopes), None)


# ---- what a caller may say ----------------------------------------------------
def shape_of(tensor: torch.Tensor, name: str) -> Tuple[int, int, int, int]:
    if tensor.dim() != 4:
        raise InvalidArgumentError(
            f"{name} has {tensor.dim()} axes; batch, rows, heads and dim are 4")
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"{name} is on {tensor.device}: attention is on CPU tensors; "
            "ulysses(core=...) exchanges CUDA tensors around a core of torch's")
    return tuple(tensor.shape)  # type: ignore[return-value]


def one_dtype(*tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """Under autocast all of them in its type, for some operators in front leave
    theirs in float32."""
    if all(tensor.dtype == tensors[0].dtype for tensor in tensors):
        return tensors
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        return tuple(tensor.to(dtype) for tensor in tensors)
    raise InvalidArgumentError(
        f"types differ: {', '.join(str(t.dtype) for t in tensors)}")


def swapped(layout: str) -> Optional[Tuple[int, int]]:
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


def _table(docs: Optional[Docs], docs_k: Optional[Docs]) -> int:
    """Room for the documents of later calls too: a power of two."""
    count = max((d.count for d in (docs, docs_k) if d is not None), default=0)
    if docs is None and docs_k is None:
        return 0
    return max(64, 1 << max(0, count - 1).bit_length())


def _per_head(given: Optional[torch.Tensor], name: str, heads: int,
              dtype: torch.dtype) -> Optional[torch.Tensor]:
    if given is None:
        return None
    if tuple(given.shape) != (heads,):
        raise InvalidArgumentError(
            f"{name} has the shape {tuple(given.shape)}, not ({heads},)")
    wanted = torch.float64 if dtype == torch.float64 else torch.float32
    return given.to(wanted).contiguous()


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
    axes = swapped(layout)
    if axes is not None:
        q, k, v = (tensor.transpose(*axes) for tensor in (q, k, v))
    q, k, v = one_dtype(q, k, v)
    batch, local, heads, dim = shape_of(q, "q")
    k_batch, _, kv_heads, k_dim = shape_of(k, "k")
    v_batch, v_local, v_heads, v_dim = shape_of(v, "v")
    if k_batch != batch or v_batch != batch or k_dim != dim or \
            v_heads != kv_heads or v_local != k.shape[1]:
        raise InvalidArgumentError(
            f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, "
            f"v {tuple(v.shape)}")
    cache = cache_of(comm)
    docs, docs_k = cache.docs_of(documents), Docs.of(documents_k)
    mask, left, right = _mask(causal, window)
    spec = Spec(
        batch, global_rows(rows, splits, local, comm.nranks),
        -1 if kv_rows is None else kv_rows, heads, kv_heads, dim, v_dim,
        _tensors.dtype_code(q, "q"), mask, left, right, align,
        float(scale or 0.0), float(softcap or 0.0), order,
        None if splits is None else tuple(splits), _table(docs, docs_k))
    call = Call(comm, spec, docs, docs_k)
    out = _Attention.apply(call, q, k, v,
                           _per_head(sinks, "sinks", heads, q.dtype),
                           _per_head(alibi_slopes, "alibi_slopes", heads,
                                     q.dtype))
    return out if axes is None else out.transpose(*axes)
