# SPDX-License-Identifier: Apache-2.0
"""How the layer works with autograd, torch.compile, checkpoints and hooks."""
import copy
import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import ulyx
import ulyx.torch as sp
from ranks import errors_of, threads
from sharded import ORDERS, Gather, Replicated, Shard, plain, positions, relative
from ulyx.torch import _cache, _operators


def three(batch, rows, heads, kv_heads, dim=8, dtype=torch.float64, seed=0):
    # Each call has a generator of its own, because ranks are threads and must
    # draw the same numbers.
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, rows, n, dim, dtype=dtype, generator=draws
                        ).requires_grad_()
            for n in (heads, kv_heads, kv_heads)]


# ---- gradcheck over ranks --------------------------------------------------------
@pytest.mark.parametrize("call", [sp.attention, sp.ulysses])
def test_gradcheck(call):
    rows = 7
    torch.manual_seed(0)
    sinks = torch.randn(2, dtype=torch.float64)

    def body(comm):
        mine = positions(comm, rows)
        q, k, v = three(1, rows, 2, 1)
        options = {"causal": True, "window": (3, 0), "documents": [0, 3, rows]}

        def layer(q, k, v, *sinks):
            local = [Shard.apply(t, comm, mine) for t in (q, k, v)]
            extra = {"sinks": Replicated.apply(sinks[0], comm)} if sinks else {}
            out = call(*local, comm=comm, rows=rows, **options, **extra)
            return Gather.apply(out, comm, mine, rows)
        inputs = [q, k, v]
        if call is sp.attention:
            inputs.append(sinks.clone().requires_grad_())
        return torch.autograd.gradcheck(layer, inputs, fast_mode=False,
                                        nondet_tol=0.0)
    assert threads(2, body) == [True, True]


def test_gradcheck_of_reshuffle():
    rows = 5

    def body(comm):
        mine = positions(comm, rows)
        q, k, _ = three(1, rows, 3, 1, dim=2)

        def there(q, k):
            by_head = sp.reshuffle(*(Shard.apply(t, comm, mine)
                                     for t in (q, k)), comm=comm, rows=rows)
            # Both layouts are brought to one tensor with this rank's query
            # heads.
            mixed = by_head[0] * by_head[1].sin()
            back, = sp.reshuffle(mixed, direction="head_to_seq", heads=[3],
                                 comm=comm, rows=rows)
            return Gather.apply(back, comm, mine, rows)
        return torch.autograd.gradcheck(there, [q, k], nondet_tol=0.0)
    assert threads(2, body) == [True, True]


@pytest.mark.parametrize("call", [sp.attention, sp.ulysses])
def test_double_backward_is_refused(call):
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 4, 2, 2)
    core = {} if call is sp.attention else {"core": lambda q, k, v, _: q * k * v}
    out = call(q, k, v, comm=comm, **core)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v),
                                create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        sum(g.square().sum() for g in grads).backward()


def test_a_graph_of_gradients_is_no_error_where_it_is_not_differentiated():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 4, 2, 2)
    grads = torch.autograd.grad(sp.attention(q, k, v, comm=comm).sum(),
                                (q, k, v), create_graph=True)
    again = torch.autograd.grad(sp.attention(q, k, v, comm=comm).sum(),
                                (q, k, v))
    assert all(torch.equal(a, b) for a, b in zip(grads, again))


# ---- what frameworks do around a layer -------------------------------------------
def gradients(layer, tensors, around=lambda run: run()):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out = around(lambda: layer(*leaves))
    out.sin().sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_repeat_the_bits(reentrant):
    tensors = three(2, 4, 4, 2, dtype=torch.float32)

    def body(comm):
        def layer(q, k, v):
            return sp.attention(q * 2, k, v, comm=comm, causal=True)
        plainly = gradients(layer, tensors)
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        out = checkpoint(layer, *leaves, use_reentrant=reentrant)
        out.sin().sum().backward()
        again = [out.detach(), *(leaf.grad for leaf in leaves)]
        assert all(torch.equal(a, b) for a, b in zip(plainly, again))
    threads(2, body)


