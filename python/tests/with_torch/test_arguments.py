# SPDX-License-Identifier: Apache-2.0
"""What the calls of ulyx.torch refuse, and in which words, on the rank that is
wrong and on its peers."""
import numpy as np
import pytest
import torch

import ulyx
import ulyx.torch as sp
from ranks import errors_of, threads
from ulyx.torch import _arguments


def three(rows, heads=2, kv_heads=2, dim=8, dtype=torch.float32, batch=1):
    return [torch.ones(batch, rows, count, dim, dtype=dtype)
            for count in (heads, kv_heads, kv_heads)]


def reshuffled(q, k, v, **options):
    return sp.reshuffle(q, k, v, **options)


CALLS = {"attention": sp.attention, "ulysses": sp.ulysses,
         "reshuffle": reshuffled}


# ---- numbers of tokens -----------------------------------------------------------
def ranks_with(counts, call, **options):
    return errors_of(len(counts), lambda comm: call(
        *three(counts[comm.rank]), comm=comm, **options), timeout=60)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_uneven_tokens_without_rows(call):
    for failure in ranks_with([25, 26, 25], call):
        assert type(failure) is ulyx.MismatchError
        text = str(failure)
        assert text.startswith("rank 0 has 25 tokens and rank 1 has 26: give "
                               "rows= "), text
        assert "splits=" in text and "parts[" not in text


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_uneven_tokens_after_even_ones(call):
    """The ranks have objects for these lengths, or one rank makes another."""
    def body(comm):
        for count in (8, 9, 10):
            call(*three(count), comm=comm)
        failures = []
        for count in (11 + comm.rank, 12, 8 + 40 * comm.rank):
            try:
                call(*three(count), comm=comm)
                failures.append(None)
            except ulyx.UlyxError as error:
                failures.append(error)
        return failures
    for rank, (first, none, last) in enumerate(threads(2, body, 60)):
        assert none is None
        for failure, text in (
                (first, f"tokens or documents, and rank {rank} has {11 + rank} "
                        "tokens: give rows="),
                (last, f"of which rank {rank} has {8 + 40 * rank}, give rows=")):
            assert type(failure) is ulyx.MismatchError
            assert text in str(failure), failure


def test_uneven_tokens_with_rows_are_of_other_rows():
    for failure in errors_of(2, lambda comm: sp.attention(
            *three(4), comm=comm, rows=8 + comm.rank), timeout=60):
        assert "rows is 8 on rank 0 and 9 on rank 1" in str(failure)
    for failure in errors_of(2, lambda comm: sp.attention(
            *three(4), comm=comm, rows=8, kv_rows=8 + comm.rank), timeout=60):
        assert "kv_rows is 8 on rank 0 and 9 on rank 1" in str(failure)


def test_another_share_than_that_of_rows():
    own, peer = errors_of(2, lambda comm: sp.attention(
        *three(5 - comm.rank), comm=comm, rows=8), timeout=60)
    assert type(own) is ulyx.InvalidArgumentError
    assert "q has 5 rows" in str(own) and "splits=" in str(own)
    assert type(peer) is ulyx.PeerRefusedError
    assert str(peer).startswith("rank 0 refused the call: q has 5 rows and k 5; "
                                "of 8 rows over 2 ranks this one has 4")


# ---- what else differs -----------------------------------------------------------
@pytest.mark.parametrize("text, options", [
    ("the mask of causal= and window= is 'none' on rank 0 and 'causal' on rank 1",
     lambda one: dict(causal=one)),
    ("window[0] is 2 on rank 0 and 3 on rank 1",
     lambda one: dict(window=(2 + one, 0))),
    ("order is 'contiguous' on rank 0 and 'zigzag' on rank 1",
     lambda one: dict(order="zigzag" if one else "contiguous")),
    ("scale is None on rank 0 and 0.5 on rank 1",
     lambda one: dict(scale=0.5 if one else None)),
    ("splits[0] is 1 on rank 0 and 3 on rank 1",
     lambda one: dict(splits=[3, 1] if one else [1, 3])),
])
def test_options_that_differ(text, options):
    failures = errors_of(2, lambda comm: sp.attention(
        *three(2), comm=comm, **options(comm.rank == 1)), timeout=60)
    for failure in failures:
        assert type(failure) is ulyx.MismatchError and text in str(failure)


