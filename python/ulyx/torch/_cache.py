# SPDX-License-Identifier: Apache-2.0
"""What a communicator keeps for PyTorch: objects of the library by what they
were made for, and one workspace.

Making an object is collective, so all ranks must find or miss it together: a
key has nothing in it that is a rank's own. Strides are a rank's own (those of
an axis with one row are arbitrary); an object is made with those of its first
call, and a tensor that lies otherwise in a later one is copied, which no other
rank needs to know. Objects leave in the order of their last use, the same on
all ranks; one that a graph still needs for backward lives on until that has
gone.
"""
import collections
import threading
from typing import Any, Dict, Hashable

import torch

from ..communicator import Communicator
from ..errors import BusyError
from . import _tensors

CAPACITY = 64
ASKED = 1024


class Cache:
    """Objects of one communicator. Calls come from one thread at a time."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.objects: "collections.OrderedDict[Hashable, Any]" = \
            collections.OrderedDict()
        self.docs_of = _tensors.DocsOf()
        self.asked: Dict[Hashable, Any] = {}  # what calls of a kind come to
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._workspace_at = 0, 0  # bytes, address
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Any:
        """The object of a key, or None on all ranks, which then make one."""
        found = self.objects.get(key)
        if found is not None:
            self.objects.move_to_end(key)
        return found

    def keep(self, key: Hashable, made: Any) -> None:
        """Keeps an object, and lets go the one that was used longest ago."""
        self.objects[key] = made
        if len(self.objects) > CAPACITY:
            self.objects.popitem(last=False)

    def remember(self, asked: Hashable, known: Any) -> None:
        """Of this rank alone, so it may be forgotten at any time."""
        if len(self.asked) >= ASKED:
            self.asked.clear()
        self.asked[asked] = known

    def workspace(self, size: int) -> int:
        """Address of at least so many bytes in a window, which one call at a
        time has."""
        have, address = self._workspace_at
        if have < size:
            self._workspace = torch.empty(0, dtype=torch.uint8)
            self._workspace = _tensors.block(self.comm, size)
            address = self._workspace.data_ptr()
            self._workspace_at = size, address
        return address

    def enter(self) -> None:
        """A call begins, on one thread at a time, for the workspace is one."""
        if not self._lock.acquire(False):
            raise BusyError("another thread is in a call on the communicator")

    def leave(self) -> None:
        """The call is over."""
        self._lock.release()


def cache_of(comm: Communicator) -> Cache:
    """The communicator's cache, which goes with it."""
    found = comm.__dict__.get("_torch_cache")
    if found is None:
        found = comm.__dict__["_torch_cache"] = Cache(comm)
    return found