def test_saved_tensors_may_be_moved():
    tensors = three(2, 40, 4, 2, dtype=torch.float32)

    def body(comm):
        def layer(q, k, v):
            return sp.attention(q, k, v, comm=comm, causal=True)

        def offloaded(run):
            with torch.autograd.graph.saved_tensors_hooks(
                    lambda t: t.detach().clone(), lambda t: t):
                return run()
        first = gradients(layer, tensors)
        again = gradients(layer, tensors, offloaded)
        assert all(torch.equal(a, b) for a, b in zip(first, again))
    threads(2, body)


def test_documents_belong_to_their_call():
    """As in gradient accumulation and pipelines: forward A, forward B, backward
    A."""
    tensors = three(1, 12, 2, 2)
    tables = [[0, 5, 24], [0, 1, 20, 24], None]

    def body(comm):
        def layer(table):
            return sp.attention(*tensors, comm=comm, causal=True,
                                documents=table)
        wanted = [torch.autograd.grad(layer(t).sum(), tensors) for t in tables]
        outs = [layer(t) for t in tables]
        for i in (1, 0, 2):
            found = torch.autograd.grad(outs[i].sum(), tensors)
            assert all(torch.equal(a, b) for a, b in zip(found, wanted[i]))
    threads(2, body)


def test_a_table_that_changes_in_place_is_read_again():
    q, k, v = three(1, 12, 2, 2)
    comm, = ulyx.Communicator.local(1)
    table = torch.tensor([0, 6, 12])
    first = sp.attention(q, k, v, comm=comm, documents=table)
    grads = torch.autograd.grad(first.sum(), (q, k, v), retain_graph=True)
    table[1] = 2
    second = sp.attention(q, k, v, comm=comm, documents=table)
    assert relative(second.detach(),
                    plain(q, k, v, documents=[0, 2, 12]).detach()) < 1e-13
    again = torch.autograd.grad(first.sum(), (q, k, v))
    assert all(torch.equal(a, b) for a, b in zip(grads, again))


def test_autocast_unites_the_types():
    q, k, v = three(1, 8, 2, 2, dtype=torch.float32)
    comm, = ulyx.Communicator.local(1)
    with pytest.raises(ulyx.InvalidArgumentError, match="types differ"):
        sp.attention(q, k, v.bfloat16(), comm=comm)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = sp.attention(q, k, v.bfloat16(), comm=comm)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


# ---- ranks always agree ------------------------------------------------------------
def test_layouts_are_a_rank_s_own():
    """The strides of a rank with one row or none are arbitrary, and strides may
    change from call to call. They must not decide whether an object is found or
    made, because all ranks must do the same."""
    calls = [(3, "bshd"), (3, "bhsd"), (3, "sbhd"), (24, "bhsd"), (24, "bshd"),
             (24, "fused"), (24, "padded")]

    def body(comm):
        for number, (rows, lie) in enumerate(calls):
            q, k, v = three(2, rows, 4, 2, seed=number)
            wanted = plain(q, k, v, causal=True).detach()
            mine = positions(comm, rows)
            names = list(ORDERS)
            for call in (sp.attention, sp.ulysses):
                local = [ORDERS[names[(names.index(lie) + comm.rank) % 5]](
                    t[:, mine].detach()) for t in (q, k, v)]
                out = call(*local, comm=comm, rows=rows, causal=True)
                assert relative(out, wanted[:, mine]) <= 1e-13
    threads(4, body, timeout=10)


def test_views_are_not_copied():
    comm, = ulyx.Communicator.local(1)
    made = []
    from ulyx.torch import _tensors
    empty = _tensors.empty
    try:
        _tensors.empty = lambda *a: made.append(a) or empty(*a)
        for lie in ("bshd", "bhsd", "sbhd", "padded", "fused"):
            local = [ORDERS[lie](t.detach()).requires_grad_()
                     for t in three(2, 6, 4, 4)]
            with sp.use(ulyx.Communicator.local(1)[0]):
                for call in (sp.attention, sp.ulysses):
                    if call is sp.attention:
                        out = call(*local, causal=True)
                        out.backward(torch.ones_like(out))
                    else:
                        sp.reshuffle(*local)
        assert not made
        repeated = torch.randn(1, 1, 4, 8).expand(1, 6, 4, 8)
        sp.attention(repeated, repeated, repeated, comm=comm)
        assert len(made) == 3
    finally:
        _tensors.empty = empty


