# SPDX-License-Identifier: Apache-2.0
"""Distributed attention compared with attention written out in fp64."""
import os

import numpy as np
import pytest

import ulyx
from ranks import errors_of, threads

DRAWS = np.random.default_rng(5)


def visible(rows, mask, window, documents):
    at = np.arange(rows)
    distance = at[:, None] - at[None]
    seen = np.ones((rows, rows), bool)
    if mask == "causal":
        seen &= distance >= 0
    if window is not None:
        left, right = window
        seen &= (distance <= left) & (distance >= -right)
    if documents is not None:
        number = np.searchsorted(documents, at, side="right")
        seen &= number[:, None] == number[None]
    return seen


def plain(q, k, v, dout, mask, window, documents, sinks=None, scale=None):
    """Returns (out, dq, dk, dv, d_sinks) of [b, s, h, d] tensors."""
    group = q.shape[2] // k.shape[2]
    kk, vv = k.repeat(group, 2), v.repeat(group, 2)
    scale = scale or q.shape[3] ** -0.5
    score = np.einsum("bihd,bjhd->bhij", q, kk) * scale
    score = np.where(visible(q.shape[1], mask, window, documents), score,
                     -np.inf)
    top = score.max(-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[None, :, None, None])
    p = np.exp(score - top)
    total = p.sum(-1, keepdims=True)
    if sinks is not None:
        sunk = np.exp(sinks[None, :, None, None] - top)
        total = total + sunk
        sunk = sunk / total
    p = p / total
    out = np.einsum("bhij,bjhd->bihd", p, vv)
    dp = np.einsum("bihd,bjhd->bhij", dout, vv)
    delta = (dout * out).sum(-1).transpose(0, 2, 1)[..., None]
    ds = p * (dp - delta) * scale

    def grouped(x):
        return x.reshape(*x.shape[:2], k.shape[2], group, -1).sum(3)
    return (out, np.einsum("bhij,bjhd->bihd", ds, kk),
            grouped(np.einsum("bhij,bihd->bjhd", ds, q)),
            grouped(np.einsum("bhij,bihd->bjhd", p, dout)),
            None if sinks is None else (-sunk * delta).sum((0, 2, 3)))


def close(found, wanted):
    assert np.linalg.norm(found - wanted) <= 1e-12 * np.linalg.norm(wanted)


@pytest.mark.parametrize("nranks", [1, 2, 3, 4])
@pytest.mark.parametrize("rows, heads, kv_heads, mask, window, documents, save", [
    (3, 14, 2, None, None, None, None),
    (37, 4, 2, "causal", None, None, "none"),
    (33, 6, 1, "window", (5, 0), [0, 1, 20, 33], "heads"),
    (16, 3, 3, "window", (3, 2), None, None),
])
def test_values_and_gradients(nranks, rows, heads, kv_heads, mask, window,
                              documents, save):
    q, k, v, dout = (DRAWS.standard_normal((2 - bool(documents), rows, n, 8))
                     for n in (heads, kv_heads, kv_heads, heads))
    sinks = DRAWS.standard_normal(heads) if window else None
    wanted = plain(q, k, v, dout, mask, window, documents, sinks)

    def body(comm):
        layer = ulyx.DistAttention(
            comm, [rows], heads=heads, kv_heads=kv_heads, dim_qk=8,
            batch=q.shape[0], dtype="float64", mask=mask, window=window,
            documents=documents, save=save, threads=1)
        mine = layer.plan().positions()
        mq, mk, mv, mdout = (np.ascontiguousarray(t[:, mine])
                             for t in (q, k, v, dout))
        out, saved = layer.forward(mq, mk, mv, sinks=sinks)
        share = None if sinks is None else np.empty(heads)
        again = (mq, mk, mv) if save == "none" else ()
        grads = layer.backward(mdout, out, saved, *again, sinks=sinks,
                               d_sink=share)
        for found, whole in zip((out, *grads), wanted):
            close(found, whole[:, mine])
        return share
    shares = threads(nranks, body)
    if sinks is not None:
        close(sum(shares), wanted[4])


