# SPDX-License-Identifier: Apache-2.0
"""Losses and gradients of whole models, sharded over ranks, compared with one
process."""
import models
import pytest
import ranks
import torch

import ulyx
import ulyx.transformers as ut


def alone(model, whole, documents=None):
    """Returns (loss, gradients) of one process; packed documents are given by a
    full mask."""
    count = models.targets(whole["labels"])
    given = dict(whole)
    if documents is not None:
        given["position_ids"] = positions_of(documents)
        given["attention_mask"] = packed_masks(model, documents)
    loss = models.loss_of(model, given, count)
    loss.backward()
    return float(loss.detach()), models.gradients(model)


def positions_of(documents):
    """Returns [1, S] positions that start again at each document."""
    return torch.cat([torch.arange(end - begin) for begin, end in
                      zip(documents, documents[1:])])[None]


def packed_masks(model, documents):
    """The mask of each token, [1, 1, S, S]; a dict with one mask per type of
    layer where the model has several types, as transformers takes it."""
    config = model.config
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if types is None:
        return packed_mask(documents, model.dtype, window)
    return {kind: packed_mask(
        documents, model.dtype, window if kind == "sliding_attention" else None)
        for kind in set(types)}


def packed_mask(documents, dtype, window):
    at = torch.arange(documents[-1])
    number = torch.bucketize(at, torch.tensor(documents[1:]), right=True)
    distance = at[:, None] - at[None]
    seen = (number[:, None] == number[None]) & (distance >= 0)
    if window is not None:
        seen &= distance < window
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(
        ~seen, torch.finfo(dtype).min)
    return mask[None, None]


def sharded(model, whole, nranks, count):
    """Returns (loss, gradients), summed over the ranks, which are threads."""
    def body(comm):
        mine = ut.attach(models.twin(model), comm)
        local = ut.Collator(comm, lambda batch: batch)(whole)
        loss = models.loss_of(mine, local, count)
        loss.backward()
        return float(loss.detach()), models.gradients(mine)
    ends = ranks.threads(nranks, body)
    total = {name: sum(end[1][name] for end in ends) for name in ends[0][1]}
    return sum(end[0] for end in ends), total


def bounds(kind):
    """Returns the bounds of a model. Gemma's norms run in float32 in any
    case."""
    return (1e-6, 1e-6) if kind == "gemma3" else (1e-12, 1e-12)


@pytest.mark.parametrize("nranks", [2, 3, 4])
@pytest.mark.parametrize("kind", list(models.KINDS))
def test_loss_and_gradients_are_those_of_one_process(kind, nranks):
    model, whole = models.make(kind), models.batch(2, 37)
    count = models.targets(whole["labels"])
    wanted = alone(models.twin(model), whole)
    found = sharded(model, whole, nranks, count)
    loss_bound, bound = bounds(kind)
    assert abs(found[0] - wanted[0]) <= loss_bound * abs(wanted[0])
    assert models.worst(found[1], wanted[1]) <= bound


DOCUMENTS = [0, 13, 14, 40, 61]


def packed(whole, say="cu_seq_lens"):
    """Returns the batch with its documents, which cu_seq_lens_q or the
    positions alone give."""
    made = dict(whole, position_ids=positions_of(DOCUMENTS))
    if say == "cu_seq_lens":
        made["cu_seq_lens_q"] = torch.tensor(DOCUMENTS, dtype=torch.int32)
    return made


@pytest.mark.parametrize("nranks", [2, 3, 4])
@pytest.mark.parametrize("kind", list(models.KINDS))
def test_packed_documents_do_not_attend_to_each_other(kind, nranks):
    model, whole = models.make(kind), models.batch(1, DOCUMENTS[-1])
    wanted = alone(models.twin(model), whole, DOCUMENTS)
    say = ["positions", "cu_seq_lens"][nranks % 2]
    found = sharded(model, packed(whole, say), nranks,
                    models.targets(whole["labels"]))
    loss_bound, bound = bounds(kind)
    assert abs(found[0] - wanted[0]) <= loss_bound * abs(wanted[0])
    assert models.worst(found[1], wanted[1]) <= bound


