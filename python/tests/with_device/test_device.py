# SPDX-License-Identifier: Apache-2.0
"""Device memory with ulyx.torch: values, gradients, which tensors are copied,
on which stream calls run, and what is refused."""
import ctypes

import pytest
import torch

import ulyx
import ulyx.torch as sp
from emulated import install, lib, on_devices, placed
from sharded import ORDERS, plain, relative
from ulyx.torch import _device
from ulyx.torch._cache import cache_of


@pytest.fixture(autouse=True)
def emulated_devices(monkeypatch):
    install(monkeypatch)


def whole(batch, rows, heads, kv_heads, dim, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, rows, n, dim, generator=draws)
            for n in (heads, kv_heads, kv_heads, heads)]


def rows_of(comm, rows):
    """Returns this rank's part of `rows` rows; the first ranks have one
    more."""
    each, more = divmod(rows, comm.nranks)
    begin = comm.rank * each + min(comm.rank, more)
    return slice(begin, begin + each + (comm.rank < more))


def wanted_of(q, k, v, dout, **options):
    inputs = [t.double().requires_grad_() for t in (q, k, v)]
    out = plain(*inputs[:3], **options)
    return (out.detach(), *torch.autograd.grad(out, inputs, dout.double()))


def layer(comm, tensors, lie="bshd", call=sp.attention, sinks=None, **options):
    """Returns this rank's rows, and (out, dq, dk, dv) of them; with sinks also
    this rank's share of their gradient."""
    rows = tensors[0].shape[1]
    mine = rows_of(comm, rows)
    local = [ORDERS[lie](t[:, mine]).detach() for t in tensors[:3]]
    dout = tensors[3][:, mine]
    if not _device.pool_of(comm).windows:  # a call takes them where they lie
        *local, dout = (placed(comm, t) for t in (*local, dout))
    local = [t.requires_grad_() for t in local]
    if sinks is not None:
        options["sinks"] = placed(comm, sinks).requires_grad_()
        local.append(options["sinks"])
    if "alibi_slopes" in options:
        options["alibi_slopes"] = placed(comm, options["alibi_slopes"])
    out = call(*local[:3], comm=comm, rows=rows, **options)
    return mine, (out.detach(), *torch.autograd.grad(out, local, dout))


def in_window(comm, tensor):
    """Returns a copy of a tensor in memory that all ranks reach."""
    there = _device.pool_of(comm).empty(tensor.numel(), tensor.dtype)
    return there.view(tensor.shape).copy_(tensor)


def compare(nranks, devices, tensors, call=sp.attention, lie="bshd",
            **options):
    wanted = wanted_of(*tensors, **options)
    found = on_devices(nranks, lambda comm: layer(
        comm, tensors, lie, call, **options), devices)
    for mine, parts in found:
        for have, want in zip(parts, wanted):
            assert relative(have, want[:, mine]) < 2e-6


