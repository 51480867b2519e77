# SPDX-License-Identifier: Apache-2.0
"""Errors of a model's attention are in the words of its batch."""
import torch

import ulyx
import ulyx.torch as sp
from ranks import errors_of
from ulyx.transformers._attach import attention


def failures(options):
    def body(comm):
        module = torch.nn.Identity()
        sp.bind(module, comm)
        q = torch.ones(1, 2, 4 + comm.rank, 8)
        attention(module, q, q, q, None, is_causal=True, **options(comm.rank))
    return errors_of(2, body, timeout=60)


def test_uneven_tokens_without_a_collator():
    for failure in failures(lambda rank: {}):
        assert type(failure) is ulyx.MismatchError
        assert str(failure).startswith(
            "rank 0 has 4 tokens and rank 1 has 5: batches of "
            "ulyx.transformers.Collator have ulyx_rows"), failure


def test_other_batches():
    for failure in failures(lambda rank: {"ulyx_rows": 8 + rank}):
        assert "ulyx_rows is 8 on rank 0 and 9 on rank 1" in str(failure)
    for failure in failures(lambda rank: {"ulyx_rows": 9,
                                          "sliding_window": 3 + rank}):
        assert "sliding_window - 1 is 2 on rank 0 and 3 on rank 1" in \
            str(failure), failure
