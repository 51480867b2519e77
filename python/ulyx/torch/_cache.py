# SPDX-License-Identifier: Apache-2.0
"""The objects that a communicator keeps for PyTorch: objects of the library by
their keys, and one workspace.

Making an object is collective, so all ranks must find or miss it together: a
key must not contain anything that differs between ranks. Strides may differ
(those of an axis with one row are arbitrary). An object is made with the
strides of its first call; a later call passes its own strides, which no other
rank needs. Objects are removed in the order of their last use, which is the
same on all ranks. An object that a graph still needs for backward lives until
the graph is gone.

There are at most two objects of each kind of call. The first serves only the
lengths of the first call, and takes no more memory than these lengths need. The
second serves all other lengths, up to a capacity, so that an epoch of calls with
many lengths makes few objects. A length beyond the capacity replaces the second
object by a larger one.
"""
import collections
import threading
from typing import Any, Callable, Dict, Hashable, NamedTuple, Optional, Tuple

import torch

from ..communicator import Communicator
from ..errors import BusyError
from . import _tensors

CAPACITY = 64  # in kinds
ASKED = 1024


class Lengths(NamedTuple):
    """Rows over all ranks."""

    rows: Tuple[int, ...]  # of each axis
    splits: Optional[Tuple[int, ...]] = None  # of the first axis

    @property
    def splits_of_parts(self) -> Optional[Tuple[Optional[Tuple[int, ...]], ...]]:
        """The splits as update_rows() takes them, with one part per axis."""
        if self.splits is None:
            return None
        return (self.splits, *(None for _ in self.rows[1:]))


class Spec(NamedTuple):
    """The key of a call. It contains nothing that differs between ranks."""

    kind: Hashable  # what its object is made for
    lengths: Lengths


Capacity = Optional[Tuple[int, ...]]  # the most rows of each axis; None: as given


class Held:
    """The objects of one kind."""

    def __init__(self, lengths: Lengths, first: Any) -> None:
        self.lengths, self.first = lengths, first
        self.others: Any = None
        self.capacity: Tuple[int, ...] = (0,) * len(lengths.rows)

    def find(self, lengths: Lengths, make: Callable[[Capacity], Any]) -> Any:
        """Returns the object for these lengths, and makes it if there is
        none."""
        if lengths == self.lengths:
            return self.first
        if any(rows > most for rows, most in zip(lengths.rows, self.capacity)):
            capacity = tuple(max(most, 1 << max(0, rows - 1).bit_length())
                             for rows, most in zip(lengths.rows, self.capacity))
            self.others = make(capacity)
            self.capacity = capacity
        elif self.others is None:  # only where there are no rows at all
            self.others = make(tuple(max(1, most) for most in self.capacity))
        return self.others


class Cache:
    """Objects of one communicator. Calls come from one thread at a time."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.objects: "collections.OrderedDict[Hashable, Held]" = \
            collections.OrderedDict()
        self.last: Tuple[Any, Any] = (None, None)  # spec, object
        self.docs_of = _tensors.DocsOf()
        self.asked: Dict[Hashable, Any] = {}  # arguments -> Call
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._workspace_at = 0, 0  # bytes, address
        self._lock = threading.Lock()

    def find(self, spec: Spec, make: Callable[[Capacity], Any]) -> Any:
        """Returns the object of a call. If no rank has one, make(capacity)
        makes it on all ranks. If there are too many kinds, the one that was
        used longest ago is removed. `last` keeps the object for the next call,
        which then needs no look-up if it has the same spec."""
        held = self.objects.get(spec.kind)
        if held is None:
            found = make(None)
            self.objects[spec.kind] = Held(spec.lengths, found)
            if len(self.objects) > CAPACITY:
                self.objects.popitem(last=False)
        else:
            self.objects.move_to_end(spec.kind)
            found = held.find(spec.lengths, make)
        self.last = spec, found
        return found

    def remember(self, asked: Hashable, known: Any) -> None:
        """Keeps what was computed for the arguments of a call, on this rank alone.
        No other rank depends on the entry, so it may be removed at any time."""
        if len(self.asked) >= ASKED:
            self.asked.clear()
        self.asked[asked] = known

    def workspace(self, size: int) -> int:
        """Returns the address of at least so many bytes in a window, for one
        call at a time. On a device a workspace belongs to a stream: each call
        takes its own, which the allocator reuses in the order of the stream."""
        if self.comm.cuda:
            self._workspace = torch.empty(0, dtype=torch.uint8)
            self._workspace = _tensors.block(self.comm, size)
            return self._workspace.data_ptr()
        have, address = self._workspace_at
        if have < size:
            self._workspace = torch.empty(0, dtype=torch.uint8)
            self._workspace = _tensors.block(self.comm, size)
            address = self._workspace.data_ptr()
            self._workspace_at = size, address
        return address

    def enter(self) -> None:
        """Begins a call. Only one thread at a time may make calls, because
        there is one workspace."""
        if not self._lock.acquire(False):
            raise BusyError("another thread is in a call on the communicator")

    def leave(self) -> None:
        """Ends the call."""
        self._lock.release()


def cache_of(comm: Communicator) -> Cache:
    """Returns the communicator's cache, which is destroyed with it."""
    found = comm.__dict__.get("_torch_cache")
    if found is None:
        found = comm.__dict__["_torch_cache"] = Cache(comm)
    return found
