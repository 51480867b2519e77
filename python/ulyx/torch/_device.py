# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory of a CUDA device: where they come from, and on which stream
calls run.

The library moves device memory between windows, but tensors of a model come
from torch's own allocator. Therefore a second pool of torch's caching allocator
takes its segments from the library (ulyx/pool.h), which makes each of them a
window. Results, gradients, workspace and what forward saves are allocated
there; inputs that lie elsewhere are copied there first. Because the pool
belongs to the caching allocator, memory is reused in stream order, as for any
tensor.
"""
from typing import Any, Dict, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _abi, errors
from .._library import lib
from ..communicator import Communicator

BLOCKS = 4096  # how many are known to lie in windows
HOST = torch.device("cpu")


def device_of(comm: Communicator) -> torch.device:
    """Returns the device on which the tensors of a communicator lie."""
    return HOST if comm.device is None else torch.device("cuda", comm.device)


def check_place(tensor: torch.Tensor, name: str, comm: Communicator) -> None:
    """Checks that the tensor lies where the communicator's tensors do."""
    wanted = device_of(comm)
    if tensor.device != wanted:
        raise errors.InvalidArgumentError(
            f"{name} is on {tensor.device}, and the tensors of this "
            f"communicator are on {wanted}, as device={comm.device} of its "
            "creation says")


class Cuda:
    """A device, by the functions of torch.cuda."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        self._allocator: Any = None
        self._pool: Any = None

    def stream(self) -> int:
        """Returns the stream on which torch enqueues now, in the form that the
        library takes."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def wait(self) -> None:
        """Waits until all enqueued work has ended."""
        torch.cuda.synchronize(self.device)

    def empty(self, count: int, dtype: torch.dtype,
              windows: bool) -> torch.Tensor:
        """Returns new elements on the device, in a segment of the library or of
        torch."""
        if not windows:
            return torch.empty(count, dtype=dtype, device=self.device)
        if self._pool is None:
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(
                lib._name, "ulyx_pool_malloc", "ulyx_pool_free")
            self._pool = torch.cuda.MemPool(self._allocator.allocator())
        with torch.cuda.use_mem_pool(self._pool, self.device):
            return torch.empty(count, dtype=dtype, device=self.device)


class DevicePool:
    """Device memory that all ranks of a communicator reach directly, if they
    can. Plans between devices that cannot map each other's memory exchange by
    messages, from any memory of the device. The pool is closed with its
    communicator."""

    def __init__(self, comm: Communicator, cuda: Any) -> None:
        self.cuda, self._comm = cuda, comm.handle
        self._known: Dict[int, StorageWeakRef] = {}
        self.windows = comm.nranks > 1 and self._attach()

    def _attach(self) -> bool:
        status = lib.ulyx_pool_attach(self._comm)
        if status in (_abi.SUCCESS, _abi.ERR_UNSUPPORTED):
            return bool(status == _abi.SUCCESS)
        raise errors.of(status, lib.ulyx_last_error().decode(errors="replace"))

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Returns so many new elements, in a window if the pool has windows."""
        made: torch.Tensor = self.cuda.empty(count, dtype, self.windows)
        if not self.windows:
            return made
        if len(self._known) >= BLOCKS:
            self._known = {address: block for address, block in
                           self._known.items() if not block.expired()}
        storage = made.untyped_storage()
        self._known[storage.data_ptr()] = StorageWeakRef(storage)
        return made

    def reaches(self, tensor: torch.Tensor) -> bool:
        """Returns whether the library can take the tensor where it lies: it
        must be a part of a live tensor that empty() has made."""
        if not self.windows:
            return True
        block = self._known.get(tensor.untyped_storage().data_ptr())
        return block is not None and not block.expired()

    def settle(self) -> None:
        """Waits until the enqueued calls have ended; then what belongs to them
        can be destroyed."""
        self.cuda.wait()

    def close(self) -> None:
        """Takes the pool's windows back from the communicator."""
        if self.windows:
            self.windows = False
            lib.ulyx_pool_detach(self._comm)


def pool_of(comm: Communicator) -> DevicePool:
    """Returns the pool of a communicator of device memory, made at its first
    use."""
    assert comm.device is not None
    held = comm._handle
    if held.pool is None:
        held.pool = DevicePool(comm, Cuda(comm.device))
    return held.pool  # type: ignore[no-any-return]


def stream_of(comm: Communicator) -> Optional[int]:
    """Returns the stream of a call that is made now: None for host memory. 0,
    torch's default stream, is the NULL stream."""
    return pool_of(comm).cuda.stream() if comm.cuda else None