@pytest.mark.parametrize("text, forms", [
    ("the number of heads of q is 2 on rank 0 and 4 on rank 1",
     lambda one: dict(heads=4 if one else 2)),
    ("the number of heads of k is 1 on rank 0 and 2 on rank 1",
     lambda one: dict(kv_heads=2 if one else 1)),
    ("the batch of the tensors is 1 on rank 0 and 2 on rank 1",
     lambda one: dict(batch=2 if one else 1)),
    ("the last axis of v is 8 on rank 0 and 16 on rank 1",
     lambda one: dict(dim=16 if one else 8)),
    ("the type of q is float32 on rank 0 and bfloat16 on rank 1",
     lambda one: dict(dtype=torch.bfloat16 if one else torch.float32)),
])
def test_tensors_that_differ(text, forms):
    failures = errors_of(2, lambda comm: sp.attention(
        *three(2, **forms(comm.rank == 1)), comm=comm), timeout=60)
    for failure in failures:
        assert type(failure) is ulyx.MismatchError and text in str(failure), \
            failure


def test_tensors_of_an_exchange_that_differ():
    for failure in errors_of(2, lambda comm: sp.reshuffle(
            *three(2, dim=8 + 8 * comm.rank), comm=comm), timeout=60):
        assert "the last axis of tensor 0 is 8 on rank 0 and 16 on rank 1" in \
            str(failure)


# ---- peers -----------------------------------------------------------------------
def test_peers_of_a_rank_without_memory():
    def body(comm):
        sp.attention(*three(4), comm=comm)
        if comm.rank == 1:
            from ulyx.torch import _cache

            def no_memory(size):
                raise MemoryError("no memory")
            _cache.cache_of(comm).workspace = no_memory
        with pytest.raises((MemoryError, ulyx.PeerRefusedError)) as caught:
            sp.attention(*three(4), comm=comm)
        return caught.value
    peer, own = threads(2, body, 60)
    assert type(own) is MemoryError
    assert str(peer) == "rank 1 refused the call: no memory"


def test_peers_of_an_exchange():
    own, peer = errors_of(2, lambda comm: sp.reshuffle(
        *three(5 - comm.rank), comm=comm, rows=8), timeout=60)
    assert "has the shape (1, 5, 2, 8)" in str(own)
    assert str(peer).startswith("rank 0 refused the call: ")
    assert "has the shape (1, 5, 2, 8)" in str(peer)


# ---- documents -------------------------------------------------------------------
WRONG = {"begin at 1 and end at 8": [1, 3, 8], "begin at 0 and end at 7": [0, 3, 7],
         "begin at 0 and end at 12": [0, 3, 12], "begin at 4 and end at 4": [4]}


@pytest.mark.parametrize("made", [list, np.array, torch.tensor],
                         ids=["list", "numpy", "torch"])
@pytest.mark.parametrize("call", [sp.attention, sp.ulysses])
@pytest.mark.parametrize("text", WRONG)
def test_documents_are_of_all_tokens(text, call, made):
    for failure in errors_of(2, lambda comm: call(
            *three(4), comm=comm, documents=made(WRONG[text])), timeout=60):
        assert type(failure) is ulyx.InvalidArgumentError
        assert f"documents {text}; " in str(failure)
        assert "end at 8, the number of all tokens" in str(failure)


def test_documents_of_one_rank():
    def body(comm):
        tables = [[0, 3, 8], [0, 3, 8] if comm.rank else [0, 3, 7], [0, 5, 8]]
        found = []
        for table in tables:
            try:
                sp.attention(*three(4), comm=comm, documents=table)
                found.append(None)
            except ulyx.UlyxError as error:
                found.append(error)
        return found
    own, peer = threads(2, body, 60)
    assert own[0] is own[2] is peer[0] is peer[2] is None
    assert "end at 7" in str(own[1])
    assert type(peer[1]) is ulyx.PeerRefusedError
    assert "rank 0 refused the call: documents begin at 0 and end at 7" in \
        str(peer[1])


def test_documents_of_keys():
    comm, = ulyx.Communicator.local(1)
    q, k, v = three(6)
    options = dict(comm=comm, kv_rows=8, documents=[0, 2, 6])
    k, v = three(8)[1:]
    sp.attention(q, k, v, documents_k=torch.tensor([0, 5, 8]), **options)
    with pytest.raises(ulyx.InvalidArgumentError,
                       match="documents_k begin at 0 and end at 7"):
        sp.attention(q, k, v, documents_k=[0, 5, 7], **options)


def test_documents_in_compiled_code():
    comm, = ulyx.Communicator.local(1)
    compiled = torch.compile(lambda q, k, v, ends: sp.attention(
        q * 2, k, v, comm=comm, documents=ends), backend="aot_eager",
        fullgraph=True)
    torch._dynamo.reset()
    compiled(*three(8), torch.tensor([0, 3, 8]))
    with pytest.raises(ulyx.InvalidArgumentError, match="end at 7"):
        compiled(*three(8), torch.tensor([0, 3, 7]))


