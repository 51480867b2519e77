# SPDX-License-Identifier: Apache-2.0
"""The exchange alone, with gradients: the layer around ulyx.Plan. As in
_attention.py, _operators.py has it for compiled code."""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..communicator import Communicator
from ..errors import InvalidArgumentError, UlyxError
from ..plan import Part, Plan, Tensor
from . import _device, _names, _tensors
from ._cache import Cache, Capacity, Lengths, Spec, cache_of

ADJOINT = {_abi.SEQ_TO_HEAD: _abi.SEQ_TO_HEAD_ADJOINT,
           _abi.HEAD_TO_SEQ: _abi.HEAD_TO_SEQ_ADJOINT}


class Kind(NamedTuple):
    """The key of a plan, without lengths."""

    direction: int
    batch: int
    heads: int
    tensors: Tuple[Tuple[int, int, bool], ...]  # heads, dim, kv
    dtype: int
    order: str
    uneven: bool  # whether splits are given
    # on device memory, where the rows of an object do not change
    lengths: Optional[Lengths] = None


class Call(NamedTuple):
    """One call: what it runs on, and its arguments other than tensors."""

    comm: Communicator
    cache: Cache
    spec: Spec
    direction: int


def call_of(comm: Communicator, direction: int, batch: int, rows: int,
            heads: Sequence[int], dims: Sequence[int], dtype: int, order: str,
            splits: Optional[Sequence[int]]) -> Call:
    """Returns the Call of an exchange of tensors with these heads and dims."""
    kind = Kind(direction, batch, heads[0],
                tuple((count, dim, count != heads[0])
                      for count, dim in zip(heads, dims)),
                dtype, order, splits is not None)
    lengths = Lengths((rows,), None if splits is None else tuple(splits))
    if comm.cuda:
        kind = kind._replace(lengths=lengths)
    return Call(comm, cache_of(comm), Spec(kind, lengths), direction)


class Entry:
    """A plan, and how this rank's tensors lie in it, for the lengths of one
    call, or for all lengths up to a capacity."""

    def __init__(self, call: Call, capacity: Capacity,
                 layouts: Sequence[Optional[_tensors.Strides]]) -> None:
        kind: Any = call.spec.kind
        self.comm, self.kind, self.lengths = call.comm, kind, call.spec.lengths
        self.dtype = _tensors.TORCH_DTYPES[kind.dtype]
        self.moving = capacity is not None
        # Where rows change, calls pass strides that depend on them.
        self.given = [
            None if layout is None or self.moving and not _tensors.of_any_rows(
                layout, kind.batch) else layout for layout in layouts]
        self.to_head = kind.direction == _abi.SEQ_TO_HEAD
        self.plan = Plan(
            call.comm, self._of_plan(), [Part(
                self.lengths.rows[0], order=kind.order,
                splits=self.lengths.splits,
                row_capacity=0 if capacity is None else capacity[0])],
            batch=kind.batch, heads=kind.heads,
            directions=(1 << kind.direction) | (1 << ADJOINT[kind.direction]))
        self._measure()

    def _of_plan(self) -> List[Tensor]:
        side = "seq_strides" if self.to_head else "head_strides"
        made = []
        for (heads, dim, kv), layout in zip(self.kind.tensors, self.given):
            strides: Any = {
                side: _tensors.in_bytes(layout or (0, 0, 0), self.dtype)}
            # In torch a gradient has the type of its tensor.
            made.append(Tensor(heads, dim, self.kind.dtype, kv=kv,
                               partial_dtype=self.kind.dtype, **strides))
        return made

    def _measure(self) -> None:
        """Computes what follows from the rows: the shapes of this rank's
        tensors."""
        direction, numbers = self.kind.direction, range(len(self.given))
        self.shapes: List[Any] = [self.plan.shape(i, direction, True)
                                  for i in numbers]
        results = [self.plan.shape(i, direction) for i in numbers]
        usual = [_tensors.dense_strides(shape) for shape in self.shapes]
        self.layouts = [
            dense if layout is None else
            (dense[0], *layout[1:]) if self.moving else layout
            for layout, dense in zip(self.given, usual)]
        self.dense = [_tensors.dense_strides(shape) for shape in results]
        self.new_results = [
            _tensors.maker(self.comm, shape, strides, self.dtype)
            for shape, strides in zip(results, self.dense)]
        self.new_grads = [
            _tensors.maker(self.comm, shape, layout, self.dtype)
            for shape, layout in zip(self.shapes, self.layouts)]

    def follow(self, lengths: Lengths) -> None:
        """Gives the plan the rows of the call."""
        if lengths != self.lengths:
            self.plan.update_rows(lengths.rows, lengths.splits_of_parts)
            self.lengths = lengths
            self._measure()

    def check_shapes(self, given: Sequence[torch.Tensor]) -> None:
        """Checks that this rank's tensors are those that it must have."""
        for i, (tensor, shape) in enumerate(zip(given, self.shapes)):
            if tuple(tensor.shape) != shape:
                raise InvalidArgumentError(
                    f"rank {self.comm.rank}: tensor {i} has the shape "
                    f"{tuple(tensor.shape)}; of {self.lengths.rows[0]} rows "
                    f"and {self.kind.heads} heads over {self.comm.nranks} ranks "
                    f"this one has {shape}")

    def take(self, given: Sequence[torch.Tensor],
             usual: Sequence[_tensors.Strides]) -> Tuple[Any, Any]:
        """Returns (tensors whose addresses are passed, their strides or None if
        all lie as the plan has them)."""
        moved: Any = {}
        taken = [_tensors.told(i, tensor, _tensors.layout_on(self.comm, tensor),
                               layout, self.comm, moved)
                 for i, (tensor, layout) in enumerate(zip(given, usual))]
        if not moved:
            return taken, None
        return taken, [
            moved[i][0] if i in moved else _tensors.in_bytes(layout, self.dtype)
            for i, layout in enumerate(usual)]

    def refuse(self, direction: int, error: Exception) -> None:
        """As Entry.refuse of attention."""
        try:
            self.plan.refuse(direction, _names.reason_of(error),
                             _device.stream_of(self.comm))
        except UlyxError:
            pass  # the caller raises its own error


