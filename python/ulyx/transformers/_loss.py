# SPDX-License-Identifier: Apache-2.0
"""What a rank's loss is multiplied with before backward."""
from ..errors import InvalidArgumentError

# What is done with the gradients of N ranks, each of its own tokens' loss.
_AVERAGED = ("ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3", "average")
_SUMMED = ("sum",)


def loss_scale(reduction: str, nranks: int) -> int:
    """The factor for a loss that is the sum over this rank's targets divided by
    the number of targets on all ranks, such that the gradients are those of
    one process. nranks: of the group over which gradients are reduced, data
    parallel ranks included.

    reduction: "ddp", "fsdp", "fsdp2", "zero1", "zero2", "zero3" average;
    "sum" adds (FSDP2 with set_gradient_divide_factor(1) and
    set_force_sum_reduction_for_comms(True)). Trainer multiplies by itself:
    there it is not needed. Raises InvalidArgumentError for another word.
    """
    if reduction in _AVERAGED:
        return nranks
    if reduction in _SUMMED:
        return 1
    raise InvalidArgumentError(f"reduction is {reduction!r}; there are "
                               f"{', '.join(_AVERAGED + _SUMMED)}")
