# SPDX-License-Identifier: Apache-2.0
"""A rank of test_deepspeed.py: DeepSpeed's own recipe (ALST) on a tiny model, with
and without ulyx, or ZeRO alone around ulyx.transformers; and the worst gradient's
distance from one process.

    train.py '{"kind": "mistral", "zero": 2, "ulyx": true, "packed": false,
               "recipe": true}'
"""
import json
import os
import sys

import deepspeed
import models
import torch
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

import ulyx.deepspeed
import ulyx.transformers as ut

RANKS, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
ROWS = 60


def whole_batch(job):
    batch = models.batch(1, ROWS)
    ends = [0, 13, 14, 40, ROWS] if job.get("packed") else [0, ROWS]
    batch["position_ids"] = torch.cat(
        [torch.arange(end - begin) for begin, end in zip(ends, ends[1:])])[None]
    return batch


def reference(job):
    """Returns the gradients of one process, of the mean over all targets."""
    model = models.make(job["kind"], torch.float32)
    batch = whole_batch(job)
    loss = models.loss_of(model, batch, models.targets(batch["labels"]))
    loss.backward()
    return models.gradients(model)


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    wanted = reference(job)
    recipe = job.get("recipe", True)
    sequence = RANKS if recipe else 1
    model, mpu, comm = models.make(job["kind"], torch.float32), None, None
    if job["ulyx"] and recipe:
        ulyx.deepspeed.install()
    if recipe:
        mpu = UlyssesSPAttentionHF.register_with_transformers(
            model, model.config._attn_implementation, RANKS, 1)
    else:
        comm = ulyx.Communicator.from_group(timeout=60)
        ut.attach(model, comm)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), mpu=mpu,
        config=dict(train_micro_batch_size_per_gpu=1,
                    train_batch_size=RANKS // sequence,
                    zero_optimization=dict(stage=job["zero"]),
                    optimizer=dict(type="SGD", params=dict(lr=1e-3)),
                    zero_allow_untested_optimizer=True,
                    sequence_parallel_size=sequence))
    batch = whole_batch(job)
    count = models.targets(batch["labels"])
    shifted = torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)
    batch["shift_labels"] = shifted[:, 1:]
    first = RANK * ROWS // RANKS
    local = {name: value[:, first:first + ROWS // RANKS].contiguous()
             for name, value in batch.items()}
    loss = models.loss_of(engine, local, count)
    engine.backward(loss * ut.loss_scale(f"zero{job['zero']}", RANKS, sequence))
    from deepspeed.utils import safe_get_full_grad
    found = {name: safe_get_full_grad(weight)
             for name, weight in engine.module.named_parameters()}
    if RANK == 0:
        # The common factor of all gradients and the remaining error are
        # reported separately.
        scale = models.scale(found, wanted)
        worst = models.worst({n: g / scale for n, g in found.items()}, wanted)
        print("FOUND " + json.dumps(dict(scale=scale, worst=worst)), flush=True)
    torch.distributed.barrier()
    if comm is not None:
        comm.close()
    elif job["ulyx"]:
        ulyx.deepspeed.uninstall()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
