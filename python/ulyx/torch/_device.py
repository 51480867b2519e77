# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory of a CUDA device: where they come from, and on which stream
calls go.

The library moves device memory between windows, while tensors of a model come
from torch's own allocator. So a second pool of torch's caching allocator takes
its segments from the library (ulyx/pool.h), which makes each of them a window;
results, gradients, workspace and what forward saves are allocated there, and
inputs that lie elsewhere are copied there first. As the pool is the caching
allocator's, memory is given out again in stream order, as for any tensor.
"""
from typing import Any, Dict, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _abi, errors
from .._library import lib
from ..communicator import Communicator

BLOCKS = 4096  # of which is known that they lie in windows
HOST = torch.device("cpu")


def device_of(comm: Communicator) -> torch.device:
    """Where the tensors of a communicator lie."""
    return HOST if comm.device is None else torch.device("cuda", comm.device)


def check_place(tensor: torch.Tensor, name: str, comm: Communicator) -> None:
    """The tensor lies where the communicator's tensors do."""
    wanted = device_of(comm)
    if tensor.device != wanted:
        raise errors.InvalidArgumentError(
            f"{name} is on {tensor.device}, and the tensors of this "
            f"communicator are on {wanted}, as device={comm.device} of its "
            "creation says")


class Cuda:
    """A device as torch has it."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        self._allocator: Any = None
        self._pool: Any = None

    def stream(self) -> int:
        """The stream on which torch enqueues now, as the library takes it."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def wait(self) -> None:
        """Until all that is enqueued has ended."""
        torch.cuda.synchronize(self.device)

    def empty(self, count: int, dtype: torch.dtype,
              windows: bool) -> torch.Tensor:
        """Elements on the device, in a segment of the library's or of torch's
        own."""
        if not windows:
            return torch.empty(count, dtype=dtype, device=self.device)
        if self._pool is None:
            self._allocator = torch.cuda.memory.CUDAPluggableAllocator(
                lib._name, "ulyx_pool_malloc", "ulyx_pool_free")
            self._pool = torch.cuda.MemPool(self._allocator.allocator())
        with torch.cuda.use_mem_pool(self._pool, self.device):
            return torch.empty(count, dtype=dtype, device=self.device)


class DevicePool:
    """Device memory that all ranks of a communicator reach directly, where they
    can: plans between devices that cannot map each other go by messages, from
    any memory of the device. It is closed with its communicator."""

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
        """So many elements, in a window where there are windows."""
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
        """Whether the library can take the tensor where it lies: it is part of
        one that empty() has made and that lives."""
        if not self.windows:
            return True
        block = self._known.get(tensor.untyped_storage().data_ptr())
        return block is not None and not block.expired()

    def settle(self) -> None:
        """Until the calls that were enqueued have ended: what belongs to them
        can be destroyed then."""
        self.cuda.wait()

    def close(self) -> None:
        """Takes the pool's windows back from the communicator."""
        if self.windows:
            self.windows = False
            lib.ulyx_pool_detach(self._comm)


def pool_of(comm: Communicator) -> DevicePool:
    """The pool of a communicator of device memory, made at its first use."""
    assert comm.device is not None
    held = comm._handle
    if held.pool is None:
        held.pool = DevicePool(comm, Cuda(comm.device))
    return held.pool  # type: ignore[no-any-return]


def stream_of(comm: Communicator) -> Optional[int]:
    """The stream of a call that is made now: none for host memory. 0, torch's
    usual one, is the NULL stream."""
    return pool_of(comm).cuda.stream() if comm.cuda else None