def test_calls_of_one_object_take_views_as_they_lie(monkeypatch):
    rows, made = 9, []
    from ulyx.torch import _tensors
    placed = _tensors.placed
    monkeypatch.setattr(_tensors, "placed",
                        lambda *a: made.append(a) or placed(*a))
    inputs = three(2, rows, 4, 2, seed=5)
    names = ["bshd", "bhsd", "sbhd", "padded", "fused"]

    def body(comm):
        mine = positions(comm, rows)
        local = [t.detach()[:, mine] for t in inputs]
        first = None
        for turn in range(6):
            def lie(t, i):
                return ORDERS[names[(turn + i + 2 * comm.rank) % 5]](t)
            views = [lie(t, i).detach().requires_grad_()
                     for i, t in enumerate(local)]
            out = sp.attention(*views, comm=comm, rows=rows, causal=True)
            out.backward(lie(torch.cos(local[0]), 3))
            by_head = sp.reshuffle(*(lie(t, i) for i, t in enumerate(local)),
                                   comm=comm, rows=rows)
            back = sp.reshuffle(lie(by_head[0], turn), comm=comm, rows=rows,
                                direction="head_to_seq", heads=[4])
            found = [out, *(t.grad for t in views), *by_head, *back]
            first = first or found
            assert all(torch.equal(a, b) for a, b in zip(first, found))
    threads(2, body)
    assert not made


def test_objects_of_a_capacity_take_views_as_they_lie(monkeypatch):
    """Views are taken even if their strides depend on the number of rows."""
    from ulyx.torch import _tensors
    made, empty = [], _tensors.empty
    monkeypatch.setattr(_tensors, "empty",
                        lambda *a: made.append(a) or empty(*a))

    def transposed(local):
        kept = [t.transpose(1, 2).contiguous().requires_grad_() for t in local]
        return [t.transpose(1, 2) for t in kept], \
            lambda: [t.grad.transpose(1, 2) for t in kept]

    def fused(local):
        heads = [t.shape[2] for t in local]
        kept = torch.cat(local, 2).requires_grad_()
        return kept.split(heads, 2), lambda: kept.grad.split(heads, 2)

    def dense(local):
        kept = [t.clone().requires_grad_() for t in local]
        return kept, lambda: [t.grad for t in kept]

    def body(comm):
        for rows in (5, 12, 9, 16):
            mine, found = positions(comm, rows), []
            local = [t.detach()[:, mine]
                     for t in three(2, rows, 4, 2, seed=rows)]
            for lie in (dense, transposed, fused):
                views, grads = lie(local)
                out = sp.attention(*views, comm=comm, rows=rows, causal=True)
                out.backward(transposed([torch.cos(local[0])])[0][0])
                found.append([out, *grads(), *sp.reshuffle(
                    *views, comm=comm, rows=rows)])
            for other in found[1:]:
                assert all(torch.equal(a, b) for a, b in zip(found[0], other))
    threads(2, body)
    assert not made


def test_a_rank_with_other_rows_is_named_on_all_ranks():
    def body(comm):
        rows = 4 + (comm.rank == 1)
        for call in (sp.attention, sp.ulysses):
            q, k, v = three(1, rows, 2, 2)
            try:
                call(q, k, v, comm=comm, rows=8)
            except ulyx.InvalidArgumentError as error:
                assert comm.rank == 1 and "5 rows" in str(error) or \
                    "(1, 5, 2, 8)" in str(error)
            except ulyx.PeerRefusedError as error:
                assert comm.rank == 0 and "rank 1" in str(error)
            else:
                raise AssertionError("accepted")
            q, k, v = three(1, 4, 2, 2)  # the communicator still works
            call(q, k, v, comm=comm, rows=8)
    threads(2, body)


