# SPDX-License-Identifier: Apache-2.0
"""ulyx for PyTorch: attention over a sequence that is sharded over ranks.

    import ulyx
    import ulyx.torch as sp

    comm = ulyx.Communicator.from_group()        # of torch.distributed's ranks
    out = sp.attention(q, k, v, comm=comm, causal=True)

Each rank has its tokens and all heads. Calls and their backward are collective:
all ranks make them in the same order.
"""
from ._context import bind, bound, unbind, use
from ._core import Head, sdpa
from .functions import attention, reshuffle, ulysses

__all__ = ["Head", "attention", "bind", "bound", "reshuffle", "sdpa", "ulysses",
           "unbind", "use"]