def test_parts_windows_and_lse():
    """All ranks have the same text in front of the tokens that each rank has
    alone. Tensors lie in windows."""
    text, rows, heads = 3, 10, 2
    q, k, v, _ = (DRAWS.standard_normal((1, text + rows, heads, 8))
                  for _ in range(4))
    wanted = plain(q, k, v, q, None, None, None)[0]

    def body(comm):
        layer = ulyx.DistAttention(
            comm, [ulyx.Part(text, replicated=True), rows], heads=heads,
            dim_qk=8, dtype="float64", flags=ulyx.DIST_ATTENTION_LSE, threads=1)
        mine = layer.plan().positions(1) + text

        def parts(t):
            found = [comm.empty((1, text, heads, 8), "float64"),
                     comm.empty((1, len(mine), heads, 8), "float64")]
            found[0][:], found[1][:] = t[:, :text], t[:, mine]
            return found
        lse = [np.empty((1, heads, text)), np.empty((1, heads, len(mine)))]
        out, saved = layer.forward(parts(q), parts(k), parts(v), lse=lse)
        close(out[0], wanted[:, :text])
        close(out[1], wanted[:, mine])
        score = np.einsum("bihd,bjhd->bhij", q[:, mine], k) * 8 ** -0.5
        close(lse[1], np.log(np.exp(score).sum(-1)))
        assert {t["name"] for t in layer.saved_tensors()} == {"q", "k", "v",
                                                              "lse"}
        assert "distributed attention: 2 ranks" in layer.describe()
        assert layer.times()["total_s"] > 0
        grads = layer.backward(out, out, saved)
        assert [g.shape for g in grads[1]] == [o.shape for o in out]
    threads(2, body)


def test_documents_of_later_calls():
    rows = 24
    q, k, v, dout = (DRAWS.standard_normal((1, rows, 2, 8)) for _ in range(4))

    def body(comm):
        layer = ulyx.DistAttention(comm, [rows], heads=2, dim_qk=8,
                                   dtype="float64", mask="causal", max_docs=8,
                                   threads=1)
        mine = layer.plan().positions()
        mq, mk, mv, mdout = (np.ascontiguousarray(t[:, mine])
                             for t in (q, k, v, dout))
        for table in ([0, 10, 24], [0, 1, 2, 24]):
            layer.update(table)
            out, saved = layer.forward(mq, mk, mv)
            close(out, plain(q, k, v, dout, "causal", None,
                             table)[0][:, mine])
        layer.update([0, 10, 24])
        with pytest.raises(ulyx.UlyxError):
            layer.backward(mdout, out, saved)
    threads(2, body)


@pytest.mark.parametrize("dtype, bound", [("float32", 2e-6), ("bfloat16", 2e-2),
                                          ("float16", 3e-3)])
