# SPDX-License-Identifier: Apache-2.0
"""Blocks of memory in windows."""
import gc

import numpy as np
import pytest

import ulyx
from ranks import threads
from ulyx.memory import SLAB_BYTES, block_bytes


def test_size_classes_waste_an_eighth_at_most():
    sizes = np.unique(np.geomspace(1, 1 << 34, 4000).astype(int)).tolist()
    last = 0
    for size in sizes:
        whole = block_bytes(size)
        assert whole >= size and whole % 64 == 0 and whole >= last
        assert size < 1024 or whole - size <= size / 8
        last = whole


def test_blocks_are_aligned_apart_and_come_back():
    comm, = ulyx.Communicator.local(1)
    lent = [comm.empty(n, "uint8") for n in (1, 63, 1000, 5000, 70000, 9 << 20)]
    for i, block in enumerate(lent):
        assert block.ctypes.data % 64 == 0
        assert comm.pool.holds(block.ctypes.data, block.nbytes)
        block[:] = i
    for i, block in enumerate(lent):
        assert (block == i).all()
    addresses = [block.ctypes.data for block in lent]
    held = comm.pool.bytes
    assert held == SLAB_BYTES + block_bytes(9 << 20)
    del block, lent
    gc.collect()
    again = [comm.empty(n, "uint8") for n in (9 << 20, 70000)]
    assert {a.ctypes.data for a in again} <= set(addresses)
    assert comm.pool.bytes == held
    assert comm.empty((0, 3)).shape == (0, 3)
    outside = np.zeros(8)
    assert not comm.pool.holds(outside.ctypes.data)


def test_a_view_keeps_its_block():
    comm, = ulyx.Communicator.local(1)
    view = comm.empty((100, 100), "float64")[10:20, 3]
    view[:] = 7
    gc.collect()
    others = [comm.empty((100, 100), "float64") for _ in range(4)]
    for other in others:
        other[:] = 0
    assert (view == 7).all()


def test_blocks_outlive_their_communicator():
    comm, = ulyx.Communicator.local(1)
    block = comm.empty(1000, "float32")
    pool = comm.pool
    comm.close()
    block[:] = 3
    assert block.sum() == 3000 and pool.bytes
    with pytest.raises(ulyx.InvalidArgumentError, match="closed"):
        pool.take(5)
    del block
    gc.collect()
    assert pool.bytes == 0


def test_pools_grow_on_one_rank_alone():
    def body(comm):
        blocks = [comm.empty(5 << 20, "uint8") for _ in range(comm.rank * 3)]
        comm.barrier()
        return len(blocks)
    assert threads(2, body) == [0, 3]


def test_idle_objects_are_freed_before_new_ones_are_made():
    comm, = ulyx.Communicator.local(1)
    pool = comm.pool
    kept = comm.empty(100, "uint8")
    for size in range(20 << 20, 60 << 20, 3 << 20):  # each size has a class of its own
        comm.empty(size, "uint8")[::4096] = 1
        gc.collect()
    assert pool.bytes < 256 << 20
    pool.trim()
    assert pool.bytes == SLAB_BYTES and pool.holds(kept.ctypes.data)
    assert comm.empty(20 << 20, "uint8").nbytes == 20 << 20
