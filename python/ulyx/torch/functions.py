# SPDX-License-Identifier: Apache-2.0
"""The calls of ulyx.torch: attention, reshuffle, ulysses."""
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..communicator import Communicator
from ..errors import InvalidArgumentError, UnsupportedError
from . import (_arguments, _attention, _context, _device, _operators,
               _reshuffle, _split, _tensors)
from ._cache import Lengths, Spec, cache_of
from ._core import Head, Window, sdpa

LAYOUTS = {"bshd": None, "bhsd": (1, 2), "sbhd": (0, 1)}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
DIRECTIONS = {"seq_to_head": _abi.SEQ_TO_HEAD, "head_to_seq": _abi.HEAD_TO_SEQ}


def shape_of(tensor: torch.Tensor, name: str,
             comm: Communicator) -> _tensors.Shape:
    """Returns the shape of an input, which must have four axes and lie where
    the communicator's tensors do."""
    if tensor.dim() != 4:
        raise InvalidArgumentError(
            f"{name} has {tensor.dim()} axes; batch, rows, heads and dim are 4")
    if not tensor.is_meta:
        _device.check_place(tensor, name, comm)
    return tuple(tensor.shape)


def one_dtype(*tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """Returns tensors of different types in the type of autocast: under
    autocast, some operators produce float32. Without autocast the call is
    refused."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        return tuple(tensor.to(dtype) for tensor in tensors)
    raise InvalidArgumentError(
        f"types differ: {', '.join(str(t.dtype) for t in tensors)}")


def axes_of(layout: str) -> Optional[Tuple[int, int]]:
    """Returns the axes to swap between a layout and bshd."""
    _arguments.word(layout, "layout")
    if layout not in LAYOUTS:
        raise InvalidArgumentError(
            f"layout is {layout!r}; there are {', '.join(LAYOUTS)}")
    return LAYOUTS[layout]


def global_rows(rows: Optional[int], splits: Optional[Sequence[int]],
                local: int, nranks: int) -> int:
    """Returns the rows of all ranks together: as given, else the sum of the
    splits, else as if each rank had as many as this one."""
    if rows is not None:
        return rows
    return sum(splits) if splits is not None else local * nranks


def _mask(causal: bool, window: Optional[Window]) -> Tuple[str, int, int]:
    if window is None:
        return ("causal" if causal else "none"), 0, 0
    if len(window) != 2:
        raise InvalidArgumentError(
            f"window is {window}, not (keys before, keys after)")
    left, right = window
    if causal:
        if right not in (None, 0):
            raise InvalidArgumentError(
                f"causal, and a window of {right} keys after the token's own")
        right = 0
    unbounded = _abi.UNBOUNDED
    return ("window", unbounded if left is None else left,
            unbounded if right is None else right)


def _per_head(given: Optional[torch.Tensor], name: str, heads: int,
              q: torch.Tensor) -> Optional[torch.Tensor]:
    if given is None:
        return None
    _arguments.tensor(given, name)
    ready = given.to(q.device, _tensors.per_head_dtype(q.dtype)).contiguous()
    _tensors.check_per_head(ready, name, heads, q.dtype)
    return ready


def _is_traced(tensor: torch.Tensor) -> bool:
    """Returns whether the call must go by the operators of _operators.py: under
    torch.compile, and for a meta tensor or a subclass of Tensor. Such a tensor
    may have no memory yet; the operators have its shape, and give memory to the
    library when they run."""
    return type(tensor) not in _PLAIN or tensor.is_meta or \
        torch.compiler.is_compiling()


def _decide(qkv: Tuple[torch.Tensor, ...], comm: Communicator, layout: str,
            rows: Optional[int], kv_rows: Optional[int], causal: bool,
            window: Optional[Window], align: str, scale: Optional[float],
            softcap: Optional[float], order: str,
            splits: Optional[Tuple[int, ...]], max_docs: int
            ) -> _attention.Call:
    """Computes the values that follow from the shapes and options of a call.
    The caller keeps the result for equal calls, and adds the documents, which
    may differ between them."""
    _arguments.attention(qkv, layout, causal, align, scale, softcap, order)
    window = _arguments.window(window)
    rows, kv_rows, splits = _arguments.lengths(rows, kv_rows, splits,
                                               comm.nranks)
    axes = axes_of(layout)
    shapes = [shape_of(tensor, name, comm) for tensor, name in zip(qkv, "qkv")]
    if axes is not None:
        qkv = tuple(tensor.transpose(*axes) for tensor in qkv)
        shapes = [tuple(tensor.shape) for tensor in qkv]
    q, k, v = shapes
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or \
            (kv_rows is None and q[1] != k[1]):
        raise InvalidArgumentError(
            f"shapes do not fit: q {q}, k {k}, v {v} (batch, rows, heads, dim)")
    mask, left, right = _mask(causal, window)
    kind = _attention.Kind(
        q[0], q[2], k[2], q[3], v[3], _tensors.dtype_code(qkv[0], "q"), mask,
        left, right, align, float(scale or 0.0), float(softcap or 0.0), order,
        splits is not None, kv_rows is not None, max_docs)
    whole = global_rows(rows, splits, q[1], comm.nranks)
    lengths = Lengths((whole,) if kv_rows is None else (whole, kv_rows), splits)
    if comm.cuda:
        kind = kind._replace(lengths=lengths)
    return _attention.Call(
        comm, cache_of(comm), Spec(kind, lengths), None, None,
        tuple(_tensors.layout_on(comm, t) for t in qkv), (q[1], k[1]), axes)


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

    rows: tokens of all ranks together; None: the sum of splits or, without
    splits, as if every rank had as many as this one. In the contiguous order a
    rank has rows / P of them, the first rows mod P ranks one more, unless splits
    says how many each has. order: "contiguous", "zigzag" or "zigzag_docs".
    kv_rows: the keys' own number of rows (cross attention); None: keys and
    queries are the same tokens.

    causal: a token attends to no later token. window: (keys
    before, keys after) that a token sees beside its own key; None is no limit on
    that side. A causal window of W keys, the token's own key included, is
    window=(W - 1, 0). documents: cumulative lengths (cu_seqlens) over the
    flattened [b * rows] tokens, which begin with 0 and end with b * rows: a
    tensor, an array or a list, the same on all ranks. A token attends to its own
    document only. With ulyx.Docs(begins, lengths) there may be gaps between
    documents; the tokens in the gaps get zeros. sinks, alibi_slopes: [heads].
    The backward of a rank gives its share of the gradient of sinks; the sum of
    the shares over all ranks is the gradient, as for any parameter of which each
    rank has a copy. scale: None is 1 / sqrt(dim).

    Raises ulyx.UlyxError, whose text has the argument and its value, and the
    rank where ranks differ; TypeError for an argument of the wrong type.
    """
    comm = _context.resolve(comm)
    if _is_traced(q):
        return _traced(q, k, v, comm, layout, rows, kv_rows, causal, window,
                       align, documents, documents_k, sinks, alibi_slopes,
                       scale, softcap, order, splits)
    try:
        cache = cache_of(comm)
        docs = None if documents is None else cache.docs_of(documents)
        docs_k = None if documents_k is None else \
            _tensors.docs_of(documents_k, "documents_k")
        if not q.dtype == k.dtype == v.dtype:
            _arguments.tensors("qkv", (q, k, v))
            q, k, v = one_dtype(q, k, v)
        if window is not None:
            window = tuple(window)  # type: ignore[assignment]
        if splits is not None:
            splits = tuple(splits.tolist() if isinstance(
                splits, torch.Tensor) else splits)
        room = 0 if docs is docs_k else _attention.max_docs(docs, docs_k)
        asked = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(),
                 q.dtype, q.device, k.device, v.device, layout, rows, kv_rows,
                 causal, window, align, scale, softcap, order, splits, room)
        call: Optional[_attention.Call] = cache.asked.get(asked)
    except (AttributeError, TypeError):
        _check(q, k, v, comm, layout, rows, kv_rows, causal, window, align,
               scale, softcap, order, splits)
        raise
    if call is None:
        call = _decide((q, k, v), comm, *asked[10:])
        cache.remember(asked, call)
    if docs is not None or docs_k is not None:
        call = call._replace(docs=docs, docs_k=docs_k)
    if sinks is None and alibi_slopes is None:
        return _attention.Attention.apply(  # type: ignore[no-any-return]
            call, q, k, v)
    kind: Any = call.spec.kind
    return _attention.Attention.apply(  # type: ignore[no-any-return]
        call, q, k, v, _per_head(sinks, "sinks", kind.heads, q),
        _per_head(alibi_slopes, "alibi_slopes", kind.heads, q))


