# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch in the form that the library takes: strides, copies, new
tensors in windows, document tables."""
import functools
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from .. import _abi
from ..arrays import Docs
from ..communicator import Communicator
from ..errors import (InternalError, InvalidArgumentError,
                      UnsupportedError)
from . import _device

DTYPES = {
    torch.float64: _abi.DTYPE_F64, torch.float32: _abi.DTYPE_F32,
    torch.bfloat16: _abi.DTYPE_BF16, torch.float16: _abi.DTYPE_F16,
}
TORCH_DTYPES = {code: dtype for dtype, code in DTYPES.items()}
# For smaller tensors torch's own allocator costs less.
WINDOW_BYTES = 1 << 16

Strides = Tuple[int, ...]  # of batch, rows and heads, in elements
Shape = Tuple[int, ...]  # batch, rows, heads, dim


def dtype_code(tensor: torch.Tensor, name: str) -> int:
    code = DTYPES.get(tensor.dtype)
    if code is None:
        raise UnsupportedError(
            f"{name} is of type {tensor.dtype}; there are "
            f"{', '.join(map(str, DTYPES))}")
    return code


def dense_strides(shape: Shape) -> Strides:
    """Returns the strides of a dense [b, s, h, d] tensor; if it has no
    elements, those that torch gives."""
    _, rows, heads, dim = (max(extent, 1) for extent in shape)
    return (rows * heads * dim, heads * dim, dim)


def span(shape: Shape, strides: Strides) -> int:
    """Returns the elements from the first to the last of a tensor, or 0 if it
    has none."""
    if 0 in shape:
        return 0
    return shape[3] + sum((extent - 1) * stride
                          for extent, stride in zip(shape, strides))


def layout_of(tensor: torch.Tensor) -> Optional[Strides]:
    """Returns the strides with which the library can take a [b, s, h, d] tensor
    as it lies. Strides of axes with at most one row mean nothing, so they are
    made dense. Returns None if the tensor must be copied: its elements are
    repeated or scattered, or it spans more than four times the memory of a
    dense one, which gradients would need too."""
    shape = tuple(tensor.shape)
    *outer, inner = tensor.stride()
    dense = dense_strides(shape)
    strides = tuple(own if extent > 1 else usual for extent, own, usual in
                    zip(shape, outer, dense))
    if tensor.numel() == 0:
        return dense
    if strides == dense and (inner == 1 or shape[3] == 1):
        return strides
    if inner != 1 or 0 in strides or \
            span(shape, strides) > 4 * tensor.numel():
        return None
    # No element may occur twice: from the densest axis on, each axis begins
    # beyond the end of the last.
    end = shape[3]
    for stride, extent in sorted(zip(strides, shape)):
        if extent > 1:
            if stride < end:
                return None
            end = stride * (extent - 1) + end
    return strides


def layout_on(comm: Communicator, tensor: torch.Tensor) -> Optional[Strides]:
    """As layout_of() on host memory. On devices None, because a call cannot pass
    strides there: the strides of creation hold, which are dense, and the tensor
    must also lie in memory that the library can take."""
    return None if comm.cuda else layout_of(tensor)


def of_any_rows(layout: Strides, batch: int) -> bool:
    """Returns whether tensors of other lengths may have these strides too:
    there is one batch item, and heads lie within rows."""
    return batch == 1 and layout[2] < layout[1]


# the axes that a tensor has swapped; None: [b, s, h, d]
Axes = Optional[Tuple[int, int]]


def swapped(values: Tuple[int, ...], axes: Axes) -> Tuple[int, ...]:
    """Returns extents or strides of [b, s, h, d] as a tensor with swapped axes
    has them."""
    if axes is None:
        return values
    order = list(values)
    order[axes[0]], order[axes[1]] = values[axes[1]], values[axes[0]]
    return tuple(order)


def maker(comm: Communicator, shape: Shape, strides: Strides,
          dtype: torch.dtype, axes: Axes = None) -> Callable[[], torch.Tensor]:
    """Returns a function that makes new tensors of this shape [b, s, h, d],
    with axes swapped. If they are not small, they lie in memory that all ranks
    reach."""
    count = span(shape, strides)
    whole, shape = swapped((*strides, 1), axes), swapped(shape, axes)
    size = count * dtype.itemsize
    if comm.cuda:
        on_device = _device.pool_of(comm).empty
        return lambda: on_device(count, dtype).as_strided(shape, whole)
    if size < WINDOW_BYTES:
        # torch.empty() takes half as long again.
        return functools.partial(torch.empty_strided, shape, whole,
                                 dtype=dtype)
    take = comm.pool.take
    return lambda: torch.frombuffer(take(size), dtype=dtype).as_strided(
        shape, whole)


def empty(comm: Communicator, shape: Shape, strides: Strides,
          dtype: torch.dtype) -> torch.Tensor:
    """Returns one such tensor."""
    return maker(comm, shape, strides, dtype)()


def like(comm: Communicator, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a new tensor of this shape and type, which no other rank needs to
    reach."""
    if not comm.cuda:
        return torch.empty_like(tensor)
    cuda = _device.pool_of(comm).cuda
    made: torch.Tensor = cuda.empty(tensor.numel(), tensor.dtype, False)
    return made.view(tensor.shape)


