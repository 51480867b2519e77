# SPDX-License-Identifier: Apache-2.0
"""The factor of a rank's loss before backward."""
from ..errors import InvalidArgumentError

# What happens to the gradients of N ranks, each of its own tokens' loss: the
# mean over all of them; over the sequences of DeepSpeed, the sum within one; or
# the sum.
_AVERAGED = ("ddp", "fsdp", "fsdp2", "zero3", "average")
_SUMMED_WITHIN = ("zero1", "zero2")
_SUMMED = ("sum",)


def loss_scale(reduction: str, nranks: int, sequence: int = 1) -> int:
    """The factor for a loss that is the sum over this rank's targets divided by
    the number of targets on all ranks, such that the gradients are those of
    one process. nranks: of the group over which gradients are reduced, data
    parallel ranks included. sequence: DeepSpeed's sequence_parallel_size, 1
    where it was given none.

    reduction: "ddp", "fsdp", "fsdp2" and "zero3" (with reduce_scatter, which is
    DeepSpeed's default) average over all ranks. "zero1" and "zero2" do so too,
    unless DeepSpeed was given a sequence_parallel_size: then gradients are summed
    within a sequence. "sum" adds (FSDP2 with set_gradient_divide_factor(1) and
    set_force_sum_reduction_for_comms(True)). Trainer multiplies by itself: there
    it is not needed. Raises InvalidArgumentError for another word, and where
    `sequence` does not divide nranks.
    """
    if sequence < 1 or nranks % sequence:
        raise InvalidArgumentError(
            f"sequence is {sequence}, which does not divide {nranks} ranks")
    if reduction in _AVERAGED:
        return nranks
    if reduction in _SUMMED_WITHIN:
        return nranks // sequence
    if reduction in _SUMMED:
        return 1
    raise InvalidArgumentError(
        f"reduction is {reduction!r}; there are "
        f"{', '.join(_AVERAGED + _SUMMED_WITHIN + _SUMMED)}")
