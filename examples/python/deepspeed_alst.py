# SPDX-License-Identifier: Apache-2.0
"""Trains a small random Mistral, whose attention has a sliding window, on
packed texts with DeepSpeed's recipe for long sequences (ALST), with ZeRO-2 and
with sdpa as the attention. Compares the losses, and the gradients of the last
step, with those of one process.

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 deepspeed_alst.py
    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 deepspeed_alst.py --without-ulyx

With ulyx, which needs the two marked lines, the results agree. Without ulyx
the same recipe runs without an error but computes other gradients, because the
attention gets neither the window nor the borders of the texts; the script then
ends with status 1.
"""
import os
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers as hf
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
from deepspeed.utils import safe_get_full_grad

import ulyx.deepspeed                                         # 1

STEPS, IGNORED, RATE = 5, -100, 0.1
RANKS = int(os.environ["WORLD_SIZE"])


def small_model():
    torch.manual_seed(0)
    return hf.MistralForCausalLM(hf.MistralConfig(
        vocab_size=64, hidden_size=48, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        sliding_window=8, use_cache=False, attn_implementation="sdpa"))


def batch_of(step):
    """Two texts that repeat themselves, packed into one item of 60 tokens.
    Positions start over in each text, and no token has the first token of a
    text as its target."""
    torch.manual_seed(step)
    texts = [torch.randint(3, 64, (9,)).repeat(8)[:rows]
             for rows in (25 + step, 35 - step)]
    labels = torch.cat([F.pad(text[1:], (0, 1), value=IGNORED)
                        for text in texts])
    return {"input_ids": torch.cat(texts)[None], "shift_labels": labels[None],
            "position_ids": torch.cat([torch.arange(len(text))
                                       for text in texts])[None]}


def loss_of(model, batch, count):
    batch = dict(batch)
    targets = batch.pop("shift_labels")
    logits = model(**batch).logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                           ignore_index=IGNORED, reduction="sum") / count


def targets_of(batch):
    return int((batch["shift_labels"] != IGNORED).sum())


def recipe():
    """Trains with DeepSpeed's own recipe. Returns (losses, gradients of the
    last step)."""
    model = small_model()
    mpu = UlyssesSPAttentionHF.register_with_transformers(
        model, "sdpa", sequence_parallel_size=RANKS, micro_batch_size=1)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), mpu=mpu,
        config={"train_micro_batch_size_per_gpu": 1, "train_batch_size": 1,
                "sequence_parallel_size": RANKS,
                "zero_optimization": {"stage": 2},
                "zero_allow_untested_optimizer": True,
                "gradient_clipping": 0.0,  # DeepSpeed clips at 1 by default
                "optimizer": {"type": "SGD", "params": {"lr": RATE}}})
    losses, rank = [], dist.get_rank()
    for step in range(STEPS):
        whole = batch_of(step)
        batch = {name: value.chunk(RANKS, 1)[rank].contiguous()
                 for name, value in whole.items()}
        loss = loss_of(engine, batch, targets_of(whole))
        engine.backward(loss)  # ZeRO-2 sums over the ranks of a sequence
        gradients = {name: safe_get_full_grad(weight)
                     for name, weight in engine.module.named_parameters()}
        engine.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total))
    return losses, gradients


def alone():
    """Trains in one process. Returns the same values as recipe()."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        batch = batch_of(step)
        loss = loss_of(model, batch, targets_of(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: weight.grad
                    for name, weight in model.named_parameters()}


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    wanted, wanted_gradients = alone()
    with_ulyx = "--without-ulyx" not in sys.argv[1:]
    if with_ulyx:
        ulyx.deepspeed.install()                              # 2
    losses, gradients = recipe()
    for step, pair in enumerate(zip(losses, wanted)):
        if dist.get_rank() == 0:
            print(f"step {step}: {pair[0]:.5f} on {RANKS} ranks, {pair[1]:.5f} "
                  "on one process")
    worst = max(abs(a - b) for a, b in zip(losses, wanted))
    apart = max(float((gradients[name] - grad).norm() / grad.norm())
                for name, grad in wanted_gradients.items())
    if dist.get_rank() == 0:
        print(f"{'with' if with_ulyx else 'without'} ulyx: largest difference "
              f"of a loss {worst:.1e}, of a gradient {100 * apart:.4f} %")
    dist.barrier()
    ulyx.deepspeed.uninstall()
    dist.destroy_process_group()
    if worst > 1e-3 or apart > 1e-3:
        sys.exit("the recipe computes other results than one process")


if __name__ == "__main__":
    main()