def _check(q: Any, k: Any, v: Any, comm: Communicator, layout: Any, rows: Any,
           kv_rows: Any, causal: Any, window: Any, align: Any, scale: Any,
           softcap: Any, order: Any, splits: Any) -> None:
    """Raises an error that names the argument, if an argument has the wrong
    type."""
    _arguments.attention((q, k, v), layout, causal, align, scale, softcap, order)
    _arguments.window(window)
    _arguments.lengths(rows, kv_rows, splits, comm.nranks)


def _traced(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            comm: Communicator, layout: str, rows: Optional[int],
            kv_rows: Optional[int], causal: bool, window: Optional[Window],
            align: str, documents: Any, documents_k: Any,
            sinks: Optional[torch.Tensor],
            alibi_slopes: Optional[torch.Tensor], scale: Optional[float],
            softcap: Optional[float], order: str,
            splits: Optional[Sequence[int]]) -> torch.Tensor:
    """attention() where _is_traced(): calls the operator, with values that are
    symbolic in compiled code."""
    if not torch.compiler.is_compiling():
        _check(q, k, v, comm, layout, rows, kv_rows, causal, window, align,
               scale, softcap, order, splits)
    axes = axes_of(layout)
    if axes is not None:
        q, k, v = (tensor.transpose(*axes) for tensor in (q, k, v))
    if not q.dtype == k.dtype == v.dtype:
        q, k, v = one_dtype(q, k, v)
    if documents_k is not None:
        raise UnsupportedError("documents_k in compiled code")
    if documents is not None and not isinstance(documents, torch.Tensor):
        documents = torch.tensor(documents)
    mask, left, right = _mask(causal, window)
    heads = q.shape[2]
    sinks = _per_head(sinks, "sinks", heads, q)
    alibi_slopes = _per_head(alibi_slopes, "alibi_slopes", heads, q)
    out, _ = _operators.attention(
        q, k, v, sinks, alibi_slopes, documents, comm.number,
        global_rows(rows, splits, q.shape[1], comm.nranks),
        -1 if kv_rows is None else kv_rows, mask, left, right, align,
        float(scale or 0.0), float(softcap or 0.0), order,
        None if splits is None else list(splits))
    return out if axes is None else out.transpose(*axes)


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
    first tensor has query heads. A tensor with fewer heads has KV heads: their
    number must divide that of the query heads, and a rank gets the KV heads that
    its query heads read. The gradient of a KV head is summed over the ranks that
    have a copy of the head.

    heads: of each tensor over all ranks together; head_to_seq needs it.
    rows, order, splits, layout: as attention(), with two exceptions: order is
    not "zigzag_docs"; and in head_to_seq rows=None stands for the rows of the
    first tensor, because all tokens are on this rank. Results have the layout
    of the tensors.
    """
    _arguments.word(direction, "direction")
    if direction not in DIRECTIONS:
        raise InvalidArgumentError(f"direction is {direction!r}; there are "
                                   f"{', '.join(DIRECTIONS)}")
    if not tensors:
        raise InvalidArgumentError("reshuffle of no tensors")
    comm = _context.resolve(comm)
    _arguments.tensors(None, tensors)
    if not torch.compiler.is_compiling():
        rows, _, splits = _arguments.lengths(rows, None, splits, comm.nranks)
        heads = _arguments.numbers(heads, "heads", len(tensors),
                                   "those of each tensor over all ranks")
    axes = axes_of(layout)
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        tensors = one_dtype(*tensors)
    if axes is not None:
        tensors = tuple(tensor.transpose(*axes) for tensor in tensors)
    if heads is None:
        if direction == "head_to_seq":
            raise InvalidArgumentError("head_to_seq needs heads=, the number "
                                       "of heads of each tensor over all ranks")
        heads = [int(tensor.shape[2]) for tensor in tensors
                 if tensor.dim() == 4]
    results = _exchanged(comm, DIRECTIONS[direction], tensors, heads, rows,
                         order, splits)
    if axes is not None:
        results = tuple(tensor.transpose(*axes) for tensor in results)
    return results


def _exchanged(comm: Communicator, direction: int,
               tensors: Sequence[torch.Tensor], heads: Sequence[int],
               rows: Optional[int], order: str, splits: Optional[Sequence[int]]
               ) -> Tuple[torch.Tensor, ...]:
    """Exchanges [b, s, h, d] tensors."""
    shapes = [shape_of(t, f"tensor {i}", comm) for i, t in enumerate(tensors)]
    if len(heads) != len(tensors):  # not checked above under compile
        raise InvalidArgumentError(
            f"heads has {len(heads)} entries, and there are {len(tensors)} "
            "tensors")
    _arguments.word(order, "order")
    if order == "zigzag_docs":
        raise UnsupportedError(
            "reshuffle has no documents, which the order zigzag_docs goes by")
    local = shapes[0][1]
    if direction == _abi.SEQ_TO_HEAD or rows is not None:
        whole = global_rows(rows, splits, local, comm.nranks)
    else:
        whole = local  # all rows are on this rank
    if _is_traced(tensors[0]):
        return tuple(_operators.reshuffle(
            list(tensors), direction, list(heads), comm.number, whole, order,
            None if splits is None else list(splits)))
    call = _reshuffle.call_of(
        comm, direction, shapes[0][0], whole, heads,
        [shape[3] for shape in shapes],
        _tensors.dtype_code(tensors[0], "tensor 0"), order, splits)
    return _reshuffle.Reshuffle.apply(  # type: ignore[no-any-return]
        call, *tensors)


def ulysses(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *,
            core: Any = "sdpa", comm: Optional[Communicator] = None,
            layout: str = "bshd", rows: Optional[int] = None,
            causal: bool = False, window: Optional[Window] = None,
            documents: Any = None, scale: Optional[float] = None,
            order: str = "contiguous",
            splits: Optional[Sequence[int]] = None) -> torch.Tensor:
    """As attention(), but with the attention of `core`: "sdpa", or a function
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
    if not torch.compiler.is_compiling():
        _arguments.attention((q, k, v), layout, causal, "", scale, None, order)
        window = _arguments.window(window)
        rows, _, splits = _arguments.lengths(rows, None, splits, comm.nranks)
    axes = axes_of(layout)
    if axes is not None:
        q, k, v = (tensor.transpose(*axes) for tensor in (q, k, v))
    if not q.dtype == k.dtype == v.dtype:
        q, k, v = one_dtype(q, k, v)
    heads = [int(tensor.shape[2]) for tensor in (q, k, v)]
    rows = global_rows(rows, splits, q.shape[1], comm.nranks)
    if documents is not None and not _is_traced(q):
        _arguments.documents_of_core(documents, q.shape[0], rows)
    q, k, v = _exchanged(comm, _abi.SEQ_TO_HEAD, (q, k, v), heads, rows, order,
                         splits)
    first, count = _split.heads_of(heads[0], comm.nranks, comm.rank)
    if count:
        out = function(q, k, v, Head(
            causal, window, scale, documents, _split.kv_map_of(
                heads[0], heads[1], comm.nranks, comm.rank), first))
    else:  # The result depends on q, k, v, so that backward takes part in the exchange.
        out = q[..., :1].expand(*q.shape[:3], v.shape[3]) + \
            (k.sum() + v.sum()) * 0
    out, = _exchanged(comm, _abi.HEAD_TO_SEQ, (out,), heads[:1], rows, order,
                      splits)
    return out if axes is None else out.transpose(*axes)
