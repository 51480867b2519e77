# SPDX-License-Identifier: Apache-2.0
"""A rank of test_scale.py: gradients of a tiny Qwen3 whose sequence the ranks share,
under DDP and FSDP2, by the rule that loss_scale() is given, against one
process; and the difference of one process's gradients from themselves when its
loss has the same factor."""
import json
import os

import models
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import ulyx
import ulyx.transformers as ut

RANKS = int(os.environ["WORLD_SIZE"])
BATCH = models.batch(2, 37)


def ddp(model):
    return torch.nn.parallel.DistributedDataParallel(model)


def fsdp2(model):
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def summed(model):
    model = fsdp2(model)
    for part in (model, *model.model.layers):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    return model


COUNT = models.targets(BATCH["labels"])


def alone(factor):
    """Returns the gradients of one process whose loss is multiplied by a
    factor, divided by the factor."""
    model = models.make("qwen3")
    (models.loss_of(model, BATCH, COUNT) * factor).backward()
    return {name: grad / factor for name, grad in models.gradients(model).items()}


def distance(comm, wrap, reduction, checkpoint):
    """Returns the worst gradient's difference, with the factor left in."""
    model = models.make("qwen3")
    wanted = alone(ut.loss_scale(reduction, RANKS))
    ut.attach(model, comm)
    if checkpoint:
        model.gradient_checkpointing_enable()
    wrapped = wrap(model)
    local = ut.Collator(comm).shard(BATCH)
    loss = models.loss_of(wrapped, local, COUNT)
    (loss * ut.loss_scale(reduction, RANKS)).backward()
    found = {name: getattr(weight.grad, "full_tensor", lambda g=weight.grad: g)()
             for name, weight in model.named_parameters()}
    return models.worst(found, wanted)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    comm = ulyx.Communicator.from_group(timeout=60)
    found = {f"{reduction}{' checkpoint' * checkpoint}":
             distance(comm, wrap, reduction, checkpoint)
             for wrap, reduction in ((ddp, "ddp"), (fsdp2, "fsdp2"),
                                     (summed, "sum"))
             for checkpoint in (False, True)}
    if comm.rank == 0:
        print("FOUND " + json.dumps({
            "distances": found, "rounding": models.worst(alone(RANKS), alone(1)),
        }), flush=True)
    comm.barrier()
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