@pytest.mark.parametrize("call", [sp.attention, sp.reshuffle])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_rank_without_memory_does_not_leave_the_others_waiting(
        call, where):
    from ulyx.torch import _attention, _reshuffle
    kind = _attention.Entry if call is sp.attention else _reshuffle.Entry
    name = {"forward": "new_results", "backward": "new_grads"}[where]

    def no_memory():
        raise MemoryError("no memory")
    if call is sp.attention:
        name = "new"
    field = {"forward": "out", "backward": "grads"}[where]

    def broken(kept):
        if call is sp.reshuffle:
            return [no_memory] * 3
        return {None: kept[None]._replace(
            **{field: no_memory if field == "out" else [no_memory] * 3})}

    def body(comm):
        q, k, v = three(1, 4, 2, 2)

        def run():
            result = call(q, k, v, comm=comm)
            result = result if call is sp.attention else result[0]
            result.sum().backward()
        run()
        entry = next(held.first for held in
                     _cache.cache_of(comm).objects.values()
                     if isinstance(held.first, kind))
        kept = getattr(entry, name)
        if comm.rank == 1:
            setattr(entry, name, broken(kept))
        try:
            run()
        except (MemoryError, ulyx.PeerRefusedError) as error:
            assert isinstance(error, MemoryError) == (comm.rank == 1)
        else:
            raise AssertionError("no error")
        setattr(entry, name, kept)
        run()
    threads(2, body)


def test_ranks_with_other_lengths_get_an_error():
    failures = errors_of(2, lambda comm: sp.attention(
        *three(1, 4 + comm.rank, 2, 2), comm=comm))
    assert all(type(f) is ulyx.MismatchError for f in failures), failures


LENGTHS = [9, 64, 33, 9, 5, 64, 1, 2, 130, 33, 129]


@pytest.mark.parametrize("options", [
    dict(causal=True), dict(order="zigzag", causal=True),
    dict(layout="bhsd", window=(5, 0)), dict(batch=2), dict(splits=True),
    dict(kv_rows=True), dict(documents=True, causal=True),
    dict(documents=True, order="zigzag_docs", causal=True)],
    ids=lambda options: "-".join(map(str, options)))
