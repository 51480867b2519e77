# SPDX-License-Identifier: Apache-2.0
"""Trains a small random Qwen3. FSDP2 shards its weights over the ranks, and
ulyx shards its sequences, so that no rank has a whole weight or a whole text.
Each step has two packed texts. Prints the losses beside those of one process.

    torchrun --nproc-per-node 2 fsdp2.py

ulyx needs the four lines that are marked.
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers as hf
from torch.distributed.fsdp import fully_shard

import ulyx
import ulyx.transformers as ut                                # 1

STEPS, IGNORED = 6, -100


def small_model():
    torch.manual_seed(0)
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(
        vocab_size=64, hidden_size=64, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        head_dim=16, use_cache=False, attn_implementation="sdpa"))


def batch_of(step):
    """Two texts that repeat themselves, packed into one item. Positions start
    over in each text, and no token has the first token of a text as its
    target."""
    torch.manual_seed(step)
    texts = [torch.randint(3, 64, (9,)).repeat(8)[:rows]
             for rows in (30 + step, 31)]
    return {"input_ids": torch.cat(texts)[None],
            "position_ids": torch.cat([torch.arange(len(t)) for t in texts])[None],
            "labels": torch.cat([F.pad(t[1:], (1, 0), value=IGNORED)
                                 for t in texts])[None]}


def train(model, shard, scale):
    """Trains, and returns the loss of this rank's tokens at each step."""
    # Plain gradient descent, unlike Adam, shows a wrong scale of gradients.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        whole = batch_of(step % 2)
        count = int((whole["labels"][:, 1:] != IGNORED).sum())
        batch = shard(whole)
        targets = batch.pop("shift_labels")
        batch.pop("labels")
        logits = model(**batch).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                               ignore_index=IGNORED, reduction="sum") / count
        optimizer.zero_grad()
        (loss * scale).backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def shifted(batch):
    """The whole batch, with shifted labels, for training on one process."""
    labels = F.pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
    return {**batch, "shift_labels": labels}


def main():
    dist.init_process_group("gloo")
    comm = ulyx.Communicator.from_group()
    model = small_model()
    ut.attach(model, comm)                                    # 2
    mesh = dist.init_device_mesh("cpu", (comm.nranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = train(model, ut.Collator(comm).shard,            # 3
                   ut.loss_scale("fsdp2", comm.nranks))       # 4
    dist.all_reduce(losses)
    if comm.rank == 0:
        wanted = train(small_model(), shifted, 1)
        for step, pair in enumerate(zip(losses.tolist(), wanted.tolist())):
            print(f"step {step}: {pair[0]:.5f} on {comm.nranks} ranks, "
                  f"{pair[1]:.5f} on one process")
        worst = float((losses - wanted).abs().max())
        print(f"largest difference {worst:.1e}")
        assert worst < 1e-3, "the losses differ"
    comm.barrier()
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
