# SPDX-License-Identifier: Apache-2.0
"""Memory that all ranks of a communicator reach directly (windows).

A pool belongs to a communicator. It takes windows from the library, attaches
them, and cuts them into blocks; a block that nobody refers to any more goes back
to the pool, not to the system. Blocks are of size classes (eight to a doubling),
so what has gone back fits the next request of its class, and at most an eighth
of a block is unused.

A forked child shares windows with its parent: what the child writes into one,
the parent sees.
"""
import ctypes
import functools
import threading
import weakref
from typing import Any, Dict, List, Tuple

import numpy as np

from . import arrays, errors
from ._library import check, lib

ALIGNMENT = 64
SLAB_BYTES = 16 << 20


def block_bytes(size: int) -> int:
    """The size class of a request: the next of 8 steps in each doubling."""
    size = max(size, 1024)
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 4))
    return -(-size // step) * step


@functools.lru_cache(maxsize=1024)
def _class_of(size: int) -> Tuple[int, Any]:
    """The size class of a request, and the ctypes array of its bytes."""
    return block_bytes(size), ctypes.c_ubyte * size


class Pool:
    """Blocks in windows of one communicator. Any thread may ask."""

    def __init__(self, handle: int) -> None:
        self._comm = handle
        self._lock = threading.RLock()  # a finalizer may run inside of take()
        self._windows: List[Tuple[int, int, int]] = []  # handle, begin, bytes
        self._free: Dict[int, List[int]] = {}  # size class -> addresses
        self._rest = (0, 0)  # of the last slab: address, bytes
        self._lent: Dict[int, Any] = {}  # address -> weak reference
        self._closed = False

    def _grow(self, size: int) -> int:
        window, address = ctypes.c_void_p(), ctypes.c_void_p()
        check(lib.ulyx_mem_alloc(size, None, ctypes.byref(window),
                                 ctypes.byref(address)))
        status = lib.ulyx_mem_attach(self._comm, window)
        if status:
            text = lib.ulyx_last_error().decode(errors="replace")
            lib.ulyx_mem_free(window)
            raise errors.of(status, text)
        assert window.value and address.value
        self._windows.append((window.value, address.value, size))
        return address.value

    def _carve(self, size: int) -> int:
        if size > SLAB_BYTES // 4:
            return self._grow(size)
        address, left = self._rest
        if left < size:
            address, left = self._grow(SLAB_BYTES), SLAB_BYTES
        self._rest = (address + size, left - size)
        return address

    def take(self, size: int) -> Any:
        """A block of so many bytes as a ctypes array, aligned to 64, contents
        undefined. It goes back when nothing refers to the array any more."""
        whole, kind = _class_of(size)
        with self._lock:
            if self._closed:
                raise errors.InvalidArgumentError(
                    "the communicator of this memory is closed")
            free = self._free.get(whole)
            address = free.pop() if free else self._carve(whole)
            block = kind.from_address(address)
            self._lent[address] = weakref.ref(
                block, lambda _: self._give_back(address, whole))
        return block

    def _give_back(self, address: int, size: int) -> None:
        with self._lock:
            del self._lent[address]
            self._free.setdefault(size, []).append(address)
            if self._closed:
                self._free_windows()

    def empty(self, shape: Any, dtype: arrays.DType = "float32") -> np.ndarray:
        """A numpy array in a window, contents undefined."""
        code = arrays.dtype_code(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = arrays.SIZES[code]
        for extent in shape:
            size *= extent
        if size == 0:
            return np.empty(shape, arrays.numpy_dtype(code))
        return np.frombuffer(self.take(size),
                             arrays.numpy_dtype(code)).reshape(shape)

    def holds(self, address: int, size: int = 1) -> bool:
        """Whether memory lies in a window of this pool."""
        return any(begin <= address and address + size <= begin + length
                   for _, begin, length in self._windows)

    @property
    def bytes(self) -> int:
        """Bytes of all windows."""
        return sum(size for _, _, size in self._windows)

    def close(self) -> None:
        """Takes the windows back from the communicator. One that has blocks
        which are still referred to is freed when the last of them goes."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for window, _, _ in self._windows:
                    lib.ulyx_mem_detach(self._comm, window)
                self._free_windows()

    def _free_windows(self) -> None:
        kept = []
        for window, begin, size in self._windows:
            lent = any(begin <= address < begin + size
                       for address in self._lent)
            if lent or lib.ulyx_mem_free(window):  # in quarantine
                kept.append((window, begin, size))
        self._windows = kept