def test_smaller_types(dtype, bound):
    q, k, v, dout = (DRAWS.standard_normal((1, 20, 2, 16)) for _ in range(4))

    def narrow(t):
        if dtype != "bfloat16":
            return t.astype(dtype)
        return (t.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

    def wide(t):
        if dtype != "bfloat16":
            return t.astype(np.float64)
        bits = t.view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    wanted = plain(*(wide(narrow(t)) for t in (q, k, v, dout)), "causal", None,
                   None)

    def body(comm):
        layer = ulyx.DistAttention(comm, [20], heads=2, dim_qk=16, dtype=dtype,
                                   mask="causal", threads=1)
        mine = layer.plan().positions()
        mq, mk, mv, mdout = (np.ascontiguousarray(narrow(t[:, mine]))
                             for t in (q, k, v, dout))
        out, saved = layer.forward(mq, mk, mv)
        for found, whole in zip((out, *layer.backward(mdout, out, saved)),
                                wanted):
            assert np.linalg.norm(wide(found) - whole[:, mine]) <= \
                bound * np.linalg.norm(whole)
    threads(2, body)


@pytest.mark.parametrize("call, text", [
    (lambda la, q: la.forward(q[:, :1], q, q), "not (1, 4, 2, 8)"),
    (lambda la, q: la.forward([q, q], q, q), "q has 2 tensors, not 1"),
    (lambda la, q: la.forward(q.astype("f4"), q, q), "float32, not float64"),
    (lambda la, q: la.forward(q, q, q, sinks=np.zeros(3)), "not (2,)"),
    (lambda la, q: la.forward(q, q, q, saved=np.zeros(64, np.uint8)), "saved"),
    (lambda la, q: la.backward(q, q, la.forward(q, q, q)[1], q), "all of q"),
])
def test_arrays_that_do_not_fit_are_refused(call, text):
    comm, = ulyx.Communicator.local(1)
    layer = ulyx.DistAttention(comm, [4], heads=2, dim_qk=8, dtype="float64",
                               threads=1)
    with pytest.raises(ulyx.InvalidArgumentError) as caught:
        call(layer, np.zeros((1, 4, 2, 8)))
    assert text in str(caught.value)


def test_ranks_that_disagree_get_an_error():
    failures = errors_of(2, lambda c: ulyx.DistAttention(
        c, [8], heads=2, dim_qk=8, mask=[None, "causal"][c.rank]))
    assert all(type(f) is ulyx.MismatchError for f in failures), failures


def test_kernels_are_listed_and_taken():
    names = ulyx.attention_kernels()
    assert names[-1] == "reference" and len(set(names)) == len(names)
    assert set(ulyx.attention_kernels("cuda")).isdisjoint(names)
    with pytest.raises(ulyx.InvalidArgumentError, match="memory is 'disk'"):
        ulyx.attention_kernels("disk")


def test_calls_have_rows_and_documents_of_their_own():
    """One object makes calls of two lengths. Each call passes its documents,
    and the backward calls run in reverse order."""
    batches = [(21, [0, 5, 21]), (40, [0, 1, 30, 40])]
    tensors = [[DRAWS.standard_normal((1, rows, heads, 8)) for heads in
                (4, 2, 2, 4)] for rows, _ in batches]

    def body(comm):
        layer = ulyx.DistAttention(
            comm, [ulyx.Part(21, row_capacity=40)], heads=4, kv_heads=2,
            dim_qk=8, dtype="float64", mask="causal", max_docs=4)
        kept = []
        for (rows, docs), (q, k, v, dout) in zip(batches, tensors):
            layer.update_rows([rows])
            mine = layer.plan().positions()
            local = [np.ascontiguousarray(t[:, mine]) for t in (q, k, v)]
            out, saved = layer.forward(*local, documents=docs)
            kept.append((mine, out, saved, np.ascontiguousarray(dout[:, mine])))
        found = []
        for (rows, docs), (mine, out, saved, dout) in reversed(
                list(zip(batches, kept))):
            layer.update_rows([rows])
            found.append((mine, out, *layer.backward(dout, out, saved,
                                                     documents=docs)))
        return found[::-1]

    ranks = threads(3, body)
    for number, ((rows, docs), (q, k, v, dout)) in enumerate(
            zip(batches, tensors)):
        wanted = plain(q, k, v, dout, "causal", None, docs)
        for mine, *found in (rank[number] for rank in ranks):
            for one, other in zip(found, wanted):
                close(one, other[:, mine])


LIES = [
    np.ascontiguousarray,
    lambda t: t.transpose(2, 0, 1, 3).copy().transpose(1, 2, 0, 3),
    lambda t: t.transpose(1, 0, 2, 3).copy().transpose(1, 0, 2, 3),
    lambda t: np.concatenate([t, t, t], 2)[:, :, t.shape[2]:2 * t.shape[2]],
    lambda t: np.concatenate([t, t], 3)[..., :t.shape[3]],
]


@pytest.mark.parametrize("save", ["heads", "none"])
def test_calls_take_arrays_as_they_lie(save):
    """Tensors lie otherwise than at creation. This changes from call to call,
    from rank to rank, and between forward and backward."""
    q, k, v, dout = (DRAWS.standard_normal((2, 9, heads, 8))
                     for heads in (4, 2, 2, 4))
    wanted = plain(q, k, v, dout, "causal", None, None)

    def body(comm):
        rows = [4, 5][comm.rank]
        by_head = LIES[1](q[:, :rows]).strides[:3]
        layer = ulyx.DistAttention(
            comm, [ulyx.Part(9, splits=[4, 5])], heads=4, kv_heads=2, dim_qk=8,
            batch=2, dtype="float64", mask="causal", save=save, threads=1,
            q_strides=[by_head], out_strides=[by_head])
        mine = layer.plan().positions()

        def lie(t, number):
            return LIES[number % len(LIES)](t)
        for turn in range(len(LIES)):
            at = turn + 2 * comm.rank
            local = [lie(t[:, mine], at + i) for i, t in enumerate((q, k, v))]
            given = lie(np.zeros(local[0].shape), turn) if turn % 2 else None
            out, saved = layer.forward(*local, given)
            assert given is None or out is given
            again = [lie(t, at + i) for i, t in enumerate(local)] \
                if save == "none" else ()
            grads = layer.backward(lie(dout[:, mine], at), lie(out, at + 3),
                                   saved, *again)
            for found, whole in zip((out, *grads), wanted):
                close(found, whole[:, mine])
        spread = np.concatenate([local[1]] * 2, 3)[..., ::2]
        for bad in (spread, np.broadcast_to(local[1][:, :, :1], spread.shape)):
            with pytest.raises(ulyx.InvalidArgumentError,
                               match=r"^k\[0\].*adjacent"):
                layer.forward(local[0], bad, local[2])
    threads(2, body)


def test_the_kernel_is_that_of_the_processor():
    """If the library does not recognise its processor, attention is several
    times slower."""
    flags = set()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            flags = set(file.read().split())
    if not {"avx2", "fma", "f16c"} <= flags:
        pytest.skip("a processor without AVX2")
    comm, = ulyx.Communicator.local(1)
    layer = ulyx.DistAttention(comm, [64], heads=2, kv_heads=2, dim_qk=64,
                               dtype="float32", mask="causal")
    assert "kernel avx" in layer.describe()
