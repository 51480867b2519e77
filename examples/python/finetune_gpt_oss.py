# SPDX-License-Identifier: Apache-2.0
"""Trains a small random GPT-OSS (sinks, sliding windows, experts) with
transformers' Trainer; the tokens of each sample are sharded over the ranks.
Prints the losses beside those of one process.

    torchrun --nproc-per-node 2 finetune_gpt_oss.py

ulyx needs the four lines that are marked. For a model of your own, leave the
comparison out, and use from_pretrained() and your data.
"""
import contextlib
import io
import tempfile

import torch
import torch.distributed as dist
import transformers as hf

import ulyx
import ulyx.transformers as ut                                # 1

STEPS = 5


class Samples(torch.utils.data.Dataset):
    """Texts that repeat themselves, so that there is something to learn."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        torch.manual_seed(i)
        ids = torch.randint(3, 60, (12,)).repeat(6)[:61]
        return {"input_ids": ids, "labels": ids.clone()}


def small_model():
    torch.manual_seed(0)
    return hf.GptOssForCausalLM(hf.GptOssConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        head_dim=16, sliding_window=8, num_local_experts=4,
        num_experts_per_tok=2, attention_dropout=0.0, use_cache=False,
        layer_types=["sliding_attention", "full_attention"]))


def train(comm):
    model = small_model()
    collator = hf.default_data_collator
    if comm is not None:
        ut.attach(model, comm)                                # 2
        collator = ut.Collator(comm, collator)                # 3
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(io.StringIO()):
        trainer = hf.Trainer(
            model, hf.TrainingArguments(
                folder, max_steps=STEPS, per_device_train_batch_size=2,
                learning_rate=3e-3, logging_steps=1, report_to=[],
                save_strategy="no", disable_tqdm=True, use_cpu=True,
                train_sampling_strategy="sequential",
                ddp_backend="gloo"),
            train_dataset=Samples(), data_collator=collator)
        if comm is not None:
            ut.feed(trainer, comm)                            # 4
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def reference():
    """The same steps without Trainer, on whole samples."""
    model = small_model().train()
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        items = [Samples()[2 * step + i]["input_ids"] for i in range(2)]
        ids = torch.stack(items)
        loss = model(ids, labels=ids, attention_mask=torch.ones_like(ids)).loss
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        for group in adam.param_groups:  # Trainer's schedule: linear to zero
            group["lr"] = 3e-3 * (STEPS - step - 1) / STEPS
        losses.append(float(loss.detach()))
    return losses


def main():
    dist.init_process_group("gloo")
    comm = ulyx.Communicator.from_group()
    losses = train(comm)
    if comm.rank == 0:
        wanted = reference()
        for step, pair in enumerate(zip(losses, wanted)):
            print(f"step {step}: {pair[0]:.5f} on {comm.nranks} ranks, "
                  f"{pair[1]:.5f} on one process")
        worst = max(abs(a - b) for a, b in zip(losses, wanted))
        print(f"largest difference {worst:.1e}")
        assert worst < 1e-3, "the losses differ"
    comm.barrier()
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
