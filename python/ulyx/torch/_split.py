# SPDX-License-Identifier: Apache-2.0
"""Which rank has which rows and heads, as arithmetic that may be symbolic.
Traced code needs these before anything has been agreed on with other ranks. The
library's results are authoritative, and the operators compare them."""
from typing import Any, Optional, Sequence, Tuple

ALIGNMENT = 64


def share(total: Any, parts: int, part: int) -> Any:
    """Returns the size of one of `parts` balanced pieces of `total`; the first
    pieces have one more."""
    # This is (total + parts - 1 - part) // parts, without a comparison.
    return (total + (parts - 1 - part)) // parts


def rows_of(rows: Any, nranks: int, rank: int, order: str,
            splits: Optional[Sequence[int]]) -> Any:
    """Returns the rows of a rank."""
    if splits is not None:
        return splits[rank]
    if order == "zigzag":
        return share(rows, 2 * nranks, rank) + \
            share(rows, 2 * nranks, 2 * nranks - 1 - rank)
    return share(rows, nranks, rank)


def heads_of(heads: int, nranks: int, rank: int) -> Tuple[int, int]:
    """Returns (first, count) of a rank's query heads."""
    each, more = heads // nranks, heads % nranks
    return rank * each + min(rank, more), each + (rank < more)


def kv_heads_of(heads: int, kv_heads: int, nranks: int, rank: int) -> int:
    """Returns how many KV heads a rank's query heads read."""
    first, count = heads_of(heads, nranks, rank)
    if not count:
        return 0
    return (first + count - 1) * kv_heads // heads - \
        first * kv_heads // heads + 1


def kv_map_of(heads: int, kv_heads: int, nranks: int,
              rank: int) -> Tuple[int, ...]:
    """Returns, for each query head of a rank, the local KV head that it
    reads."""
    first, count = heads_of(heads, nranks, rank)
    return tuple((first + i) * kv_heads // heads - first * kv_heads // heads
                 for i in range(count))


def saved_bytes(batch: Any, rows: Any, kv_rows: Any, heads: int, kv_heads: int,
                dim_qk: int, dim_v: int, item: int, nranks: int,
                rank: int) -> Any:
    """Returns the bytes that forward saves: a header, this rank's heads of q,
    k, v, and lse, each aligned."""
    mine = heads_of(heads, nranks, rank)[1]
    kv_mine = kv_heads_of(heads, kv_heads, nranks, rank)
    sizes = (batch * rows * mine * dim_qk * item,
             batch * kv_rows * kv_mine * dim_qk * item,
             batch * kv_rows * kv_mine * dim_v * item,
             batch * rows * mine * max(item, 4))
    return ALIGNMENT + sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
