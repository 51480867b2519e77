#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ulyx.torch with PyTorch and DeepSpeed on the CPU, in one run.

torch_compare.py [--ranks P] [--rounds N] [--only KIND]

There are four kinds of comparison. "Theirs" is PyTorch or DeepSpeed without
ulyx, "ours" is ulyx:

tiny      forward and backward of a tiny layer in one process; theirs: PyTorch's
          scaled_dot_product_attention
exchange  the exchange of q, k and v; theirs: all_to_all_single of gloo and the
          permutes that it needs
layer     forward and backward of a layer over P ranks; theirs: the exchange by
          gloo around PyTorch's attention
step      a training step of a small Llama with DeepSpeed's ZeRO-2 and its recipe
          for sequences (ALST); ours: after ulyx.deepspeed.install()

Each round times both sides of a comparison, one after the other: the mean of
some calls, of the slowest rank. The ratio is their time divided by our time. The
output has the median of the ratios of all rounds, beside a floor and a goal; the
exit code is 1 where a ratio is below its floor. Both sides are measured by the
same clock: in tiny, where no rank waits for another, the CPU time of the calling
thread; elsewhere the monotonic clock. Needs the environment of
scripts/python-env.sh, and ULYX_LIBRARY or an installed package. step is left out
where deepspeed is not installed.
"""
import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

# Kind of comparison: (least ratio that is accepted, goal).
FLOORS = {"tiny": (1 / 1.5, 1 / 1.2), "exchange": (1.5, 2.0),
          "layer": (1.0, 1.3), "step": (1.1, 1.3)}
# rows, query heads, KV heads, dim, type
SHAPES = [(256, 8, 2, 64, "float32"), (4096, 8, 2, 64, "float32"),
          (256, 8, 2, 64, "bfloat16"), (4096, 8, 2, 64, "bfloat16")]
STEP_ROWS = 1024, 4096


def through_gloo(dist, torch, tensor, nranks, to_head):
    """[b, s_r, h, d] to [b, S, h_r, d], or back, where P divides s and h."""
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


def processor():
    """The name of the CPU, for the head of the output."""
    try:
        with open("/proc/cpuinfo") as file:
            facts = dict(line.split(":", 1) for line in
                         file.read().split("\n\n")[0].split("\n")
                         if ":" in line)
    except OSError:
        return "unknown"
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    return (f"{facts.get('model name', 'unknown')} (family "
            f"{facts.get('cpu family', '?')}, model {facts.get('model', '?')}), "
            f"{os.cpu_count()} cores")


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
    """One rank: times both sides of a comparison in every round."""

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
        """For each round (their time / our time, their time, our time), with
        the times of the slowest rank where ranks run together."""
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

    def tensors(self, shape):
        """(text of the shape, q, k, v of this rank, repetitions)."""
        rows, heads, kv_heads, dim, dtype = shape
        tensors = [self.torch.randn(1, rows // self.nranks, n, dim)
                   .to(getattr(self.torch, dtype)).requires_grad_()
                   for n in (heads, kv_heads, kv_heads)]
        return (f"{rows} x {heads}/{kv_heads} x {dim} {dtype}", *tensors,
                20 if rows <= 512 else 3)

    def exchange(self, shape):
        what, q, k, v, many = self.tensors(shape)
        exchange = gloo_function(self.dist, self.torch, self.nranks)

        def theirs():
            with self.torch.no_grad():
                for tensor in (q, k, v):
                    exchange(tensor, True)

        def ours():
            with self.torch.no_grad():
                self.sp.reshuffle(q, k, v, comm=self.comm)
        return self.report("exchange", what, self.ratios(theirs, ours, many))

    def layer(self, shape):
        import torch.nn.functional as F
        what, q, k, v, many = self.tensors(shape)
        exchange = gloo_function(self.dist, self.torch, self.nranks)
        grad = self.torch.ones_like(q)

        def theirs():
            there = [exchange(t, True).transpose(1, 2) for t in (q, k, v)]
            out = F.scaled_dot_product_attention(*there, is_causal=True,
                                                 enable_gqa=True)
            exchange(out.transpose(1, 2), False).backward(grad)

        def ours():
            self.sp.attention(q, k, v, comm=self.comm,
                              causal=True).backward(grad)
        return self.report("layer", what, self.ratios(theirs, ours,
                                                      max(1, many // 3)))

    def step(self):
        """Steps two engines in one process, each with a model of its own. But
        an engine changes the whole process: its recipe replaces the attention
        functions registered as "sdpa", and install() replaces DeepSpeed's
        all-to-all. So before each step, `enter` puts the functions of the
        engine in place."""
        import ulyx.deepspeed
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
        names = ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS
        plain = [registry["sdpa"] for registry in names]
        kernels = ulyx.deepspeed._own_all_to_all, ulyx.deepspeed._all_to_all

        def enter(functions, ours):
            for registry, function in zip(names, functions):
                registry["sdpa"] = function
            ulyx.deepspeed._all_to_all = kernels[ours]
        steps = []
        for ours in (False, True):
            enter(plain, ours)
            train = trainer_of(self, ours)
            own = [registry["sdpa"] for registry in names]
            steps.append(lambda rows, train=train, own=own, ours=ours: (
                enter(own, ours), train(rows)))
        return all([self.report(
            "step", f"ZeRO-2, {rows} tokens, 2 layers", self.ratios(
                *(lambda step=step: step(rows) for step in steps), 1))
            for rows in STEP_ROWS])


def trainer_of(rank, ours):
    """Returns a function that makes a training step of a small Llama with
    DeepSpeed's recipe; ours: after ulyx.deepspeed.install()."""
    import deepspeed
    import transformers
    from deepspeed.runtime.sequence_parallel import parallel_state_sp, ulysses_sp
    torch = rank.torch
    deepspeed.init_distributed(dist_backend="gloo")  # uses the existing group
    if ours:
        from ulyx.deepspeed import install
        install()
        # The engine without ulyx has made the groups already.
        parallel_state_sp.initialize_sequence_parallel = lambda **_: None
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=512, hidden_size=512, intermediate_size=1024,
        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        attn_implementation="sdpa", use_cache=False))
    mpu = ulysses_sp.UlyssesSPAttentionHF.register_with_transformers(
        model, "sdpa", rank.nranks, 1)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), mpu=mpu,
        config=dict(train_micro_batch_size_per_gpu=1,
                    zero_optimization=dict(stage=2),
                    optimizer=dict(type="SGD", params=dict(lr=1e-3)),
                    zero_allow_untested_optimizer=True,
                    sequence_parallel_size=rank.nranks))
    def train(rows):
        each = rows // rank.nranks
        places = torch.arange(each)[None] + rank.rank * each
        ids = places * 7 % 512
        logits = engine(input_ids=ids, position_ids=places).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), ids.flatten(), reduction="sum") / rows
        engine.backward(loss)
        engine.step()
    return train


