# SPDX-License-Identifier: Apache-2.0
"""Attention and exchange as operators of torch.library, for torch.compile,
torch.export and other tracers.

Tracing must not call other ranks, so shapes come from _split.py. A communicator
is a number here, and what a call depends on beside its tensors is spelled out as
numbers and words; the bodies are those of the eager path. Gradients are dense.
"""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..communicator import by_number
from . import _attention, _reshuffle, _split, _tensors
from ._cache import Lengths, Spec, cache_of

_EXACT = (torch.Tag.needs_exact_strides,)


# ---- attention -----------------------------------------------------------------
def _call(comm_number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
          sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor],
          docs: Optional[torch.Tensor], rows: int, kv_rows: int, mask: str,
          left: int, right: int, align: str, scale: float, softcap: float,
          order: str, splits: Optional[Sequence[int]]) -> _attention.Call:
    """Returns the Call that the eager path would have for these tensors."""
    for name, given in (("sinks", sinks), ("alibi_slopes", slopes)):
        if given is not None:
            _tensors.check_per_head(given, name, q.shape[2], q.dtype)
    comm = by_number(comm_number)
    cache = cache_of(comm)
    tables = None if docs is None else cache.docs_of(docs)
    kind = _attention.Kind(
        q.shape[0], q.shape[2], k.shape[2], q.shape[3], v.shape[3],
        _tensors.dtype_code(q, "q"), mask, left, right, align, scale, softcap,
        order, splits is not None, kv_rows >= 0,
        _attention.max_docs(tables, None))
    lengths = Lengths((rows,) if kv_rows < 0 else (rows, kv_rows),
                      None if splits is None else tuple(splits))
    if comm.cuda:
        kind = kind._replace(lengths=lengths)
    return _attention.Call(
        comm, cache, Spec(kind, lengths), tables, None,
        tuple(_tensors.layout_on(comm, tensor) for tensor in (q, k, v)),
        (q.shape[1], k.shape[1]))


def _room(comm_number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
          rows: Any, kv_rows: Any) -> Any:
    # Heads and dims belong to the model: int() keeps them from becoming
    # variables.
    comm = by_number(comm_number)
    return _split.saved_bytes(
        q.shape[0], rows, rows if kv_rows < 0 else kv_rows, int(q.shape[2]),
        int(k.shape[2]), int(q.shape[3]), int(v.shape[3]), q.dtype.itemsize,
        comm.nranks, comm.rank)


@torch.library.custom_op("ulyx::attention", mutates_args=(), tags=_EXACT)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
              sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor],
              docs: Optional[torch.Tensor], comm: int, rows: int, kv_rows: int,
              mask: str, left: int, right: int, align: str, scale: float,
              softcap: float, order: str, splits: Optional[Sequence[int]]
              ) -> Tuple[torch.Tensor, torch.Tensor]:
    """Returns (out, saved)."""
    call = _call(comm, q, k, v, sinks, slopes, docs, rows, kv_rows, mask, left,
                 right, align, scale, softcap, order, splits)
    room = _room(comm, q, k, v, rows, kv_rows)
    out, saved, _ = _attention.forward(call, q, k, v, sinks, slopes, room=room)
    return out, saved


@attention.register_fake
def _(q: Any, k: Any, v: Any, sinks: Any, slopes: Any, docs: Any, comm: int,
      rows: Any, kv_rows: Any, *options: Any) -> Any:
    shape = (q.shape[0], q.shape[1], q.shape[2], v.shape[3])
    room = _room(comm, q, k, v, rows, kv_rows)
    return q.new_empty(shape), q.new_empty((room,), dtype=torch.uint8)


@torch.library.custom_op("ulyx::attention_backward", mutates_args=(),
                         tags=_EXACT)