@pytest.mark.parametrize("nranks, devices", [(1, 1), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("lie", ["bshd", "bhsd", "padded", "repeated"])
def test_layer(nranks, devices, lie):
    compare(nranks, devices, whole(1, 17, 4, 2, 8), lie=lie, causal=True)


@pytest.mark.parametrize("options", [
    dict(), dict(causal=True, window=(5, 0)),
    dict(documents=[0, 3, 13, 20, 26])])
def test_masks_and_documents(options):
    compare(2, 2, whole(2, 13, 3, 3, 8), **options)


@pytest.mark.parametrize("nranks", [1, 2])
def test_sinks_and_slopes(nranks):
    tensors = whole(1, 13, 4, 2, 8)
    sinks, slopes = torch.randn(4), torch.rand(4)
    inputs = [t.double().requires_grad_() for t in (*tensors[:3], sinks)]
    out = plain(*inputs[:3], causal=True, sinks=inputs[3],
                slopes=slopes.double())
    wanted = out.detach(), *torch.autograd.grad(out, inputs,
                                                tensors[3].double())
    found = on_devices(nranks, lambda comm: layer(
        comm, tensors, sinks=sinks, causal=True, alibi_slopes=slopes), nranks)
    for mine, parts in found:
        for have, want in zip(parts[:4], wanted):
            assert relative(have, want[:, mine]) < 2e-6
    assert relative(sum(parts[4] for _, parts in found), wanted[4]) < 2e-6


def test_by_messages(monkeypatch):
    """The devices cannot map each other's memory, so plans exchange by
    messages."""
    monkeypatch.setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so")
    monkeypatch.setenv("ULYX_GPU_SMS", "1")
    tensors = whole(1, 13, 4, 2, 8)

    def there_and_back(comm):
        assert not _device.pool_of(comm).windows
        mine = placed(comm, tensors[0][:, rows_of(comm, 13)])
        by_head, = sp.reshuffle(mine, comm=comm, rows=13)
        assert torch.equal(by_head, tensors[0][:, :, 2 * comm.rank:][:, :, :2])
        back, = sp.reshuffle(by_head, direction="head_to_seq", comm=comm,
                             heads=[4], rows=13)
        assert torch.equal(back, mine)
    lib.emulated_no_peers(1)
    try:
        compare(2, 2, tensors, causal=True)
        on_devices(2, there_and_back, 2)
    finally:
        lib.emulated_no_peers(0)


def test_captured_and_replayed():
    """Forward and backward are captured as one graph, which is run again with
    other numbers."""
    first, second = whole(1, 12, 4, 2, 8), whole(1, 12, 4, 2, 8, seed=1)
    wanted = wanted_of(*second, causal=True)

    def body(comm):
        mine, cuda = rows_of(comm, 12), _device.pool_of(comm).cuda
        local = [in_window(comm, t[:, mine]) for t in first]
        q, k, v, dout = local
        inputs = [t.requires_grad_() for t in (q, k, v)]

        def step():
            out = sp.attention(*inputs, comm=comm, causal=True)
            return (out, *torch.autograd.grad(out, inputs, dout))
        step()  # objects and windows must be made before the capture
        graph = []
        with cuda.capture(graph):
            found = step()
        with torch.no_grad():
            for tensor, new in zip(local, second):
                tensor.copy_(new[:, mine])
        comm.barrier()
        cuda.replay(graph)
        for have, want in zip(found, wanted):
            assert relative(have.detach(), want[:, mine]) < 2e-6
    on_devices(2, body, 2)


@pytest.mark.parametrize("options", [
    dict(causal=True), dict(documents=torch.tensor([0, 5, 12]))])
def test_compiled(options):
    tensors = whole(1, 12, 4, 2, 8)
    wanted = wanted_of(*tensors, **options)

    def body(comm):
        mine = rows_of(comm, 12)
        compiled = torch.compile(
            lambda q, k, v: sp.attention(q, k, v, comm=comm, **options),
            backend="aot_eager", fullgraph=True)
        local = [t[:, mine].clone().requires_grad_() for t in tensors[:3]]
        out = compiled(*local)
        for have, want in zip((out, *torch.autograd.grad(
                out, local, tensors[3][:, mine])), wanted):
            assert relative(have.detach(), want[:, mine]) < 2e-6
    on_devices(2, body, 2)


def test_core():
    compare(2, 2, whole(1, 15, 4, 2, 8), call=sp.ulysses, causal=True)


def test_reshuffle_and_back():
    tensors = whole(1, 11, 5, 1, 8)[:2]

    def body(comm):
        mine = rows_of(comm, 11)
        local = [t[:, mine].clone().requires_grad_() for t in tensors]
        there = sp.reshuffle(*local, comm=comm, rows=11)
        first = comm.rank * 3
        assert torch.equal(there[0], tensors[0][:, :, first:first + 3])
        assert torch.equal(there[1], tensors[1])
        back, = sp.reshuffle(there[0], direction="head_to_seq", comm=comm,
                             heads=[5], rows=11)
        assert torch.equal(back, local[0])
        # Every rank read the KV head, so its gradient is the sum of both.
        grads = torch.autograd.grad(there, local,
                                    [torch.ones_like(t) for t in there])
        assert torch.equal(grads[0], torch.ones_like(grads[0]))
        assert torch.equal(grads[1], torch.full_like(grads[1], 2))
    on_devices(2, body, 2)


def test_results_lie_in_windows_and_are_not_copied_again():
    q, k, v, _ = whole(1, 12, 2, 2, 8)

    def body(comm):
        mine = rows_of(comm, 12)
        out = sp.attention(q[:, mine], k[:, mine], v[:, mine], comm=comm)
        pool = _device.pool_of(comm)
        assert pool.windows and pool.reaches(out) and pool.reaches(out[:, 1:])
        assert not pool.reaches(q)
        used = pool.cuda.used
        again = sp.attention(out, out, out, comm=comm)
        entry = cache_of(comm).last[1]
        # Only the result, the workspace and saved are allocated.
        sizes = out.nbytes, entry.dist.workspace_bytes, entry.dist.saved_bytes
        assert pool.cuda.used - used == sum(-(-n // 512) * 512 for n in sizes)
        del again
        assert pool.cuda.stream() == _device.stream_of(comm)
    on_devices(2, body, 1)


def test_what_went_is_known_no_more():
    def body(comm):
        pool = _device.pool_of(comm)
        made = pool.empty(64, torch.float32)
        assert pool.reaches(made[3:])
        address = made.data_ptr()
        del made
        other = torch.frombuffer((ctypes.c_ubyte * 256).from_address(address),
                                 dtype=torch.float32)
        assert other.data_ptr() == address and not pool.reaches(other)
    on_devices(2, body, 1)


def test_saved_that_hooks_have_moved():
    tensors = whole(1, 10, 2, 2, 8)
    wanted = wanted_of(*tensors, causal=True)

    def body(comm):
        mine = rows_of(comm, 10)
        local = [t[:, mine].clone().requires_grad_() for t in tensors[:3]]
        with torch.autograd.graph.saved_tensors_hooks(
                lambda t: t.clone(), lambda t: t.clone()):
            out = sp.attention(*local, comm=comm, causal=True)
        for found, want in zip(torch.autograd.grad(
                out, local, tensors[3][:, mine]), wanted[1:]):
            assert relative(found, want[:, mine]) < 2e-6
    on_devices(2, body, 2)


def test_each_length_has_an_object_of_its_own():
    def body(comm):
        for rows in (6, 9, 6, 4):
            tensors = whole(1, rows, 2, 2, 8, seed=rows)
            wanted = wanted_of(*tensors, causal=True)
            mine, found = layer(comm, tensors, causal=True)
            for have, want in zip(found, wanted):
                assert relative(have, want[:, mine]) < 2e-6
        assert len(cache_of(comm).objects) == 3
    on_devices(2, body, 1)


@pytest.mark.parametrize("change, text", [
    (lambda t: t.double(), "F64"), (lambda t: t[..., :6], "dim")])
def test_what_devices_have_not_is_named(change, text):
    def body(comm):
        q, k, v, _ = (change(t) for t in whole(1, 8, 2, 2, 8))
        with pytest.raises(ulyx.UlyxError, match=text):
            sp.attention(q[:, :4], k[:, :4], v[:, :4], comm=comm)
    on_devices(2, body, 1)


def test_the_pool_of_the_host_is_another():
    def body(comm):
        with pytest.raises(ulyx.UnsupportedError, match="device memory"):
            comm.empty(4)
    on_devices(1, body, 1)
