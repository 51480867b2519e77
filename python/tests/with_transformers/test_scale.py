# SPDX-License-Identifier: Apache-2.0
"""loss_scale() and what DDP and FSDP2 do with gradients; DeepSpeed's stages are in
test_deepspeed.py."""
import json
import os

import pytest
from launch import HERE, first_of, marked


# Norms of transformers round gradients to float32 on their way, in models of float64
# too. Rounding goes with a factor of 2, whose products are exact, and not with one
# of 3: one process whose loss is multiplied by 3, and its gradients divided, is off
# from itself by some 2^-24, without ranks or reductions. So the sharded run, whose
# loss has the factor, is held to the process whose loss has it too, to float64's bits.
@pytest.mark.parametrize("nranks", [2, 3])
def test_gradients_have_the_scale_of_one_process(nranks):
    said = first_of(nranks, os.path.join(HERE, "scale.py"))
    found = json.loads(marked(said, "FOUND "))
    distances = found["distances"]
    assert len(distances) == 6
    assert max(distances.values()) < 1e-12, distances
    if nranks == 2:
        assert found["rounding"] == 0
    else:
        assert 1e-9 < found["rounding"] < 1e-6
