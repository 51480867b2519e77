# SPDX-License-Identifier: Apache-2.0
"""From a batch of whole samples to this rank's tokens of it."""
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ..communicator import Communicator
from ..errors import InvalidArgumentError, UnsupportedError

Batch = Dict[str, Any]
IGNORED = -100  # the label that is no target


def local_rows(rows: int, nranks: int, rank: int) -> Tuple[int, int]:
    """Returns (first, end) of a rank's tokens: rows / nranks, and one more on
    the first ranks. This is the contiguous order of ulyx."""
    each, more = divmod(rows, nranks)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


def _tokens_of(batch: Batch) -> torch.Tensor:
    for name in ("input_ids", "inputs_embeds"):
        if batch.get(name) is not None:
            return batch[name]  # type: ignore[no-any-return]
    raise InvalidArgumentError("the batch has no input_ids and no inputs_embeds")


def _padding(mask: torch.Tensor) -> Optional[torch.Tensor]:
    """Returns the documents [cumulative lengths over b * S] of a mask of
    padding, or None if nothing is padded. Padding is a document of its own, so
    no other token attends to it."""
    mask = mask.bool()
    if bool(mask.all()):
        return None
    if mask.dim() != 2:
        raise UnsupportedError(f"an attention_mask of {mask.dim()} axes")
    rows = mask.shape[1]
    ends: List[int] = [0]
    for item, seen in enumerate(mask):
        places = seen.nonzero().flatten()
        first, end = (int(places[0]), int(places[-1]) + 1) if len(places) \
            else (0, 0)
        if end - first != len(places):
            raise UnsupportedError(
                f"attention_mask of item {item} has zeros between ones")
        ends += [item * rows + first, item * rows + end, (item + 1) * rows]
    return torch.tensor(sorted(set(ends)), dtype=torch.int64)


def packing(positions: torch.Tensor, batch: int) -> Optional[torch.Tensor]:
    """Returns the documents that positions give, which start again at each
    document, within each item of the batch."""
    starts = positions.expand(batch, -1).diff(dim=-1) != 1
    if not bool(starts.any()):
        return None
    first = torch.ones(batch, 1, dtype=torch.bool)
    at = torch.cat([first, starts], 1).flatten().nonzero().flatten()
    return torch.cat([at, torch.tensor([first.numel() * positions.shape[-1]])])


def _documents(batch: Batch, items: int) -> Optional[torch.Tensor]:
    given = batch.pop("cu_seq_lens_q", None)
    for name in ("cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"):
        batch.pop(name, None)
    mask = batch.pop("attention_mask", None)
    padding = None if mask is None else _padding(mask)
    if given is None and mask is None and \
            isinstance(batch.get("position_ids"), torch.Tensor):
        given = packing(batch["position_ids"], items)
    if given is None or padding is None:
        return padding if given is None else given
    return torch.unique(torch.cat([given.to(torch.int64), padding]))


def _at_least(batch: Batch, rows: int, least: int) -> Batch:
    """Returns the batch with at least so many tokens, because models of
    transformers cannot run on none. What is added is padding."""
    items = int(_tokens_of(batch).shape[0])
    more = least - rows
    if batch.get("attention_mask") is None and "cu_seq_lens_q" not in batch:
        batch["attention_mask"] = torch.ones(items, rows, dtype=torch.int64)
    for name, value in batch.items():
        if not isinstance(value, torch.Tensor) or value.dim() < 2 or \
                value.shape[1] != rows:
            continue
        label = name in ("labels", "shift_labels")
        shape = (value.shape[0], more, *value.shape[2:])
        batch[name] = torch.cat(
            [value, value.new_full(shape, IGNORED if label else 0)], 1)
    given = batch.get("cu_seq_lens_q")
    if given is not None:  # of items of `rows` tokens each
        given = given.to(torch.int64)
        ends = given + given.div(rows, rounding_mode="floor") * more
        batch["cu_seq_lens_q"] = torch.unique(torch.cat(
            [ends, *(torch.tensor([i * least + rows, (i + 1) * least])
                     for i in range(items))]))
    return batch


class Collator:
    """Makes a batch with `inner`, as one process would, and keeps this rank's
    tokens of it: input_ids, labels and whatever else has the sequence on its
    second axis. All ranks of the communicator are to collate the same samples
    (feed() sees to it for a Trainer).

    Labels are shifted before they are cut (shift_labels), so that the last
    token of a rank predicts the first of the next. position_ids are those of
    the whole sequence. Padding (attention_mask) and packing (cu_seq_lens_q, or
    position_ids that start over) become documents. ulyx_rows is the length
    of the whole sequence: it may be any; what is shorter than there are ranks is
    padded, for models of transformers cannot run on no tokens.

    inner: None is transformers.default_data_collator. Raises UnsupportedError
    for masks that are no padding, InvalidArgumentError without input_ids.
    """

    def __init__(self, comm: Communicator,
                 inner: Optional[Callable[[Any], Batch]] = None):
        if inner is None:
            from transformers import default_data_collator
            inner = default_data_collator
        self.nranks, self.rank = comm.nranks, comm.rank
        self.inner: Callable[[Any], Batch] = inner

    def __call__(self, samples: Any) -> Batch:
        return self.shard(dict(self.inner(samples)))

    def shard(self, batch: Batch) -> Batch:
        """Returns this rank's tokens of a whole batch."""
        batch = dict(batch)
        items, rows = (int(size) for size in _tokens_of(batch).shape[:2])
        if rows < self.nranks:
            batch = _at_least(batch, rows, self.nranks)
            rows = self.nranks
        documents = _documents(batch, items)
        if batch.get("labels") is not None and "shift_labels" not in batch:
            batch["shift_labels"] = torch.nn.functional.pad(
                batch["labels"], (0, 1), value=IGNORED)[..., 1:]
        if batch.get("position_ids") is None:
            batch["position_ids"] = torch.arange(rows).expand(items, -1)
        first, end = local_rows(rows, self.nranks, self.rank)
        for name, value in batch.items():
            if isinstance(value, torch.Tensor) and value.dim() >= 2 and \
                    value.shape[1] == rows:
                batch[name] = value[:, first:end].contiguous()
        batch["ulyx_rows"] = rows
        if documents is not None:
            batch["cu_seq_lens_q"] = documents.to(torch.int32)
        return batch
