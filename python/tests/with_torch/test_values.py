# SPDX-License-Identifier: Apache-2.0
"""Values and gradients of the layer, compared with attention written out."""
import pytest
import torch

import ulyx
import ulyx.torch as sp
from ranks import threads
from sharded import ORDERS, plain, relative, run_layer


def whole(batch, rows, heads, kv_heads, dim, dtype=torch.float64, seed=0):
    # ranks are threads, and all of them draw the same numbers
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, rows, n, dim, dtype=torch.float64,
                        generator=draws).to(dtype)
            for n in (heads, kv_heads, kv_heads, heads)]


def wanted_of(q, k, v, dout, sinks=None, **options):
    """Returns (out, dq, dk, dv, d_sinks) in fp64."""
    inputs = [t.double().requires_grad_() for t in (q, k, v)]
    if sinks is not None:
        options["sinks"] = sinks.double().requires_grad_()
        inputs.append(options["sinks"])
    out = plain(*inputs[:3], **options)
    return (out.detach(), *torch.autograd.grad(out, inputs, dout.double()))


def compare(nranks, tensors, bound, call=sp.attention, sinks=None, order=
            "contiguous", lie="bshd", splits=None, **options):
    wanted = wanted_of(*tensors, sinks=sinks, **options)

    def body(comm):
        mine, found = run_layer(comm, *tensors, order=order, lie=lie, call=call,
                                sinks=sinks, splits=splits, **options)
        errors = [relative(have, want[:, mine]) for have, want in
                  zip(found[:4], wanted[:4])]
        return max(errors), (found[4] if sinks is not None else None)
    results = threads(nranks, body)
    assert max(error for error, _ in results) <= bound
    if sinks is not None:
        total = sum(share for _, share in results)
        assert relative(total, wanted[4]) <= bound


MASKS = {
    "full": {}, "causal": {"causal": True},
    "window": {"window": (5, 0), "causal": True},
    "sides": {"window": (4, 2)}, "left": {"window": [None, 1]},
    "softcap": {"causal": True, "softcap": 3.0, "scale": 0.4},
}
SHAPES = [(2, 3, 14, 2), (2, 16, 8, 2), (1, 33, 6, 1), (2, 37, 3, 3),
          (1, 64, 4, 2)]