@pytest.mark.parametrize("side", ["left", "right"])
def test_no_token_attends_to_padding(side):
    model, whole = models.make("llama"), models.batch(3, 23)
    mask = torch.ones(3, 23, dtype=torch.int64)
    for item, missing in enumerate((0, 5, 11)):
        where = slice(0, missing) if side == "left" else \
            slice(23 - missing, 23)
        mask[item, where] = 0
        whole["labels"][item, where] = -100
    if side == "left":  # the first token after the padding is predicted from padding
        whole["labels"][torch.arange(3), mask.argmax(1)] = -100
    whole["attention_mask"] = mask
    wanted = alone(models.twin(model), whole)
    found = sharded(model, whole, 3, models.targets(whole["labels"]))
    assert abs(found[0] - wanted[0]) <= 1e-12 * abs(wanted[0])
    assert models.worst(found[1], wanted[1]) <= 1e-12


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_there_may_be_more_ranks_than_tokens(rows):
    model, whole = models.make("llama"), models.batch(2, rows)
    whole["labels"][:] = whole["input_ids"]
    count = max(models.targets(whole["labels"]), 1)
    wanted = models.twin(model)
    loss = models.loss_of(wanted, whole, count)
    loss.backward()
    found = sharded(model, whole, 4, count)
    assert abs(found[0] - float(loss.detach())) <= 1e-12
    if rows > 1:
        assert models.worst(found[1], models.gradients(wanted)) <= 1e-12


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["plain", "packed"])
@pytest.mark.parametrize("kind", list(models.KINDS))
def test_float32_is_as_near_as_one_process(kind, documents):
    """The gradients may be at most twice as far from those of float64 as the
    gradients of one process are."""
    exact, single = models.make(kind), models.make(kind, torch.float32)
    single.load_state_dict(exact.state_dict())
    whole = models.batch(1, 61) if documents else models.batch(2, 37)
    wanted = alone(models.twin(exact), whole, documents)[1]
    own = models.worst(alone(models.twin(single), whole, documents)[1], wanted)
    given = packed(whole) if documents else whole
    for nranks in (2, 3, 4):
        found = sharded(single, given, nranks,
                        models.targets(whole["labels"]))[1]
        assert models.worst(found, wanted) <= 2 * own


def test_checkpointed_layers_repeat_the_bits():
    model, whole = models.make("mistral"), models.batch(1, 29)
    count = models.targets(whole["labels"])
    plain = sharded(model, whole, 2, count)
    model.gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False})
    found = sharded(model, whole, 2, count)
    assert all(torch.equal(found[1][name], plain[1][name])
               for name in plain[1])


# ---- refusals ---------------------------------------------------------------

def refusal_of(change=None, batch=None, attach=True):
    """Returns the text of the error that a model on two ranks raises."""
    model, whole = models.make("llama"), models.batch(1, 16)

    def body(comm):
        mine = models.twin(model)
        if attach:
            ut.attach(mine, comm)
        else:
            ut.attach(models.twin(model), comm)
            mine.set_attn_implementation(ut.NAME)
        if change:
            change(mine)
        local = ut.Collator(comm, lambda b: b)(whole)
        local.update(batch(local) if batch else {})
        with pytest.raises(ulyx.UlyxError) as caught:
            mine(**local)
        return str(caught.value)
    texts = ranks.threads(2, body)
    assert texts[0] == texts[1]
    return texts[0]


def test_dropout_is_refused():
    def change(model):
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1
    assert "dropout of 0.1" in refusal_of(change)


def test_a_model_without_a_communicator_is_refused():
    assert "has no communicator" in refusal_of(attach=False)


@pytest.mark.parametrize("mask, text", [
    (lambda b: {"attention_mask": torch.ones(1, 1, 8, 8)}, "is a tensor"),
    (lambda b: {"attention_mask": torch.tensor([[0] * 4 + [1] * 4])}, "zeros"),
    (lambda b: {"position_ids": torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3]])},
     "start over"),
    (lambda b: {"output_attentions": True}, "output_attentions"),
])
def test_masks_that_are_not_known_are_refused(mask, text):
    assert text in refusal_of(batch=mask)


def test_a_mask_with_holes_is_refused():
    comm, = ulyx.Communicator.local(1)
    collator = ut.Collator(comm, lambda batch: batch)
    with pytest.raises(ulyx.UnsupportedError, match="zeros between ones"):
        collator({"input_ids": torch.zeros(1, 4, dtype=torch.int64),
                  "attention_mask": torch.tensor([[1, 0, 1, 1]])})
    with pytest.raises(ulyx.InvalidArgumentError, match="input_ids"):
        collator({"labels": torch.zeros(1, 4)})


def test_detach_gives_the_model_back():
    model, whole = models.make("llama"), models.batch(1, 9)
    wanted = float(model(**whole).loss.detach())
    comm, = ulyx.Communicator.local(1)
    ut.attach(model, comm)
    ut.detach(model)
    assert float(model(**whole).loss.detach()) == wanted


# ---- the sampler, the scale -------------------------------------------------

@pytest.mark.parametrize("count, size, times, drop", [
    (8, 2, 2, False), (5, 2, 3, False), (5, 2, 3, True), (1, 4, 2, False),
    (7, 3, 1, False)])
def test_neighbours_read_the_same_samples(count, size, times, drop):
    sampler = ut.RepeatSampler(range(count), size, times, drop)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    batches = [indices[i:i + size] for i in range(0, len(indices), size)]
    runs = [batches[i:i + times] for i in range(0, len(batches), times)]
    assert all(run == [run[0]] * times for run in runs)
    seen = {index for batch in batches for index in batch}
    assert seen == set(range(count - count % size if drop else count))


def test_loss_scale_goes_by_the_reduction():
    assert ut.loss_scale("ddp", 4) == 4 and ut.loss_scale("sum", 4) == 1
    assert ut.loss_scale("zero2", 8) == 8 and ut.loss_scale("zero2", 8, 4) == 2
    assert ut.loss_scale("zero3", 8, 4) == 8
    with pytest.raises(ulyx.InvalidArgumentError, match="does not divide"):
        ut.loss_scale("zero2", 4, 3)
    with pytest.raises(ulyx.InvalidArgumentError, match="there are"):
        ut.loss_scale("mean", 4)
