# SPDX-License-Identifier: Apache-2.0
"""A rank of test_deepspeed.py: transformers' Trainer with accelerate's
ParallelismConfig(sp_size) and DeepSpeed, with ulyx.deepspeed.install() and without,
and the same batches in one process. accelerate chooses which samples a step
is given (1.15 gives each sample to sp_size steps in a row), so Trainer's batches are
kept for the comparison, and so are the gradients that the first step goes by: a
factor that all of them have is seen in losses by SGD, not by Adam.

    accelerated.py '{"kind": "mistral", "zero": 2, "optimizer": "SGD",
                     "ulyx": true, "accumulate": 1}'
"""
import contextlib
import io
import json
import os
import sys
import tempfile

import models
import torch
import transformers as hf
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DeepSpeedSequenceParallelConfig
from deepspeed.utils import safe_get_full_grad
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import ulyx.deepspeed

RANKS, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
STEPS, ROWS = 4, 32
OPTIMIZERS = {
    "AdamW": (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.0},
              {"torch_adam": True}),
    "SGD": (torch.optim.SGD, {"lr": 0.3}, {}),
}


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, i):
        return {**{name: value[0] for name, value in
                   models.batch(1, ROWS, seed=i).items()},
                "position_ids": torch.arange(ROWS)}


class Noting(hf.Trainer):
    """Keeps the whole batch of each call of the model, and the gradients on
    which the first step is based."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches, self.first = [], None

    def compute_loss(self, model, inputs, *args, **options):
        self.batches.append({name: whole(inputs[name]) for name in
                             ("input_ids", "shift_labels")})
        return super().compute_loss(model, inputs, *args, **options)

    def training_step(self, model, *args, **options):
        engine = self.accelerator.deepspeed_engine_wrapped.engine
        if "step" not in engine.__dict__:
            engine.step = lambda: self.noted(engine)
        return super().training_step(model, *args, **options)

    def noted(self, engine):
        if self.first is None and engine.is_gradient_accumulation_boundary():
            self.first = {name: safe_get_full_grad(weight).clone() for
                          name, weight in engine.module.named_parameters()}
        return type(engine).step(engine)


def whole(part):
    parts = [torch.empty_like(part) for _ in range(RANKS)]
    torch.distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts, 1)


def trained(job):
    """Returns (losses, batches, first gradients) of Trainer's steps."""
    model = models.make(job["kind"], torch.float32)
    _, options, more = OPTIMIZERS[job["optimizer"]]
    many = job.get("accumulate", 1)
    with tempfile.TemporaryDirectory() as folder, \
            contextlib.redirect_stdout(io.StringIO()):
        args = hf.TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=1,
            learning_rate=options["lr"], lr_scheduler_type="constant",
            max_grad_norm=0.0, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True,
            gradient_accumulation_steps=many,
            train_sampling_strategy="sequential", ddp_backend="gloo",
            bf16=False, parallelism_config=ParallelismConfig(
                sp_size=RANKS, sp_backend="deepspeed",
                sp_handler=DeepSpeedSequenceParallelConfig(
                    sp_seq_length_is_variable=True,
                    sp_attn_implementation="sdpa")),
            deepspeed={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": many,
                "zero_optimization": {
                    "stage": job["zero"],
                    "reduce_scatter": job.get("scatter", True)},
                "gradient_clipping": 0.0,
                "zero_allow_untested_optimizer": True,
                "sequence_parallel_size": RANKS,
                "optimizer": {"type": job["optimizer"],
                              "params": {**options, **more}}})
        trainer = Noting(model, args, train_dataset=Texts())
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history
            if "loss" in row], trainer.batches, trainer.first


def alone(model, job, batches):
    """Returns (losses, first gradients) of the same steps in one process. The
    loss of a step is the mean, over its batches, of each batch's mean over its
    targets."""
    kind, options, _ = OPTIMIZERS[job["optimizer"]]
    optimizer = kind(model.parameters(), **options)
    many, losses, first = job.get("accumulate", 1), [], None
    for begin in range(0, len(batches), many):
        optimizer.zero_grad()
        total = 0.0
        for batch in batches[begin:begin + many]:
            count = int((batch["shift_labels"] != -100).sum())
            loss = models.loss_of(model, dict(batch, labels=None), count) / many
            loss.backward()
            total += float(loss.detach())
        losses.append(total)
        first = first or models.gradients(model)
        optimizer.step()
    return losses, first


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    # With ZeRO-3, a model that is made after this would be in parts.
    model = models.make(job["kind"], torch.float32)
    kept = ALL_ATTENTION_FUNCTIONS["sdpa"], ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
    if job["ulyx"]:
        ulyx.deepspeed.install()
    losses, batches, found = trained(job)
    # DeepSpeed's recipe cannot be uninstalled, but the run in one process must
    # not use it
    if not job["ulyx"]:
        ALL_ATTENTION_FUNCTIONS["sdpa"], ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = \
            kept
    if RANK == 0:
        wanted_losses, wanted = alone(model, job, batches)
        scale = models.scale(found, wanted)
        worst = models.worst({n: g / scale for n, g in found.items()}, wanted)
        print("FOUND " + json.dumps(dict(
            losses=losses, alone=wanted_losses, scale=scale, worst=worst,
            samples=len({str(batch) for batch in batches}))), flush=True)
    torch.distributed.barrier()
    if job["ulyx"]:
        ulyx.deepspeed.uninstall()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