def placed(tensor: torch.Tensor, strides: Strides,
           comm: Communicator) -> torch.Tensor:
    """Returns the tensor itself if it has these strides and, on a device, lies
    in memory that the library can take; else a copy for which this holds."""
    if layout_of(tensor) == strides and \
            (not comm.cuda or _device.pool_of(comm).reaches(tensor)):
        return tensor
    copy = empty(comm, tuple(tensor.shape), strides, tensor.dtype)
    return copy.copy_(tensor)


def head_memory(comm: Communicator) -> int:
    """Returns where workspace and saved lie: in windows, or in plain memory if
    there is only one rank."""
    return _abi.POINTER_ANY if comm.nranks == 1 else _abi.POINTER_WINDOW


def block_maker(comm: Communicator, size: int) -> Callable[[], torch.Tensor]:
    """Returns a function that makes blocks of so many bytes in such memory,
    aligned to 64 as torch's own are."""
    if comm.cuda:
        return functools.partial(_device.pool_of(comm).empty, size, torch.uint8)
    if size == 0 or (comm.nranks == 1 and size < WINDOW_BYTES):
        return functools.partial(torch.empty_strided, (size,), (1,),
                                 dtype=torch.uint8)
    take = comm.pool.take
    return lambda: torch.frombuffer(take(size), dtype=torch.uint8)


def in_bytes(strides: Strides, dtype: torch.dtype) -> Tuple[int, ...]:
    """Returns strides in bytes, as the library takes them."""
    return tuple(dtype.itemsize * stride for stride in strides)


def bshd(tensor: torch.Tensor, axes: Axes) -> torch.Tensor:
    """Returns a tensor with swapped axes as [b, s, h, d]."""
    return tensor if axes is None else tensor.transpose(*axes)


def told(name: Any, tensor: torch.Tensor, layout: Optional[Strides],
         usual: Strides, comm: Communicator, moved: Dict[Any, Any]
         ) -> torch.Tensor:
    """Returns the tensor itself and puts its layout_of(), in bytes, into
    `moved`, unless it is the usual one. If it has no layout, returns a copy
    with the usual one."""
    if layout is None:
        return placed(tensor, usual, comm)
    if layout != usual:
        moved[name] = [in_bytes(layout, tensor.dtype)]
    return tensor


def block(comm: Communicator, size: int) -> torch.Tensor:
    """Returns one such block."""
    return block_maker(comm, size)()


def promised(comm: Communicator, room: int, needed: int) -> torch.Tensor:
    """As block(), with the size that traced code was given."""
    if needed > room:
        raise InternalError(
            f"forward saves {needed} bytes, and traced code has {room}")
    made = block(comm, room)
    made[needed:].zero_()
    return made


def in_place(comm: Communicator, tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes themselves if they lie as block() places them, else a
    copy that does: hooks may have moved what was saved (offloading)."""
    size, address = tensor.numel(), tensor.data_ptr()
    if comm.cuda:
        return tensor if _device.pool_of(comm).reaches(tensor) and \
            address % 64 == 0 else block(comm, size).copy_(tensor)
    if not size or comm.pool.holds(address, size) or \
            (comm.nranks == 1 and address % 64 == 0):
        return tensor
    return block(comm, size).copy_(tensor)


def per_head_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the type of sinks and slopes for tensors of this type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_per_head(given: torch.Tensor, name: str, heads: int,
                   dtype: torch.dtype) -> None:
    """Checks a tensor of one number per query head, and returns it as the
    library reads it."""
    if tuple(given.shape) != (heads,):
        raise InvalidArgumentError(
            f"{name} has the shape {tuple(given.shape)}, not ({heads},)")
    if given.dtype != per_head_dtype(dtype) or not given.is_contiguous():
        raise InvalidArgumentError(
            f"{name} is {given.dtype}, strides {given.stride()}; it is to be "
            f"{per_head_dtype(dtype)} and contiguous")


def docs_of(given: Any, name: str) -> Optional[Docs]:
    """Docs.of() that also takes a tensor. Its numbers are copied, for the table is
    needed again in backward."""
    if not isinstance(given, torch.Tensor):
        return Docs.of(given, name)
    if given.dim() != 1:
        raise InvalidArgumentError(
            f"{name} have the shape {tuple(given.shape)}, not [n + 1]")
    if given.is_floating_point() or given.is_complex():
        raise InvalidArgumentError(
            f"{name} are of type {given.dtype}; whole numbers are expected")
    return Docs(given.detach().cpu().numpy().copy(), name=name)


class DocsOf:
    """Document tables of tensors. Every layer passes the same tensor, so the
    last one is remembered."""

    def __init__(self) -> None:
        self._last: Any = (lambda: None, -1, None)

    def __call__(self, given: Any) -> Optional[Docs]:
        if not isinstance(given, torch.Tensor):
            return Docs.of(given)
        tensor, version, docs = self._last
        if tensor() is given and version == given._version:
            return docs  # type: ignore[no-any-return]
        docs = docs_of(given, "documents")
        self._last = (weakref.ref(given), given._version, docs)
        return docs


def once(gradients: Callable[..., Any], ctx: Any, *given: Any) -> Any:
    """Returns the gradients of a Function when a graph of them is requested.
    The graph cannot be differentiated again; an attempt raises the reason."""
    return torch.autograd.function.once_differentiable(gradients)(ctx, *given)
