# SPDX-License-Identifier: Apache-2.0
"""The exchange alone, with gradients, and attention by a core of the caller's
between two of them (DeepSpeed-Ulysses)."""
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F

from .. import _abi
from ..communicator import Communicator
from ..errors import InvalidArgumentError, UlyxError, UnsupportedError
from ..plan import Part, Plan, Tensor
from . import _attention, _context, _tensors
from ._cache import Cache, cache_of

DIRECTIONS = {"seq_to_head": _abi.SEQ_TO_HEAD, "head_to_seq": _abi.HEAD_TO_SEQ}
ADJOINT = {_abi.SEQ_TO_HEAD: _abi.SEQ_TO_HEAD_ADJOINT,
           _abi.HEAD_TO_SEQ: _abi.HEAD_TO_SEQ_ADJOINT}


class Spec(NamedTuple):
    """What a plan is made for: nothing of it is a rank's own."""

    direction: int
    batch: int
    rows: int
    heads: int
    tensors: Tuple[Tuple[int, int, bool], ...]  # heads, dim, kv
    dtype: int
    order: str
    splits: Optional[Tuple[int, ...]]


class Entry:
    """A plan, and how this rank's tensors lie in it."""

    def __init__(self, comm: Communicator, spec: Spec,
                 layouts: Sequence[_tensors.Strides]) -> None:
        self.comm, self.spec, self.layouts = comm, spec, tuple(layouts)
        self.dtype = _tensors.TORCH_DTYPES[spec.dtype]
        to_head = spec.direction == _abi.SEQ_TO_HEAD
        size = self.dtype.itemsize
        tensors = []
        for (heads, dim, kv), layout in zip(spec.tensors, layouts):
            strides = tuple(size * stride for stride in layout)
            # Gradients of a tensor of torch are of its type.
            tensors.append(Tensor(
                heads, dim, spec.dtype, kv=kv, partial_dtype=spec.dtype,
                **{"seq_strides" if to_head else "head_strides":
                   strides}))  # type: ignore[arg-type]
        self.plan = Plan(
            comm, tensors, [Part(spec.rows, order=spec.order,
                                 splits=spec.splits)],
            batch=spec.batch, heads=spec.heads,
            directions=(1 << spec.direction) | (1 << ADJOINT[spec.direction]))
        numbers = range(len(tensors))
        shapes = [self.plan.shape(i, spec.direction, True) for i in numbers]
        results = [self.plan.shape(i, spec.direction) for i in numbers]
        self.shapes: List[Any] = shapes
        self.first_head, count = self.plan.head_range(0)
        self.kv_map = torch.arange(count)
        if to_head and len(tensors) > 1 and tensors[1].kv:
            self.kv_map = torch.from_numpy(self.plan.kv_map(0, 1))
        self.dense = [_tensors.dense_strides(shape)  # type: ignore[arg-type]
                      for shape in results]
        self.new_results = [
            _tensors.maker(comm, shape, strides,  # type: ignore[arg-type]
                           self.dtype)
            for shape, strides in zip(results, self.dense)]
        self.new_grads = [
            _tensors.maker(comm, shape, layout,  # type: ignore[arg-type]
                           self.dtype)
            for shape, layout in zip(shapes, self.layouts)]

    def check_shapes(self, given: Sequence[torch.Tensor]) -> None:
        """As Entry.check_rows of attention: the peers are told too."""
        for i, (tensor, shape) in enumerate(zip(given, self.shapes)):
            if tuple(tensor.shape) != shape:
                nothing = [0] * len(given)
                try:
                    self.plan.execute_addresses(self.spec.direction, nothing,
                                                nothing)
                except UlyxError:
                    pass
                raise InvalidArgumentError(
                    f"rank {self.comm.rank}: tensor {i} has the shape "
                    f"{tuple(tensor.shape)}; of {self.spec.rows} rows and "
                    f"{self.spec.heads} heads over {self.comm.nranks} ranks "
                    f"this one has {shape}")


class Call(NamedTuple):
    comm: Communicator
    cache: Cache
    spec: Spec


def forward(call: Call, given: Sequence[torch.Tensor]
            ) -> Tuple[Entry, List[torch.Tensor]]:
    """(entry, results) of [b, s, h, d] tensors."""
    comm, cache, spec = call
    with cache:
        layouts = tuple(_tensors.layout_of(tensor) for tensor in given)

        def make() -> Entry:
            return Entry(comm, spec, [
                layout or _tensors.dense_strides(tuple(t.shape))
                for layout, t in zip(layouts, given)])

        entry: Entry = cache.get(spec, make)
        entry.check_shapes(given)
        if layouts != entry.layouts:
            given = [_tensors.placed(tensor, layout, comm)
                     for tensor, layout in zip(given, entry.layouts)]
        results = [new() for new in entry.new_results]
        entry.plan.execute_addresses(
            spec.direction, [t.data_ptr() for t in given],
            [t.data_ptr() for t in results])
    return entry, results


