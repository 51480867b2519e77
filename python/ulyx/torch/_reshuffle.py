# SPDX-License-Identifier: Apache-2.0
"""The exchange alone, with gradients: the layer around ulyx.Plan. As in
_attention.py, _operators.py has it for compiled code."""
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _abi
from ..communicator import Communicator
from ..errors import InvalidArgumentError, UlyxError
from ..plan import Part, Plan, Tensor
from . import _tensors
from ._cache import Cache

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
        self.comm, self.spec = comm, spec
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
        self.layouts = [layout if any(layout) else _tensors.dense_strides(shape)
                        for layout, shape in zip(layouts, shapes)]
        self.layouts = [layout if any(layout) else _tensors.dense_strides(shape)
                        for layout, shape in zip(layouts, shapes)]
        self.first_head, count = self.plan.head_range(0)
        self.kv_map = torch.arange(count)
        if to_head and len(tensors) > 1 and tensors[1].kv:
            self.kv_map = torch.from_numpy(self.plan.kv_map(0, 1))
        self.dense = [_tensors.dense_strides(shape)
                      for shape in results]
        self.new_results = [
            _tensors.maker(comm, shape, strides, self.dtype)
            for shape, strides in zip(results, self.dense)]
        self.new_grads = [
            _tensors.maker(comm, shape, layout, self.dtype)
            for shape, layout in zip(shapes, self.layouts)]

    def check_shapes(self, given: Sequence[torch.Tensor]) -> None:
        """This rank's tensors are those that it is to have."""
        for i, (tensor, shape) in enumerate(zip(given, self.shapes)):
            if tuple(tensor.shape) != shape:
                raise InvalidArgumentError(
                    f"rank {self.comm.rank}: tensor {i} has the shape "
                    f"{tuple(tensor.shape)}; of {self.spec.rows} rows and "
                    f"{self.spec.heads} heads over {self.comm.nranks} ranks "
                    f"this one has {shape}")

    def refuse(self, direction: int) -> None:
        """As Entry.refuse of attention: without tensors the library refuses
        this rank's call and tells the peers."""
        nothing = [0] * len(self.shapes)
        try:
            self.plan.execute_addresses(direction, nothing, nothing)
        except UlyxError:
            pass


class Call(NamedTuple):
    comm: Communicator
    cache: Cache
    spec: Spec


def entry_of(call: Call, given: Optional[Sequence[torch.Tensor]]) -> Entry:
    """The plan of a call, made where there is none: for these tensors, or dense
    ones."""
    entry: Optional[Entry] = call.cache.find(call.spec)
    if entry is None:
        layouts = [(0, 0, 0)] * len(call.spec.tensors) if given is None else [
            _tensors.layout_of(t) or _tensors.dense_strides(tuple(t.shape))
            for t in given]
        entry = Entry(call.comm, call.spec, layouts)
        call.cache.keep(call.spec, entry)
    return entry


def forward(call: Call, given: Sequence[torch.Tensor]
            ) -> Tuple[Entry, List[torch.Tensor]]:
    """(entry, results) of [b, s, h, d] tensors."""
    comm, cache, spec = call
    cache.enter()
    try:
        entry = entry_of(call, given)
        try:
            entry.check_shapes(given)
            given = [_tensors.placed(tensor, layout, comm)
                     for tensor, layout in zip(given, entry.layouts)]
            results = [new() for new in entry.new_results]
        except Exception:
            entry.refuse(spec.direction)
            raise
        entry.plan.execute_addresses(
            spec.direction, [t.data_ptr() for t in given],
            [t.data_ptr() for t in results])
    finally:
        cache.leave()
    return entry, results


def backward(call: Call, entry: Entry,
             given: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Gradients of the inputs from those of the results."""
    call.cache.enter()
    try:
        try:
            given = [_tensors.placed(tensor, layout, call.comm)
                     for tensor, layout in zip(given, entry.dense)]
            grads = [new() for new in entry.new_grads]
        except Exception:
            entry.refuse(ADJOINT[call.spec.direction])
            raise
        entry.plan.execute_addresses(
            ADJOINT[call.spec.direction], [t.data_ptr() for t in given],
            [t.data_ptr() for t in grads])
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