# ---- types -----------------------------------------------------------------------
ARRAY = np.ones((1, 4, 2, 8), np.float32)
TYPES = {
    "q": [ARRAY, ARRAY.tolist(), None],
    "k": [ARRAY, ARRAY.tolist(), None],
    "v": [ARRAY, None],
    "comm": ["world", 4],
    "layout": [None, ["bshd"]],
    "order": [None, ["zigzag"]],
    "rows": [8.0, "8", torch.tensor(8)],
    "splits": [8, "44", [2.0, 2.0], [None, 4]],
    "causal": ["yes", torch.tensor(True)],
    "window": [4, 4.0, "44", (1.5, 0), torch.tensor([1, 2]), ("1", 0)],
    "scale": ["0.5", torch.tensor(0.5), [0.5]],
    "kv_rows": [8.0, torch.tensor(8)],
    "align": [None, 0],
    "softcap": ["3", torch.tensor(3.0)],
    "sinks": [[1.0, 1.0], np.ones(2, np.float32), 1.0],
    "alibi_slopes": [[1.0, 1.0], np.ones(2, np.float32)],
}
OF_CALLS = {
    sp.attention: TYPES,
    sp.ulysses: {name: TYPES[name] for name in
                 ("q", "k", "v", "comm", "layout", "order", "rows", "splits",
                  "causal", "window", "scale")},
}


@pytest.mark.parametrize("call, name, given", [
    pytest.param(call, name, given, id=f"{call.__name__}-{name}-{i}")
    for call, types in OF_CALLS.items() for name, values in types.items()
    for i, given in enumerate(values)])
def test_another_type_is_refused_by_name(call, name, given):
    comm, = ulyx.Communicator.local(1)
    arguments = dict(zip("qkv", three(4)), comm=comm)
    if name == "splits" and isinstance(given, list):
        comm = arguments["comm"] = ulyx.Communicator.local(2)[0]
    for _ in range(2):  # a second time: nothing of the first was kept
        with pytest.raises(TypeError) as caught:
            call(**{**arguments, name: given})
        text = str(caught.value)
        assert text.startswith((f"{name} is ", f"{name}[")), text
        assert "expected is" in text


@pytest.mark.parametrize("name, given", [
    ("direction", 0), ("layout", ["bshd"]), ("order", 1), ("rows", 4.0),
    ("heads", 2), ("heads", [2.0]), ("splits", 4)])
def test_another_type_of_an_exchange(name, given):
    comm, = ulyx.Communicator.local(1)
    q = three(4)[0]
    with pytest.raises(TypeError, match=rf"^{name}(\[0\])? is .*expected is"):
        sp.reshuffle(q, **{"comm": comm, name: given})
    with pytest.raises(TypeError, match="^tensor 1 is of type ndarray"):
        sp.reshuffle(q, ARRAY, comm=comm)


@pytest.mark.parametrize("options, text", [
    (dict(window=(-1, 0)), "window is (-1, 0)"),
    (dict(window=(1, 2, 3)), "not (keys before, keys after)"),
    (dict(splits=[2, 2]), "splits has 2 entries, not 1 (the tokens of each rank)"),
    (dict(documents=torch.tensor([0.0, 4.0])), "documents are of type"),
    (dict(documents="04"), "documents is not a list of whole numbers"),
    (dict(documents_k=torch.zeros(2, 2)), "documents_k have the shape"),
])
def test_values_are_refused_by_name(options, text):
    comm, = ulyx.Communicator.local(1)
    with pytest.raises(ulyx.InvalidArgumentError) as caught:
        sp.attention(*three(4), comm=comm, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize("options", [
    dict(rows=np.int64(4)), dict(rows=4, splits=np.array([4])),
    dict(splits=torch.tensor([4])), dict(splits=[np.int32(4)]),
    dict(window=[np.int64(2), None]), dict(window=np.array([2, 0])),
    dict(scale=np.float32(0.25)), dict(scale=1, softcap=2),
    dict(causal=np.bool_(True)), dict(causal=1),
    dict(documents=np.array([0, 1, 4], np.int32)),
    dict(documents=ulyx.Docs([0, 2], [1, 2]))])
def test_what_numpy_has_is_taken(options):
    """Numbers of NumPy are as those of Python, in a call like an earlier one too."""
    comm, = ulyx.Communicator.local(1)
    for _ in range(2):
        assert sp.attention(*three(4), comm=comm, **options).shape == (1, 4, 2, 8)


def test_calls_like_an_earlier_one_are_not_checked_again(monkeypatch):
    comm, = ulyx.Communicator.local(1)
    options = dict(comm=comm, window=(2, 0), documents=torch.tensor([0, 1, 4]))
    sp.attention(*three(4), **options)
    for name in ("attention", "window", "lengths", "check_documents"):
        monkeypatch.setattr(_arguments, name, None)
    sp.attention(*three(4), **options)


def test_no_communicator_of_another_kind():
    with pytest.raises(TypeError, match="comm is of type str"):
        with sp.use("world"):
            sp.attention(*three(4))
