# SPDX-License-Identifier: Apache-2.0
"""A device for ulyx.torch, and ranks of which each has one."""
import contextlib
import ctypes
import functools
import threading

import torch

import ulyx
from ranks import TIMEOUT
from ulyx._library import lib
from ulyx.dist_attention import DistAttention
from ulyx.plan import Plan
from ulyx.torch import _device

SLAB_BYTES = 8 << 20
lib.emulated_stream.restype = ctypes.c_void_p
lib.emulated_wait.argtypes = [ctypes.c_void_p]
lib.emulated_capture.argtypes = [ctypes.c_void_p]
lib.emulated_captured.argtypes = [ctypes.c_void_p]
lib.emulated_captured.restype = ctypes.c_void_p
lib.emulated_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.emulated_fault.restype = ctypes.c_char_p


class Emulated:
    """Takes the place of _device.Cuda. Blocks are cut, one after another, from
    one segment of the library's pool."""

    device = torch.device("cpu")

    def __init__(self, index):
        self.index, self.slab, self.used = index, 0, SLAB_BYTES
        self.own = lib.emulated_stream(index)
        assert self.own
        self.waits, self.capturing = 0, False

    def stream(self):
        return self.own

    def wait(self):
        self.waits += 1
        assert lib.emulated_wait(self.own) == 0

    @contextlib.contextmanager
    def capture(self, graph):
        """As torch.cuda.graph(): calls are recorded in `graph`, which runs them
        later."""
        assert lib.emulated_capture(self.own) == 0
        self.capturing = True
        try:
            yield
        finally:
            self.capturing = False
            graph.append(lib.emulated_captured(self.own))
        assert graph[-1], "the capture failed"

    def replay(self, graph):
        assert lib.emulated_launch(graph[-1], self.own) == 0
        self.wait()

    def empty(self, count, dtype, windows):
        if not count:
            return torch.empty(0, dtype=dtype)
        size = count * dtype.itemsize
        if self.used + size > SLAB_BYTES:
            assert size <= SLAB_BYTES
            self.slab, self.used = \
                lib.ulyx_pool_malloc(SLAB_BYTES, self.index, None), 0
            assert self.slab, lib.ulyx_last_error()
        block = (ctypes.c_ubyte * size).from_address(self.slab + self.used)
        self.used += -(-size // 512) * 512
        ctypes.memset(block, 0xff, size)  # so that bytes that are not written show
        return torch.frombuffer(block, dtype=dtype)


def placed(comm, tensor):
    """Returns a dense copy of the tensor in device memory, as torch's allocator
    would place it."""
    there = _device.pool_of(comm).cuda.empty(tensor.numel(), tensor.dtype, False)
    return there.view(tensor.shape).copy_(tensor)


def ending(function):
    """Makes a call on a stream and waits for all work of the stream."""
    def call(self, *arguments, **options):
        function(self, *arguments, **options)
        cuda = _device.pool_of(self.comm).cuda
        if not cuda.capturing:
            cuda.wait()
    return call


@functools.lru_cache(maxsize=None)
def open_machine():
    """Opens the machine once, because what a failing test has left may still
    refer to it."""
    assert lib.emulated_open(2, 8) == 0


def install(patch):
    """Installs the device for one test, by pytest's monkeypatch."""
    open_machine()
    patch.setattr(_device, "Cuda", Emulated)
    patch.setattr(_device, "device_of", lambda comm: Emulated.device)
    for cls, name in ((DistAttention, "forward_addresses"),
                      (DistAttention, "backward_addresses"),
                      (Plan, "execute_addresses")):
        patch.setattr(cls, name, ending(getattr(cls, name)))


def on_devices(nranks, body, devices):
    """Runs body(comm) on every rank, each on a thread; rank r is on device r
    mod devices. Fails if the emulator has recorded faults."""
    identifier, results, failures = ulyx.unique_id(), [None] * nranks, []

    def run(rank):
        try:
            comm = ulyx.Communicator.from_unique_id(
                identifier, nranks, rank, timeout=TIMEOUT,
                device=rank % devices)
            try:
                results[rank] = body(comm)
                comm.barrier()
            except BaseException:
                comm.abort()
                raise
            finally:
                comm.close()
        except BaseException as error:
            failures.append(error)
    workers = [threading.Thread(target=run, args=(rank,))
               for rank in range(nranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(2 * TIMEOUT)
        assert not worker.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]
    fault = lib.emulated_fault()
    assert fault is None, fault.decode()
    return results
