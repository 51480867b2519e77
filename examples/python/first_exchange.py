# SPDX-License-Identifier: Apache-2.0
"""Each rank exchanges "my tokens, all heads" for "all tokens, my heads".

    torchrun --nproc-per-node 4 first_exchange.py     or mpirun, srun, ...
    python first_exchange.py                          four threads of one process
"""
import threading

import numpy as np
import ulyx

TOKENS, HEADS, KV_HEADS, DIM = 10, 6, 2, 4


def element(token, head, column):
    """An element of the whole tensor, so that each rank can check its part."""
    return token * 10000 + head * 100 + column


def run(comm):
    plan = ulyx.Plan(
        comm, [ulyx.Tensor(HEADS, DIM, "float32"),
               ulyx.Tensor(KV_HEADS, DIM, "float32", kv=True)], [TOKENS])
    mine = plan.positions()
    q, k = (np.fromfunction(
        lambda b, s, h, d: element(mine[s.astype(int)], h, d),
        (1, len(mine), heads, DIM)).astype(np.float32)
        for heads in (HEADS, KV_HEADS))

    q_by_head, k_by_head = plan.execute(ulyx.SEQ_TO_HEAD, [q, k])

    first, count = plan.head_range(0)
    wanted = np.fromfunction(
        lambda b, s, h, d: element(s, first + h, d), (1, TOKENS, count, DIM))
    assert np.array_equal(q_by_head, wanted)
    print(f"rank {comm.rank} of {comm.nranks}: had tokens {mine.tolist()}, has "
          f"heads {first} to {first + count - 1} of all {TOKENS} tokens, which "
          f"read its KV heads {plan.kv_map().tolist()}\n", end="", flush=True)
    comm.barrier()


def main():
    if ulyx.launch().nranks:
        with ulyx.Communicator.from_env() as comm:
            run(comm)
        return
    ranks = [threading.Thread(target=run, args=(comm,))
             for comm in ulyx.Communicator.local(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