def backward(call: Call, entry: Entry,
             given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Gradients of the inputs from those of the results."""
    with call.cache:
        given = [_tensors.placed(tensor, layout, call.comm)
                 for tensor, layout in zip(given, entry.dense)]
        grads = [new() for new in entry.new_grads]
        entry.plan.execute_addresses(
            ADJOINT[call.spec.direction], [t.data_ptr() for t in given],
            [t.data_ptr() for t in grads])
    return grads


def _gradients(ctx: Any, *given: torch.Tensor) -> Any:
    return (None, *backward(ctx.call, ctx.entry, given))


class _Reshuffle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *given: torch.Tensor) -> Any:
        ctx.call = call
        ctx.entry, results = forward(call, given)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> Any:
        return _tensors.once(_gradients, ctx, *given)


def reshuffle(*tensors: torch.Tensor, direction: str = "seq_to_head",
              comm: Optional[Communicator] = None, layout: str = "bshd",
              heads: Optional[Sequence[int]] = None,
              rows: Optional[int] = None, order: str = "contiguous",
              splits: Optional[Sequence[int]] = None
              ) -> Tuple[torch.Tensor, ...]:
    """Moves 1 to 8 tensors between the sequence-sharded and the head-sharded
    layout, in one exchange. Collective, and so is its backward.

    seq_to_head: from [b, s_r, h, d], this rank's tokens with all heads, to
    [b, S, h_r, d], all tokens with this rank's heads. head_to_seq: back. The
    first tensor has query heads; one with fewer heads, which divide them, has
    KV heads, of which a rank gets those that its query heads read. Their
    gradients are summed over the ranks that hold a copy.

    heads: of each tensor over all ranks together; head_to_seq needs it.
    rows, order, splits, layout: as attention(). Results have the layout of the
    tensors.
    """
    if direction not in DIRECTIONS:
        raise InvalidArgumentError(f"direction is {direction!r}; there are "
                                   f"{', '.join(DIRECTIONS)}")
    if not tensors:
        raise InvalidArgumentError("reshuffle of no tensors")
    comm = _context.resolve(comm)
    axes = _attention.axes_of(layout)
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        tensors = _attention.one_dtype(*tensors)
    if axes is not None:
        tensors = tuple(tensor.transpose(*axes) for tensor in tensors)
    if heads is None:
        if direction == "head_to_seq":
            raise InvalidArgumentError("head_to_seq needs heads=, the number "
                                       "of heads of each tensor over all ranks")
        heads = [tensor.shape[2] for tensor in tensors if tensor.dim() == 4]
    _, results = _exchanged(comm, DIRECTIONS[direction], tensors, heads, rows,
                            order, splits)
    if axes is not None:
        results = tuple(tensor.transpose(*axes) for tensor in results)
    return results


def _exchanged(comm: Communicator, direction: int,
               tensors: Sequence[torch.Tensor], heads: Sequence[int],
               rows: Optional[int], order: str, splits: Optional[Sequence[int]]
               ) -> Tuple[Entry, Tuple[torch.Tensor, ...]]:
    """The exchange of [b, s, h, d] tensors, and the plan that made it."""
    shapes = [_attention.shape_of(t, f"tensor {i}")
              for i, t in enumerate(tensors)]
    if len(heads) != len(tensors):
        raise InvalidArgumentError(
            f"heads has {len(heads)} entries, and there are {len(tensors)} "
            "tensors")
    if order == "zigzag_docs":
        raise UnsupportedError(
            "reshuffle has no documents, which the order zigzag_docs goes by")
    local = shapes[0][1]
    if direction == _abi.SEQ_TO_HEAD or rows is not None:
        whole = _attention.global_rows(rows, splits, local, comm.nranks)
    else:
        whole = local  # all rows are here
    spec = Spec(
        direction, shapes[0][0], whole, heads[0],
        tuple((count, shape[3], count != heads[0])
              for count, shape in zip(heads, shapes)),
        _tensors.dtype_code(tensors[0], "tensor 0"), order,
        None if splits is None else tuple(splits))
    cache = cache_of(comm)
    results = _Reshuffle.apply(Call(comm, cache, spec), *tensors)
    return cache.objects[spec], results


# ---- attention by another core ------------------------------------------------
class Head(NamedTuple):
    """What a core is told beside its tensors."""

    causal: bool
    window: Optional[_attention.Window]
    scale: Optional[float]
    documents: Any
    kv_map: torch.Tensor  # for each query head, its KV head
    first_head: int  # global number of the first query head


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
         head: Head) -> torch.Tensor:
    """torch's scaled_dot_product_attention on [b, S, h, d], the core of
    ulysses() by default. A window or documents become a mask of [S, S]."""
    even = q.shape[2] == k.shape[2] or (
        k.shape[2] and q.shape[2] % k.shape[2] == 0 and torch.equal(
            head.kv_map, torch.arange(q.shape[2]) // (q.shape[2] // k.shape[2])))
    if not even:
        index = head.kv_map.to(k.device)
        k, v = k.index_select(2, index), v.index_select(2, index)
    mask = None
    if head.window is not None or head.documents is not None:
        mask = _visible(q.shape[0], q.shape[1], head).to(q.device)
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
        attn_mask=mask, is_causal=head.causal and mask is None,
        scale=head.scale, enable_gqa=q.shape[2] != k.shape[2])
    if mask is not None:  # a token outside of all documents sees none
        out = torch.where(mask.any(-1, keepdim=True), out, 0.0)
    return out.transpose(1, 2)


def _visible(batch: int, rows: int, head: Head) -> torch.Tensor:
    """[b, 1, S, S]: which key a query sees."""
    at = torch.arange(rows)
    distance = at[:, None] - at[None, :]
    left, right = head.window if head.window is not None else (None, None)
    if head.causal:
        right = 0
    seen = torch.ones(rows, rows, dtype=torch.bool)
    if left is not None:
        seen &= distance <= left
    if right is not None:
        seen &= distance >= -right
    seen = seen.expand(batch, 1, rows, rows)
    if head.documents is None:
        return seen
    ends = torch.as_tensor(head.documents, dtype=torch.int64).cpu()
    if ends.dim() != 1:
        raise UnsupportedError("core sdpa takes documents as cumulative lengths")
    number = torch.bucketize(torch.arange(batch * rows), ends, right=True)
    number = number.reshape(batch, rows)
    inside = (number > 0) & (number < len(ends))
    same = number[:, :, None] == number[:, None, :]
    return seen & (same & inside[:, :, None])[:, None]


def ulysses(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
            core: Any = "sdpa", comm: Optional[Communicator] = None,
            layout: str = "bshd", rows: Optional[int] = None,
            causal: bool = False, window: Optional[_attention.Window] = None,
            documents: Any = None, scale: Optional[float] = None,
            order: str = "contiguous",
            splits: Optional[Sequence[int]] = None) -> torch.Tensor:
    """As attention(), but what attends is `core`: "sdpa", or a function
    core(q, k, v, head) of this rank's heads and all tokens, [b, S, h_r, d] each,
    that returns [b, S, h_r, d]; head is a Head. FlashAttention, flex attention
    and the like go there. It is not called on a rank that has no heads.

    The tokens of a core are in their global order, whatever `order` is.
    """
    comm = _context.resolve(comm)
    function: Callable[..., torch.Tensor] = sdpa if core == "sdpa" else core
    if not callable(function):
        raise InvalidArgumentError(
            f"core is {core!r}; there is 'sdpa', or give a function")
    axes = _attention.axes_of(layout)
    if axes is not None:
        q, k, v = (tensor.transpose(*axes) for tensor in (q, k, v))
    if not q.dtype == k.dtype == v.dtype:
        q, k, v = _attention.one_dtype(q, k, v)
    heads = [tensor.shape[2] for tensor in (q, k, v)]
    rows = _attention.global_rows(rows, splits, q.shape[1], comm.nranks)
    entry, (q, k, v) = _exchanged(comm, _abi.SEQ_TO_HEAD, (q, k, v), heads,
                                  rows, order, splits)
    if q.shape[2]:
        out = function(q, k, v, Head(causal, window, scale, documents,
                                     entry.kv_map, entry.first_head))
    else:  # still a function of its inputs, whose backward is collective
        out = q[..., :1].expand(*q.shape[:3], v.shape[3]) + \
            (k.sum() + v.sum()) * 0
    _, (out,) = _exchanged(comm, _abi.HEAD_TO_SEQ, (out,), heads[:1], rows,
                           order, splits)
    return out if axes is None else out.transpose(*axes)