def attention_backward(
        dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        out: torch.Tensor, saved: torch.Tensor, sinks: Optional[torch.Tensor],
        slopes: Optional[torch.Tensor], docs: Optional[torch.Tensor],
        comm: int, rows: int, kv_rows: int, mask: str, left: int, right: int,
        align: str, scale: float, softcap: float, order: str,
        splits: Optional[Sequence[int]]
        ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (dq, dk, dv, d_sinks); d_sinks is empty without sinks."""
    call = _call(comm, q, k, v, sinks, slopes, docs, rows, kv_rows, mask, left,
                 right, align, scale, softcap, order, splits)
    entry = _attention.entry_of(call, (q, k, v))
    *grads, d_sinks = _attention.backward(call, entry, dout, out, saved, 0,
                                          sinks, slopes)
    dq, dk, dv = (grad.contiguous() for grad in grads)  # type: ignore[union-attr]
    return dq, dk, dv, dq.new_empty(0) if d_sinks is None else d_sinks


@attention_backward.register_fake
def _(dout: Any, q: Any, k: Any, v: Any, out: Any, saved: Any, sinks: Any,
      slopes: Any, docs: Any, comm: int, *options: Any) -> Any:
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape),
            q.new_empty(0) if sinks is None else sinks.new_empty(sinks.shape))


def _attention_context(ctx: Any, inputs: Any, output: Any) -> None:
    q, k, v, sinks, slopes, docs, *options = inputs
    ctx.options = options
    ctx.save_for_backward(q, k, v, *output, sinks, slopes, docs)


def _attention_gradients(ctx: Any, dout: Any, dsaved: Any) -> Any:
    q, k, v, out, saved, sinks, slopes, docs = ctx.saved_tensors
    dq, dk, dv, d_sinks = attention_backward(
        dout, q, k, v, out, saved, sinks, slopes, docs, *ctx.options)
    return (dq, dk, dv, None if sinks is None else d_sinks, None, None,
            *(None for _ in ctx.options))


def _refused(ctx: Any, *_: Any) -> Any:
    raise RuntimeError("ulyx: the gradient cannot be differentiated again "
                       "(double backward)")


attention.register_autograd(_attention_gradients,
                            setup_context=_attention_context)
attention_backward.register_autograd(_refused)


# ---- exchange ------------------------------------------------------------------
class _Shapes(NamedTuple):
    """The shapes of the results of an exchange of tensors with these heads on
    this rank."""

    rows: Any
    heads: List[int]


def _shapes(comm_number: int, to_head: bool, heads: Sequence[int], rows: Any,
            order: str, splits: Optional[Sequence[int]]) -> _Shapes:
    comm = by_number(comm_number)
    heads = [int(count) for count in heads]
    if not to_head:
        return _Shapes(_split.rows_of(rows, comm.nranks, comm.rank, order,
                                      splits), heads)
    return _Shapes(rows, [
        _split.kv_heads_of(heads[0], count, comm.nranks, comm.rank)
        for count in heads])


def _exchange(tensors: Sequence[torch.Tensor], adjoint: bool, direction: int,
              heads: Sequence[int], comm_number: int, rows: int, order: str,
              splits: Optional[Sequence[int]],
              dims: Sequence[int]) -> List[torch.Tensor]:
    comm = by_number(comm_number)
    call = _reshuffle.call_of(
        comm, direction, tensors[0].shape[0], rows, heads, dims,
        _tensors.dtype_code(tensors[0], "tensor 0"), order, splits)
    if not adjoint:
        return _reshuffle.forward(call, tensors)[1]
    entry = _reshuffle.entry_of(call, None)
    return [grad.contiguous()
            for grad in _reshuffle.backward(call, entry, tensors)]


@torch.library.custom_op("ulyx::reshuffle", mutates_args=(), tags=_EXACT)
def reshuffle(tensors: Sequence[torch.Tensor], direction: int,
              heads: Sequence[int], comm: int, rows: int, order: str,
              splits: Optional[Sequence[int]]) -> List[torch.Tensor]:
    """Exchanges [b, s, h, d] tensors."""
    return _exchange(tensors, False, direction, heads, comm, rows, order,
                     splits, [tensor.shape[3] for tensor in tensors])


@reshuffle.register_fake
def _(tensors: Any, direction: int, heads: Any, comm: int, rows: Any,
      order: str, splits: Any) -> Any:
    found = _shapes(comm, direction == _abi.SEQ_TO_HEAD, heads, rows, order,
                    splits)
    return [t.new_empty((t.shape[0], found.rows, count, t.shape[3]))
            for t, count in zip(tensors, found.heads)]


@torch.library.custom_op("ulyx::reshuffle_backward", mutates_args=(),
                         tags=_EXACT)
def reshuffle_backward(grads: Sequence[torch.Tensor], direction: int,
                       heads: Sequence[int], comm: int, rows: int, order: str,
                       splits: Optional[Sequence[int]]) -> List[torch.Tensor]:
    """Returns the gradients of reshuffle's tensors from those of its
    results."""
    return _exchange(grads, True, direction, heads, comm, rows, order, splits,
                     [grad.shape[3] for grad in grads])


@reshuffle_backward.register_fake
def _(grads: Any, direction: int, heads: Any, comm: int, rows: Any, order: str,
      splits: Any) -> Any:
    found = _shapes(comm, direction != _abi.SEQ_TO_HEAD, heads, rows, order,
                    splits)
    return [g.new_empty((g.shape[0], found.rows, count, g.shape[3]))
            for g, count in zip(grads, found.heads)]


def _reshuffle_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.options = inputs[1:]


def _reshuffle_gradients(ctx: Any, grads: Any) -> Any:
    return (reshuffle_backward(grads, *ctx.options),
            *(None for _ in ctx.options))


reshuffle.register_autograd(_reshuffle_gradients,
                            setup_context=_reshuffle_context)
reshuffle_backward.register_autograd(_refused)