def entry_of(call: Call, given: Optional[Sequence[torch.Tensor]]) -> Entry:
    """Returns the plan of a call, and makes it if there is none: for these
    tensors, or for dense ones."""
    def make(capacity: Capacity) -> Entry:
        kind: Any = call.spec.kind
        return Entry(call, capacity, [None] * len(kind.tensors)
                     if given is None else
                     [_tensors.layout_on(call.comm, tensor)
                      for tensor in given])
    return call.cache.find(call.spec, make)  # type: ignore[no-any-return]


def _explain(error: UlyxError, call: Call,
             given: Sequence[torch.Tensor]) -> None:
    _names.explain(error, _names.RESHUFFLE, call.comm, call.spec.lengths,
                   given[0].shape[1])


def forward(call: Call, given: Sequence[torch.Tensor]
            ) -> Tuple[Entry, List[torch.Tensor]]:
    """Returns (entry, results) of [b, s, h, d] tensors."""
    comm, cache = call.comm, call.cache
    cache.enter()
    try:
        entry = entry_of(call, given)
        try:
            entry.follow(call.spec.lengths)
            entry.check_shapes(given)
            given, strides = entry.take(given, entry.layouts)
            results = [new() for new in entry.new_results]
        except Exception as error:
            entry.refuse(call.direction, error)
            raise
        entry.plan.execute_addresses(
            call.direction, [t.data_ptr() for t in given],
            [t.data_ptr() for t in results], _device.stream_of(comm), strides)
    except UlyxError as error:
        _explain(error, call, given)
        raise
    finally:
        cache.leave()
    return entry, results


def backward(call: Call, entry: Entry,
             given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Returns the gradients of the inputs from those of the results."""
    call.cache.enter()
    try:
        try:
            entry.follow(call.spec.lengths)
            given, strides = entry.take(given, entry.dense)
            grads = [new() for new in entry.new_grads]
        except Exception as error:
            entry.refuse(ADJOINT[call.direction], error)
            raise
        entry.plan.execute_addresses(
            ADJOINT[call.direction], [t.data_ptr() for t in given],
            [t.data_ptr() for t in grads], _device.stream_of(call.comm),
            strides)
    except UlyxError as error:
        _explain(error, call, given)
        raise
    finally:
        call.cache.leave()
    return grads


def _gradients(ctx: Any, *given: torch.Tensor) -> Any:
    return (None, *backward(ctx.call, ctx.entry, given))


class Reshuffle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *given: torch.Tensor) -> Any:
        ctx.call = call
        ctx.entry, results = forward(call, given)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor) -> Any:
        if torch.is_grad_enabled():
            return _tensors.once(_gradients, ctx, *given)
        return _gradients(ctx, *given)
