# SPDX-License-Identifier: Apache-2.0
"""A rank of test_deepspeed.py: transformers' Trainer with accelerate's
ParallelismConfig(sp_size) and DeepSpeed, which ulyx.deepspeed.install() has put on
ulyx, and the same batches in one process. accelerate chooses which samples a step
is given (1.15 gives each sample to sp_size steps in a row), so Trainer's batches are
kept for the comparison. Adam does not see a factor that all gradients have."""
import contextlib
import io
import json
import os
import tempfile

import models
import torch
import transformers as hf
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DeepSpeedSequenceParallelConfig

import ulyx.deepspeed

RANKS, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
STEPS, ROWS, RATE = 4, 32, 1e-2


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return {**{name: value[0] for name, value in
                   models.batch(1, ROWS, seed=i).items()},
                "position_ids": torch.arange(ROWS)}


class Noting(hf.Trainer):
    """Keeps the whole batch of each step."""

    batches = []

    def compute_loss(self, model, inputs, *args, **options):
        self.batches.append({name: whole(inputs[name]) for name in
                             ("input_ids", "shift_labels")})
        return super().compute_loss(model, inputs, *args, **options)


def whole(part):
    parts = [torch.empty_like(part) for _ in range(RANKS)]
    torch.distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts, 1)


def trained():
    """(losses, batches) of Trainer's steps."""
    model = models.make("mistral", torch.float32)
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(io.StringIO()):
        args = hf.TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=1,
            learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=0.0,
            logging_steps=1, report_to=[], save_strategy="no",
            disable_tqdm=True, train_sampling_strategy="sequential",
            ddp_backend="gloo", bf16=False,
            parallelism_config=ParallelismConfig(
                sp_size=RANKS, sp_backend="deepspeed",
                sp_handler=DeepSpeedSequenceParallelConfig(
                    sp_seq_length_is_variable=True,
                    sp_attn_implementation="sdpa")),
            deepspeed={
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": {"stage": 2}, "gradient_clipping": 0.0,
                "zero_allow_untested_optimizer": True,
                "sequence_parallel_size": RANKS,
                "optimizer": {"type": "AdamW", "params": {
                    "lr": RATE, "weight_decay": 0.0, "torch_adam": True}}})
        trainer = Noting(model, args, train_dataset=Texts())
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history
            if "loss" in row], trainer.batches


def alone(batches):
    """The losses of the same steps in one process."""
    model = models.make("mistral", torch.float32)
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for batch in batches:
        batch = dict(batch, labels=None)
        loss = models.loss_of(model, batch,
                              int((batch["shift_labels"] != -100).sum()))
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
    return losses


def main():
    torch.set_num_threads(1)
    ulyx.deepspeed.install()
    losses, batches = trained()
    if RANK == 0:
        print("FOUND " + json.dumps({
            "losses": losses, "alone": alone(batches),
            "samples": len({str(batch) for batch in batches})}), flush=True)
    torch.distributed.barrier()
    ulyx.deepspeed.uninstall()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
