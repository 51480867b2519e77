# SPDX-License-Identifier: Apache-2.0
"""All ranks of a sequence read the same samples."""
from typing import Any, Callable, Iterator, List, Optional

import torch
from torch.utils.data import Sampler

from ..communicator import Communicator
from ..errors import InvalidArgumentError, UnsupportedError


class RepeatSampler(Sampler):  # type: ignore[type-arg]
    """The indices of `inner`, where each run of batch_size indices is repeated
    `times` times. accelerate deals batches out to processes in turn, so the
    batches of each `times` neighbours are equal. The last run is filled up from
    the first indices, or left out with drop_last."""

    def __init__(self, inner: "Sampler[int]", batch_size: int, times: int,
                 drop_last: bool = False):
        self.inner, self.batch_size = inner, batch_size
        self.times, self.drop_last = times, drop_last

    @property
    def generator(self) -> Optional[torch.Generator]:
        """The generator of inner, by which accelerate synchronises
        processes."""
        return getattr(self.inner, "generator", None)

    @generator.setter
    def generator(self, generator: Optional[torch.Generator]) -> None:
        self.inner.generator = generator  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[int]:
        run: List[int] = []
        first: List[int] = []
        for index in self.inner:
            run.append(index)
            if len(first) < self.batch_size:
                first.append(index)
            if len(run) == self.batch_size:
                yield from run * self.times
                run = []
        if run and not self.drop_last:
            while len(run) < self.batch_size:
                run += first[:self.batch_size - len(run)]
            yield from run * self.times

    def __len__(self) -> int:
        count = len(self.inner)  # type: ignore[arg-type]
        runs = count // self.batch_size
        if not self.drop_last:
            runs = -(-count // self.batch_size)
        return runs * self.batch_size * self.times


def _repeated(sampler_of: Callable[..., Any], batch_size: int, times: int,
              drop_last: bool) -> Callable[..., Any]:
    def repeated(dataset: Any = None) -> Any:
        inner = sampler_of() if dataset is None else sampler_of(dataset)
        if inner is None:
            if dataset is None or not hasattr(dataset, "__len__"):
                raise UnsupportedError(
                    "a dataset without a length: give one with __len__, or "
                    "a loader of your own that reads the same samples on "
                    "all ranks of a sequence")
            inner = torch.utils.data.SequentialSampler(dataset)
        return RepeatSampler(inner, batch_size, times, drop_last)
    return repeated


def feed(trainer: Any, comm: Communicator) -> Any:
    """A Trainer (or a subclass of it, as TRL's) reads the same samples on all
    ranks of the communicator, and others on the ranks of other sequences.
    Returns the trainer. The communicator's ranks are neighbours: ranks
    [k * P, (k + 1) * P) of the process group. Evaluation likewise; there,
    logits are of a rank's own tokens, so that prediction_loss_only=True is
    what makes sense. per_device_train_batch_size is samples of a sequence group.

    Only attributes of this trainer are set. Raises InvalidArgumentError where
    ranks of the communicator are no neighbours, UnsupportedError for a dataset
    without a length.
    """
    args = trainer.args
    world, rank, nranks = args.world_size, args.process_index, comm.nranks
    if world % nranks or rank % nranks != comm.rank:
        raise InvalidArgumentError(
            f"rank {comm.rank} of {nranks} is process {rank} of {world}: the "
            "ranks of a sequence are to be neighbours")
    dataset = trainer.train_dataset
    if dataset is not None and not hasattr(dataset, "__len__"):
        raise UnsupportedError("a training dataset without a length")
    trainer._get_train_sampler = _repeated(
        trainer._get_train_sampler, trainer._train_batch_size, nranks,
        args.dataloader_drop_last)
    trainer._get_eval_sampler = _repeated(
        trainer._get_eval_sampler, args.eval_batch_size, nranks, False)
    return trainer
