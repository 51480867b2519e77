# SPDX-License-Identifier: Apache-2.0
"""Memory that all ranks of a communicator reach directly (windows).

A pool belongs to a communicator. It takes windows from the library, attaches
them, and cuts them into blocks. A block without references goes back to the
pool, not to the system. Blocks have size classes (eight per doubling, from 1 KiB
on), so a block that has gone back fits the next request of its class. At most an
eighth of a block of more than 1 KiB is unused.

A forked child shares windows with its parent: the parent reads what the child
writes.
"""
import bisect
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
LARGE_BYTES = SLAB_BYTES // 4


def block_bytes(size: int) -> int:
    """Returns the size class of a request: at least 1 KiB, rounded up to one of
    8 steps in each doubling."""
    size = max(size, 1024)
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 4))
    return -(-size // step) * step


@functools.lru_cache(maxsize=1024)
def _class_of(size: int) -> Tuple[int, Any]:
    """Returns the size class of a request, and a ctypes array type of its
    bytes."""
    return block_bytes(size), ctypes.c_ubyte * size


class Pool:
    """Blocks in windows of one communicator. Any thread may request them.

    Small blocks are cut from slabs. A large block has a window of its own,
    which trim() can give back. The pool trims by itself when a large block is
    to be made and more memory is idle than in use."""

    def __init__(self, handle: int) -> None:
        self._comm = handle
        self._lock = threading.RLock()  # a finalizer may run within take()
        # begin of the window: handle, bytes
        self._windows: Dict[int, Tuple[int, int]] = {}
        self._begins: List[int] = []  # begins of the windows, ascending
        self._free: Dict[int, List[int]] = {}  # size class: addresses of free blocks
        self._rest = (0, 0)  # rest of the last slab: address, bytes
        self._lent: Dict[int, Any] = {}  # address of a block in use: weak reference
        self._lent_bytes = 0
        self._closed = False

    # ---- windows -------------------------------------------------------------
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
        self._windows[address.value] = window.value, size
        bisect.insort(self._begins, address.value)
        return address.value

    def _carve(self, size: int) -> int:
        if size > LARGE_BYTES:
            if self.bytes - self._lent_bytes > max(self._lent_bytes,
                                                   4 * SLAB_BYTES):
                self.trim()
            return self._grow(size)
        address, left = self._rest
        if left < size:
            address, left = self._grow(SLAB_BYTES), SLAB_BYTES
        self._rest = (address + size, left - size)
        return address

    def _forget(self, begin: int) -> bool:
        """Frees a window that is no longer attached. Returns False if it is in
        quarantine."""
        if lib.ulyx_mem_free(self._windows[begin][0]):
            return False
        del self._windows[begin]
        self._begins.remove(begin)
        return True

    def trim(self) -> None:
        """Gives large unused blocks back to the system. Local, but not
        while a call of this rank is in flight."""
        with self._lock:
            for size in [size for size in self._free if size > LARGE_BYTES]:
                for begin in self._free.pop(size):
                    if lib.ulyx_mem_detach(self._comm,
                                           self._windows[begin][0]) or \
                            not self._forget(begin):
                        self._free.setdefault(size, []).append(begin)

    # ---- blocks ----------------------------------------------------------------
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
            self._lent_bytes += whole
        return block

    def _give_back(self, address: int, size: int) -> None:
        with self._lock:
            del self._lent[address]
            self._lent_bytes -= size
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
        made: np.ndarray = np.frombuffer(
            self.take(size), arrays.numpy_dtype(code)).reshape(shape)
        return made

    def holds(self, address: int, size: int = 1) -> bool:
        """Returns whether memory lies in a window of this pool."""
        at = bisect.bisect_right(self._begins, address) - 1
        if at < 0:
            return False
        begin = self._begins[at]
        return address + size <= begin + self._windows[begin][1]

    @property
    def bytes(self) -> int:
        """Bytes of all windows."""
        return sum(size for _, size in self._windows.values())

    def settle(self) -> None:
        """Does nothing, because calls on host memory have ended when they
        return."""

    def close(self) -> None:
        """Takes the windows back from the communicator. A window with blocks
        that are still referred to is freed when the last of them goes."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for window, _ in self._windows.values():
                    lib.ulyx_mem_detach(self._comm, window)
                self._free_windows()

    def _free_windows(self) -> None:
        for begin, (_, size) in list(self._windows.items()):
            if not any(begin <= address < begin + size
                       for address in self._lent):
                self._forget(begin)
