# SPDX-License-Identifier: Apache-2.0
"""ulyx for transformers: models whose attention runs over a sequence that is
sharded over ranks, trained by Trainer, TRL's SFTTrainer or a loop of your own.

    import ulyx
    import ulyx.transformers as ut

    comm = ulyx.Communicator.from_group()
    ut.attach(model, comm)
    trainer = Trainer(model, args, train_dataset=data,
                      data_collator=ut.Collator(comm, collator))
    ut.feed(trainer, comm)

Each rank computes its own tokens of every sample. Nothing of transformers is
patched: "ulyx" is one more name in its registries of attention and of masks.
"""
from ._attach import NAME, attach, detach
from ._collator import Collator, local_rows
from ._feed import RepeatSampler, feed
from ._loss import loss_scale

__all__ = ["NAME", "Collator", "RepeatSampler", "attach", "detach", "feed",
           "local_rows", "loss_scale"]