KINDS = ("exchange", "layer", "step", "tiny")


def work(arguments):
    rank = Rank(arguments.rank, arguments.ranks, arguments.rounds,
                arguments.store)
    if arguments.rank == 0:
        print(f"{processor()}; PyTorch {rank.torch.__version__}, "
              f"{arguments.ranks} ranks", flush=True)
    kinds = [arguments.only] if arguments.only else KINDS
    good = [getattr(rank, kind)(shape) for shape in SHAPES
            for kind in ("exchange", "layer") if kind in kinds]
    if "step" in kinds:
        if importlib.util.find_spec("deepspeed"):
            good.append(rank.step())
        elif arguments.rank == 0:
            print("step: deepspeed is not installed", flush=True)
    rank.dist.barrier()
    if arguments.rank == 0 and "tiny" in kinds:
        time.sleep(1)  # the others have gone or are going
        good.append(rank.tiny())
    return 0 if all(good) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return work(arguments)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen(
            [sys.executable, __file__, "--ranks", str(arguments.ranks),
             "--rounds", str(arguments.rounds), "--rank", str(rank), "--store",
             os.path.join(folder, "store"),
             *(["--only", arguments.only] if arguments.only else [])],
            env=dict(os.environ, DS_ACCELERATOR="cpu", RANK=str(rank),
                     LOCAL_RANK=str(rank), LOCAL_SIZE=str(arguments.ranks),
                     WORLD_SIZE=str(arguments.ranks)))
            for rank in range(arguments.ranks)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