@pytest.mark.parametrize("nranks", [2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", MASKS)
def test_layer(nranks, shape, mask):
    # The orders in memory alternate over shapes and masks.
    number = SHAPES.index(shape) + 3 * list(MASKS).index(mask)
    lie = list(ORDERS)[number % len(ORDERS)]
    compare(nranks, whole(*shape, 8, seed=number), 1e-13, lie=lie,
            order=["contiguous", "zigzag"][number % 2],
            sinks=torch.randn(shape[2], dtype=torch.float64)
            if number % 3 == 0 else None, **MASKS[mask])


@pytest.mark.parametrize("nranks", [1, 2, 4])
@pytest.mark.parametrize("documents", [
    [0, 1, 20, 33], torch.tensor([0, 33], dtype=torch.int32),
    torch.tensor([0, 9, 33]), list(range(34))])
def test_documents(nranks, documents):
    compare(nranks, whole(1, 33, 4, 2, 16), 1e-13, causal=True,
            documents=documents)


@pytest.mark.parametrize("documents", [
    ulyx.Docs([3, 9], [6, 21]), (torch.tensor([3, 9]), torch.tensor([6, 21]))])
def test_documents_with_gaps(documents):
    """Begins and lengths: tokens outside of documents get zeros."""
    tensors = whole(1, 33, 4, 2, 16)
    wanted = wanted_of(*tensors, causal=True, documents=[3, 9, 30])

    def body(comm):
        mine, found = run_layer(comm, *tensors, causal=True, documents=documents)
        for have, want in zip(found, wanted):
            assert relative(have, want[:, mine]) <= 1e-13
    threads(2, body)


def test_documents_of_several_items():
    compare(2, whole(3, 10, 2, 2, 8), 1e-13, documents=[0, 4, 10, 20, 25, 30],
            causal=True)


@pytest.mark.parametrize("dtype, bound", [
    (torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("nranks, lie", [(2, "bhsd"), (3, "bshd"), (4, "fused")])
def test_smaller_types(dtype, bound, nranks, lie):
    compare(nranks, whole(2, 37, 4, 2, 16, dtype), bound, lie=lie, causal=True,
            sinks=torch.randn(4))


@pytest.mark.parametrize("lie", ["bshd", "bhsd", "fused"])
def test_zigzag_within_documents(lie):
    """The number of a rank's rows changes with the documents."""
    rows, tables = 24, ([0, 7, 24], [0, 1, 2, 3, 24], [0, 24])

    def body(comm):
        for number, table in enumerate(tables):
            tensors = whole(1, rows, 4, 2, 8, seed=number)
            wanted = wanted_of(*tensors, causal=True, documents=table)
            plan = ulyx.Plan(comm, [ulyx.Tensor(1, 1, "float32")],
                             [ulyx.Part(rows, order="zigzag_docs")],
                             documents=table, max_docs=64)
            mine = torch.from_numpy(plan.positions())
            local = [ORDERS[lie](t[:, mine]).detach().requires_grad_()
                     for t in tensors[:3]]
            out = sp.attention(*local, comm=comm, rows=rows, causal=True,
                               documents=table, order="zigzag_docs")
            grads = torch.autograd.grad(out, local, tensors[3][:, mine])
            for have, want in zip((out.detach(), *grads), wanted):
                assert relative(have, want[:, mine]) <= 1e-13
    threads(3, body)


def test_splits_and_ranks_without_tokens():
    compare(3, whole(1, 12, 4, 2, 8), 1e-13, splits=[5, 0, 7], causal=True)
    compare(4, whole(1, 2, 4, 2, 8), 1e-13, causal=True)


def test_slopes():
    slopes = torch.tensor([0.5, 0.25, 0.0, 1.0], dtype=torch.float64)
    tensors = whole(1, 21, 4, 4, 8)
    wanted = wanted_of(*tensors, causal=True, slopes=slopes)

    def body(comm):
        mine, found = run_layer(comm, *tensors, causal=True,
                                alibi_slopes=slopes)
        for have, want in zip(found, wanted):
            assert relative(have, want[:, mine]) <= 1e-13
    threads(2, body)


def test_cross_attention():
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, rows, 4, 8, dtype=torch.float64)
               for rows in (7, 11, 11))
    score = torch.einsum("bihd,bjhd->bhij", q, k) * 8 ** -0.5
    wanted = torch.einsum("bhij,bjhd->bihd", score.softmax(-1), v)

    def body(comm):
        rows = slice(0, 4) if comm.rank == 0 else slice(4, 7)
        keys = slice(0, 6) if comm.rank == 0 else slice(6, 11)
        out = sp.attention(q[:, rows], k[:, keys], v[:, keys], comm=comm,
                           rows=7, kv_rows=11)
        assert relative(out, wanted[:, rows]) <= 1e-13
    threads(2, body)


@pytest.mark.parametrize("layout, axes", [("bhsd", (1, 2)), ("sbhd", (0, 1))])
def test_layouts_are_those_of_q(layout, axes):
    q, k, v, _ = whole(2, 8, 4, 2, 8)

    def body(comm):
        mine = slice(4 * comm.rank, 4 * comm.rank + 4)
        local = [t[:, mine] for t in (q, k, v)]
        wanted = sp.attention(*local, comm=comm, causal=True)
        swapped = [t.transpose(*axes) for t in local]
        for call in (sp.attention, sp.ulysses):
            found = call(*swapped, comm=comm, causal=True, layout=layout)
            assert found.shape == swapped[0].shape
            assert relative(found.transpose(*axes), wanted) <= 1e-14
    threads(2, body)


def test_bits_do_not_depend_on_the_number_of_ranks():
    tensors = whole(2, 40, 8, 2, 16, torch.float32)
    found = {}
    for nranks in (1, 2, 4):
        places = [torch.empty_like(t) for t in
                  (tensors[3], *tensors[:3])]  # out, dq, dk, dv
        for mine, local in threads(
                nranks, lambda comm: run_layer(comm, *tensors, causal=True)):
            for place, piece in zip(places, local):
                place[:, mine] = piece
        found[nranks] = places
    # with 4 ranks, several ranks read each KV head
    for nranks, same in ((2, 4), (4, 2)):
        for have, want in zip(found[nranks][:same], found[1][:same]):
            assert torch.equal(have, want)


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(2, 37, 6, 2), (1, 5, 3, 1), (1, 40, 2, 2)])
@pytest.mark.parametrize("mask", ["full", "causal", "window"])
def test_ulysses(nranks, shape, mask):
    compare(nranks, whole(*shape, 8), 1e-13, call=sp.ulysses,
            order=["contiguous", "zigzag"][nranks % 2], lie="bhsd",
            **MASKS[mask])


def test_ulysses_with_documents():
    compare(3, whole(2, 20, 4, 2, 8), 1e-13, call=sp.ulysses, causal=True,
            documents=[0, 3, 20, 29, 40], window=(4, 0))
    compare(2, whole(1, 20, 4, 2, 8), 1e-13, call=sp.ulysses,
            documents=torch.tensor([0, 9, 20]))


def test_a_core_receives_the_parameters_it_takes():
    q, k, v, _ = whole(1, 12, 5, 1, 8)
    told = {}

    def core(mq, mk, mv, head):
        told[head.first_head] = (tuple(mq.shape), tuple(mk.shape), head)
        return plain(mq, mk, mv, causal=head.causal)

    def body(comm):
        mine = slice(6 * comm.rank, 6 * comm.rank + 6)
        out = sp.ulysses(q[:, mine], k[:, mine], v[:, mine], core=core,
                         causal=True, comm=comm)
        assert relative(out, plain(q, k, v, causal=True)[:, mine]) <= 1e-13
        with pytest.raises(ulyx.InvalidArgumentError, match="'flash'"):
            sp.ulysses(q[:, mine], k[:, mine], v[:, mine], core="flash",
                       comm=comm)
    threads(2, body)
    assert told[0][:2] == ((1, 12, 3, 8), (1, 12, 1, 8))
    assert told[3][:2] == ((1, 12, 2, 8), (1, 12, 1, 8))
    assert told[3][2].kv_map == (0, 0)


def test_reshuffle_both_ways():
    torch.manual_seed(1)
    q = torch.randn(2, 9, 5, 4, dtype=torch.float64)

    def body(comm):
        rows = [slice(0, 3), slice(3, 6), slice(6, 9)][comm.rank]
        mine = q[:, rows].clone().requires_grad_()
        whole, = sp.reshuffle(mine, comm=comm)
        heads = [slice(0, 2), slice(2, 4), slice(4, 5)][comm.rank]
        assert torch.equal(whole, q[:, :, heads])
        back, = sp.reshuffle(whole, direction="head_to_seq", heads=[5],
                             comm=comm)
        assert torch.equal(back, mine)
        grad, = torch.autograd.grad(back, mine, q[:, rows])
        assert torch.equal(grad, q[:, rows])
        with pytest.raises(ulyx.InvalidArgumentError, match="needs heads="):
            sp.reshuffle(whole, direction="head_to_seq", comm=comm)
    threads(3, body)


def test_shapes_in_traced_code_are_those_of_the_library():
    from ulyx.torch import _split
    for nranks in (1, 2, 3, 5):
        for heads, kv_heads, rows in ((14, 2, 37), (3, 3, 4), (8, 4, 16),
                                      (4, 1, 3), (5, 5, 0)):
            def body(comm):
                for order in ("contiguous", "zigzag"):
                    plan = ulyx.Plan(
                        comm, [ulyx.Tensor(heads, 8, "float32"),
                               ulyx.Tensor(kv_heads, 8, "float32", kv=True)],
                        [ulyx.Part(rows, order=order)])
                    place = nranks, comm.rank
                    assert plan.seq_rows() == _split.rows_of(rows, *place, order,
                                                             None)
                    own = _split.heads_of(heads, *place)
                    assert own[1] == plan.head_range(0)[1]
                    assert not own[1] or own == plan.head_range(0)
                    assert plan.head_range(1)[1] == _split.kv_heads_of(
                        heads, kv_heads, *place)
                    assert plan.kv_map().tolist() == list(_split.kv_map_of(
                        heads, kv_heads, *place))
                for dtype, item in (("float64", 8), ("bfloat16", 2)):
                    layer = ulyx.DistAttention(
                        comm, [rows], heads=heads, kv_heads=kv_heads, dim_qk=8,
                        batch=2, dtype=dtype, save="heads", threads=1)
                    assert layer.saved_bytes == _split.saved_bytes(
                        2, rows, rows, heads, kv_heads, 8, 8, item, *place)
            threads(nranks, body)


@pytest.mark.parametrize("dim", [1, 2, 5, 12])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-13),
                                          (torch.bfloat16, 2e-2)])
def test_any_head_dimension(dim, dtype, bound):
    compare(3, whole(1, 11, 4, 2, dim, dtype), bound, causal=True, lie="bhsd")
