#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ulyx.torch against what PyTorch has, on the CPU, in one run.

torch_compare.py [--ranks P] [--rounds N]

Three comparisons: a tiny layer, forward and backward on one process, against
PyTorch's own scaled_dot_product_attention; the exchange of q, k and v against
all_to_all_single of gloo with the permutes that it needs; a layer over P ranks,
forward and backward, against that exchange around PyTorch's attention. Each
round runs both ways once, the slowest rank counts, and what is printed is the
median of the rounds' ratios, beside a floor below which the command ends with 1
and the goal. Needs the environment of scripts/python-env.sh and ULYX_LIBRARY or
an installed package.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

# What is compared: least ratio that is accepted, and what is aimed at.
FLOORS = {"tiny": (1 / 1.5, 1 / 1.2), "exchange": (1.5, 2.0),
          "layer": (1.0, 1.3)}
# rows, query heads, KV heads, dim, type
SHAPES = [(256, 8, 2, 64, "float32"), (4096, 8, 2, 64, "float32"),
          (256, 8, 2, 64, "bfloat16"), (4096, 8, 2, 64, "bfloat16")]


def through_gloo(dist, torch, tensor, nranks, to_head):
    """[b, s_r, h, d] to [b, S, h_r, d] or back, of even splits."""
    if to_head:
        batch, rows, heads, dim = tensor.shape
        packed = tensor.reshape(batch, rows, nranks, heads // nranks, dim) \
            .permute(2, 0, 1, 3, 4).contiguous()
        there = torch.empty_like(packed)
        dist.all_to_all_single(there, packed)
        return there.permute(1, 0, 2, 3, 4).reshape(
            batch, nranks * rows, heads // nranks, dim)
    batch, whole, heads, dim = tensor.shape
    packed = tensor.reshape(batch, nranks, whole // nranks, heads, dim) \
        .transpose(0, 1).contiguous()
    there = torch.empty_like(packed)
    dist.all_to_all_single(there, packed)
    return there.permute(1, 2, 0, 3, 4).reshape(
        batch, whole // nranks, nranks * heads, dim)


def gloo_function(dist, torch, nranks):
    class Exchange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor, to_head):
            ctx.to_head = to_head
            return through_gloo(dist, torch, tensor, nranks, to_head)

        @staticmethod
        def backward(ctx, grad):
            return through_gloo(dist, torch, grad, nranks,
                                not ctx.to_head), None
    return Exchange.apply


class Rank:
    """One rank: times both ways of a comparison in every round."""

    def __init__(self, rank, nranks, rounds, store):
        import torch
        import torch.distributed as dist
        import ulyx
        import ulyx.torch as sp
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // nranks))
        dist.init_process_group("gloo", init_method=f"file://{store}",
                                rank=rank, world_size=nranks)
        self.torch, self.dist, self.sp = torch, dist, sp
        self.rank, self.nranks, self.rounds = rank, nranks, rounds
        self.comm = ulyx.Communicator.from_group(timeout=300)

    def ratios(self, theirs, ours, repeat, together=True):
        """Their time over ours, of each round; the slowest rank's times. Of one
        thread alone it is CPU time, which other jobs of the machine disturb
        less."""
        found = []
        clock = time.perf_counter if together else time.thread_time
        for number in range(self.rounds + 1):
            times = []
            for call in (theirs, ours):
                if together:
                    self.comm.barrier()
                begin = clock()
                for _ in range(repeat):
                    call()
                times.append((clock() - begin) / repeat)
            if together:
                slowest = self.torch.tensor(times, dtype=self.torch.float64)
                self.dist.all_reduce(slowest, self.dist.ReduceOp.MAX)
                times = slowest.tolist()
            if number:  # the first one warms up
                found.append((times[0] / times[1], *times))
        return found

    def report(self, kind, what, found):
        floor, goal = FLOORS[kind]
        ratio = statistics.median(entry[0] for entry in found)
        theirs, ours = (statistics.median(entry[i] for entry in found) * 1e6
                        for i in (1, 2))
        if self.rank == 0:
            print(f"{kind:9} {what:28} theirs {theirs:9.0f} us  ours "
                  f"{ours:9.0f} us  ratio {ratio:5.2f}  floor {floor:.2f}  goal "
                  f"{goal:.2f}{'' if ratio >= floor else '  BELOW'}", flush=True)
        return ratio >= floor

    def tiny(self):
        import torch.nn.functional as F
        import ulyx
        torch = self.torch
        torch.set_num_threads(1)
        alone, = ulyx.Communicator.local(1)
        q, k, v = (torch.randn(1, 4, 2, 8, requires_grad=True)
                   for _ in range(3))
        grad = torch.randn(1, 4, 2, 8)

        def theirs():
            F.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in (q, k, v)),
                is_causal=True).transpose(1, 2).backward(grad)

        def ours():
            self.sp.attention(q, k, v, comm=alone, causal=True).backward(grad)
        self.rounds *= 10  # of a few milliseconds each
        found = self.ratios(theirs, ours, 40, together=False)
        return self.report("tiny", "4 tokens, 2 heads of 8", found)

    def several(self, shape):
        import torch.nn.functional as F
        torch, sp, comm = self.torch, self.sp, self.comm
        rows, heads, kv_heads, dim, dtype = shape
        exchange = gloo_function(self.dist, torch, self.nranks)
        q, k, v = (torch.randn(1, rows // self.nranks, n, dim)
                   .to(getattr(torch, dtype)).requires_grad_()
                   for n in (heads, kv_heads, kv_heads))
        grad = torch.ones_like(q)

        def layer():
            there = [exchange(t, True).transpose(1, 2) for t in (q, k, v)]
            out = F.scaled_dot_product_attention(*there, is_causal=True,
                                                 enable_gqa=True)
            exchange(out.transpose(1, 2), False).backward(grad)

        def moved():
            with torch.no_grad():
                for tensor in (q, k, v):
                    exchange(tensor, True)

        def ours():
            with torch.no_grad():
                sp.reshuffle(q, k, v, comm=comm)
        what = f"{rows} x {heads}/{kv_heads} x {dim} {dtype}"
        many = 20 if rows <= 512 else 3
        good = self.report("exchange", what, self.ratios(moved, ours, many))
        return self.report("layer", what, self.ratios(
            layer, lambda: sp.attention(q, k, v, comm=comm,
                                        causal=True).backward(grad),
            max(1, many // 3))) and good


def work(arguments):
    rank = Rank(arguments.rank, arguments.ranks, arguments.rounds,
                arguments.store)
    good = [rank.several(shape) for shape in SHAPES]
    rank.dist.barrier()
    if arguments.rank == 0:  # the others have gone or are going
        time.sleep(1)
        good.append(rank.tiny())
    return 0 if all(good) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return work(arguments)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen(
            [sys.executable, __file__, "--ranks", str(arguments.ranks),
             "--rounds", str(arguments.rounds), "--rank", str(rank), "--store",
             os.path.join(folder, "store")]) for rank in range(arguments.ranks)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
