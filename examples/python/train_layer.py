# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer on sequences that repeat themselves, sharded over
the ranks, and trains the same model on one process: the losses must agree.

    torchrun --nproc-per-node 4 train_layer.py        or mpirun, srun, ...

Three lines make a model sequence-parallel: take this rank's tokens of each
sample, call sp.attention, and divide the loss by the number of tokens of all
ranks.
"""
import torch
import torch.nn.functional as F

import ulyx
import ulyx.torch as sp

TOKENS, WIDTH, HEADS, KV_HEADS, STEPS = 61, 64, 8, 2, 12


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dim = WIDTH // HEADS
        self.qkv = torch.nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * self.dim)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(),
            torch.nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x, attend):
        norm = F.layer_norm(x, x.shape[-1:])
        q, k, v = self.qkv(norm).unflatten(-1, (-1, self.dim)).split(
            [HEADS, KV_HEADS, KV_HEADS], dim=2)
        x = x + self.out(attend(q, k, v).flatten(2))
        return x + self.mlp(F.layer_norm(x, x.shape[-1:]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = torch.nn.Embedding(16, WIDTH)
        self.place = torch.nn.Embedding(TOKENS, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.head = torch.nn.Linear(WIDTH, 16)

    def forward(self, ids, positions, attend):
        x = self.token(ids) + self.place(positions)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(x)


def samples(step):
    """Eight symbols that repeat; the label of a symbol is the next one."""
    torch.manual_seed(step)
    ids = torch.randint(0, 16, (4, 8)).repeat(1, TOKENS // 8 + 2)
    return ids[:, :TOKENS], ids[:, 1:TOKENS + 1]


def train(positions, attend, total):
    """Trains, and returns the loss of each step. total(tensor) sums a tensor
    over the ranks, in place."""
    torch.manual_seed(0)
    model = Model()
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(STEPS):
        ids, labels = (t[:, positions] for t in samples(step))
        logits = model(ids, positions, attend)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(),
                               reduction="sum") / (len(ids) * TOKENS)
        adam.zero_grad()
        loss.backward()
        for weight in model.parameters():
            total(weight.grad)
        adam.step()
        losses.append(total(loss.detach().clone()).item())
    return losses


def alone(q, k, v):
    """Attention on one process."""
    return F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
        enable_gqa=True).transpose(1, 2)


def main():
    # Under a launcher, all its ranks; else one rank in this process.
    comm = ulyx.Communicator.from_env() if ulyx.launch().nranks \
        else ulyx.Communicator.local(1)[0]
    torch.set_num_threads(1)
    each, more = divmod(TOKENS, comm.nranks)
    first = comm.rank * each + min(comm.rank, more)
    positions = torch.arange(first, first + each + (comm.rank < more))

    def attend(q, k, v):
        return sp.attention(q, k, v, comm=comm, rows=TOKENS, causal=True)

    def total(tensor):
        comm.allreduce(tensor.numpy(), tensor.numpy())
        return tensor

    sharded = train(positions, attend, total)
    if comm.rank == 0:
        whole = train(torch.arange(TOKENS), alone, lambda tensor: tensor)
        apart = max(abs(a - b) for a, b in zip(sharded, whole))
        print(f"{comm.nranks} ranks: loss {sharded[0]:.4f} to {sharded[-1]:.4f}; "
              f"one process: {whole[0]:.4f} to {whole[-1]:.4f}; at most "
              f"{apart:.1e} apart")
        assert apart < 1e-4
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main()