@pytest.mark.parametrize("nranks", [1, 3])
def test_an_epoch_of_lengths_is_few_objects(options, nranks):
    """Backward of each length runs in another order than forward. Values and
    gradients are those of a communicator that has had no other length."""
    options = dict(options)
    batch = options.pop("batch", 1)
    splits, kv_rows, documents, layout = (
        options.pop(name, None)
        for name in ("splits", "kv_rows", "documents", "layout"))

    def arguments(comm, rows):
        found = dict(options, rows=rows)
        if splits:
            found["splits"] = [rows - (comm.nranks - 1) * (rows // 4)] + \
                [rows // 4] * (comm.nranks - 1)
        if kv_rows:
            found["kv_rows"] = rows + 7
        if documents:
            found["documents"] = sorted({0, rows // 3, rows // 2, rows})
        if layout:
            found["layout"] = layout
        return found

    def local(comm, rows, found):
        def rows_here(count, **more):
            if found.get("order") == "zigzag_docs":
                plan = ulyx.Plan(
                    comm, [ulyx.Tensor(1, 1, "float32")],
                    [ulyx.Part(count, order="zigzag_docs")], batch=batch,
                    documents=found["documents"], max_docs=8)
                return torch.from_numpy(plan.positions())
            return positions(comm, count, found.get("order", "contiguous"),
                             **more)
        q, k, v = three(batch, rows, 4, 2)
        _, k2, v2 = three(batch, rows + 7, 4, 2)
        mine = rows_here(rows, splits=found.get("splits"))
        tensors = [t.detach()[:, mine] for t in (q, k, v)]
        if kv_rows:
            tensors[1:] = [t.detach()[:, rows_here(rows + 7)]
                           for t in (k2, v2)]
        if layout:
            tensors = [t.transpose(1, 2).contiguous() for t in tensors]
        return [t.requires_grad_() for t in tensors]

    def body(comm):
        graphs = []
        for rows in LENGTHS:
            found = arguments(comm, rows)
            tensors = local(comm, rows, found)
            graphs.append((rows, tensors,
                           sp.attention(*tensors, comm=comm, **found)))
        assert len(comm._handle.children) <= 5
        results = {}
        for rows, tensors, out in graphs[::-1]:
            out.sin().sum().backward()
            results[rows] = [out.detach(), *(t.grad for t in tensors)]
        return results

    def alone(rows):
        def fresh(comm):
            found = arguments(comm, rows)
            tensors = local(comm, rows, found)
            out = sp.attention(*tensors, comm=comm, **found)
            out.sin().sum().backward()
            return [out.detach(), *(t.grad for t in tensors)]
        return threads(nranks, fresh)
    found = threads(nranks, body)
    for rows in set(LENGTHS):
        for rank, wanted in enumerate(alone(rows)):
            assert all(torch.equal(a, b) for a, b in
                       zip(found[rank][rows], wanted)), rows


@pytest.mark.parametrize("nranks", [1, 3])
def test_an_epoch_of_lengths_is_few_plans(nranks):
    def body(comm):
        for rows in LENGTHS:
            mine = positions(comm, rows)
            q, k, v = three(2, rows, 4, 2)
            with_sdpa = sp.ulysses(*(t[:, mine] for t in (q, k, v)), comm=comm,
                                   rows=rows, causal=True)
            wanted = sp.attention(*(t[:, mine] for t in (q, k, v)), comm=comm,
                                  rows=rows, causal=True)
            torch.testing.assert_close(with_sdpa, wanted)
            (with_sdpa - wanted).sum().backward()
        gc.collect()
        assert len(comm._handle.children) <= 3 * 2
    threads(nranks, body)


def test_many_kinds_leave_few_objects():
    def body(comm):
        for window in range(2 * _cache.CAPACITY):
            sp.attention(*three(1, 4, 2, 2), comm=comm,
                         window=(window, 0)).sum().backward()
        gc.collect()
        assert len(comm._handle.children) <= _cache.CAPACITY
    threads(2, body)


# ---- which communicator ----------------------------------------------------------
def test_the_innermost_communicator_counts():
    q, k, v = three(1, 4, 2, 2)
    (a,), (b,) = ulyx.Communicator.local(1), ulyx.Communicator.local(1)
    with pytest.raises(ulyx.InvalidArgumentError, match="no communicator"):
        sp.attention(q, k, v)
    with sp.use(a):
        with sp.use(b):
            sp.attention(q, k, v)
        out = sp.attention(q, k, v)
    assert len(_cache.cache_of(a).objects) == 1
    assert len(_cache.cache_of(b).objects) == 1
    # outside of use(), backward uses the communicator of its forward
    out.sum().backward()
    with pytest.raises(ulyx.InvalidArgumentError, match="no communicator"):
        sp.reshuffle(q)


def test_modules_are_bound_weakly():
    comm, = ulyx.Communicator.local(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    sp.bind(model, comm)
    assert sp.bound(model[0]) is comm and sp.bound(torch.nn.ReLU()) is None
    # the module itself is unchanged and can be copied
    assert copy.deepcopy(model) is not None
    sp.unbind(model[1])
    assert sp.bound(model[1]) is None
    gone = weakref.ref(comm)
    del model, comm
    gc.collect()
    assert gone() is None


def test_invalid_arguments_are_named():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 4, 2, 2)
    cases = [
        (lambda: sp.attention(q[0], k, v), "3 axes"),
        (lambda: sp.attention(q, k[:, :2], v), "shapes do not fit"),
        (lambda: sp.attention(q, k, v, layout="hbsd"), "'hbsd'"),
        (lambda: sp.attention(q, k, v, causal=True, window=(2, 2)), "causal"),
        (lambda: sp.attention(q, k, v, window=[3]), "not (keys before"),
        (lambda: sp.attention(q, k, v, sinks=torch.zeros(3)), r"not (2,)"),
        (lambda: sp.attention(q.long(), k.long(), v.long()), "int64"),
        (lambda: sp.attention(q, k, v, documents=torch.zeros(2, 2)), "[n + 1]"),
        (lambda: sp.attention(q, k, v, order="random"), "'random'"),
        (lambda: sp.reshuffle(), "no tensors"),
        (lambda: sp.reshuffle(q, direction="up"), "'up'"),
        (lambda: sp.reshuffle(q, k, heads=[2]), "1 entries"),
        (lambda: sp.reshuffle(q, order="zigzag_docs"), "zigzag_docs"),
    ]
    with sp.use(comm):
        for call, text in cases:
            with pytest.raises(ulyx.UlyxError) as caught:
                call()
            assert text in str(caught.value)
        with pytest.raises(TypeError):
            sp.attention(q, k, v, dropout=0.1)


# ---- compiled code ---------------------------------------------------------------
OPTIONS = ("bottom_right", 0.0, 0.0, "contiguous", None)


def test_opcheck():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 16, 4, 2)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)
    docs = torch.tensor([0, 5, 16])
    where = (comm.number, 16, -1, "causal", 0, 0)
    for extra in ((None, None, None), (sinks, None, docs)):
        torch.library.opcheck(_operators.attention,
                              (q, k, v, *extra, *where, *OPTIONS))
    torch.library.opcheck(
        _operators.reshuffle,
        ([q, k, v], 0, [4, 2, 2], comm.number, 16, "contiguous", None))


def test_operators_check_what_memory_depends_on():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 16, 4, 2)
    where = (comm.number, 16, -1, "causal", 0, 0)
    for sinks in (torch.randn(4), torch.randn(3, dtype=torch.float64)):
        with pytest.raises(ulyx.InvalidArgumentError, match="sinks"):
            _operators.attention(q, k, v, sinks, None, None, *where, *OPTIONS)
    with pytest.raises(ulyx.InvalidArgumentError, match="communicator 999999"):
        _operators.attention(q, k, v, None, None, None, 999999, *where[1:],
                             *OPTIONS)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["attention", "documents", "ulysses"])
def test_compiled_whole(name, dynamic):
    comm, = ulyx.Communicator.local(1)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)
    docs = torch.tensor([0, 5, 16])
    layers = {
        "attention": lambda q, k, v: sp.attention(
            q * 2, k, v, comm=comm, causal=True, sinks=sinks, layout="bhsd"),
        "documents": lambda q, k, v: sp.attention(
            q * 2, k, v, documents=docs, window=(4, 0)),
        "ulysses": lambda q, k, v: sp.ulysses(q * 2, k, v, causal=True),
    }
    layer = layers[name]
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True,
                             dynamic=dynamic)
    lengths = (16, 16) if name == "documents" or not dynamic else (16, 41, 24)
    with sp.use(comm):
        for rows in lengths:
            q, k, v = three(1, rows, 4, 2)
            if name == "attention":
                q, k, v = (t.detach().transpose(1, 2).requires_grad_()
                           for t in (q, k, v))
            wanted = [layer(q, k, v), None]
            wanted[1] = torch.autograd.grad(wanted[0].sin().sum(), (q, k, v))
            found = compiled(q, k, v)
            grads = torch.autograd.grad(found.sin().sum(), (q, k, v))
            assert torch.equal(found, wanted[0])
            assert all(torch.equal(a, b) for a, b in zip(grads, wanted[1]))


def test_compiled_code_follows_the_communicator():
    """A trace made inside one use() is not used inside another."""
    q, k, v = three(1, 8, 2, 2)
    comms = [ulyx.Communicator.local(1)[0] for _ in range(2)]
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: sp.attention(q * 2, k, v),
                             backend="eager", fullgraph=True)
    for comm in comms * 2:
        with sp.use(comm):
            compiled(q, k, v)
    assert [len(_cache.cache_of(comm).objects) for comm in comms] == [1, 1]
    with pytest.raises(Exception):
        compiled(q, k, v)  # outside of any use()


def test_double_backward_of_compiled_code_is_refused():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(1, 4, 2, 2)
    where = (comm.number, 4, -1, "none", 0, 0)
    out, _ = _operators.attention(q, k, v, None, None, None, *where, *OPTIONS)
    dq, = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated again"):
        dq.sum().backward()


def test_meta_tensors_have_shapes():
    comm, = ulyx.Communicator.local(1)
    q = torch.empty(2, 8, 4, 16, device="meta")
    k = torch.empty(2, 8, 2, 16, device="meta")
    assert sp.attention(q, k, k, comm=comm).shape == q.shape
    assert sp.reshuffle(q, k, comm=comm)[1].shape == k.shape
