# SPDX-License-Identifier: Apache-2.0
"""The attention between two exchanges: the default core of ulysses()."""
from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F

from ..arrays import Docs
from ..errors import UnsupportedError

Window = Tuple[Optional[int], Optional[int]]


class Head(NamedTuple):
    """The arguments of a core beside its tensors."""

    causal: bool
    window: Optional[Window]
    scale: Optional[float]
    documents: Any
    kv_map: Tuple[int, ...]  # for each query head, its KV head
    first_head: int  # global number of the first query head


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
         head: Head) -> torch.Tensor:
    """torch's scaled_dot_product_attention on [b, S, h, d], the core of
    ulysses() by default. A window or documents become a mask of [S, S]."""
    group = len(head.kv_map) // max(1, k.shape[2])
    if head.kv_map != tuple(i // max(1, group) for i in range(len(head.kv_map))):
        index = torch.tensor(head.kv_map, device=k.device)
        k, v = k.index_select(2, index), v.index_select(2, index)
    mask = None
    if head.window is not None or head.documents is not None:
        mask = _visible(q.shape[0], q.shape[1], head).to(q.device)
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
        attn_mask=mask, is_causal=head.causal and mask is None,
        scale=head.scale, enable_gqa=q.shape[2] != k.shape[2])
    if mask is not None:  # a token outside of all documents attends to no key
        out = torch.where(mask.any(-1, keepdim=True), out, 0.0)
    return out.transpose(1, 2)


def _visible(batch: int, rows: int, head: Head) -> torch.Tensor:
    """Returns [b, 1, S, S]: to which keys a query attends."""
    at = torch.arange(rows)
    distance = at[:, None] - at[None, :]
    left, right = head.window if head.window is not None else (None, None)
    if head.causal:
        right = 0
    seen = torch.ones(rows, rows, dtype=torch.bool)
    if left is not None:
        seen &= distance <= left
    if right is not None:
        seen &= distance >= -right
    seen = seen.expand(batch, 1, rows, rows)
    if head.documents is None:
        return seen
    ends = None if isinstance(head.documents, Docs) else \
        torch.as_tensor(head.documents, dtype=torch.int64).cpu()
    if ends is None or ends.dim() != 1:
        raise UnsupportedError("core sdpa takes documents as cumulative lengths")
    number = torch.bucketize(torch.arange(batch * rows), ends, right=True)
    number = number.reshape(batch, rows)
    inside = (number > 0) & (number < len(ends))
    same = number[:, :, None] == number[:, None, :]
    return seen & (same & inside[:, :, None])[:, None]
