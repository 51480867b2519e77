# SPDX-License-Identifier: Apache-2.0
"""loss_scale() and what DDP and FSDP2 do with gradients. DeepSpeed's stages are
tested in test_deepspeed.py."""
import json
import os

import pytest
from launch import HERE, first_of, marked


# In models of float64, too, norms of transformers round gradients to float32 on
# the way. A factor of 2 commutes with rounding, because its products are exact;
# a factor of 3 does not. If the loss of one process is multiplied by 3 and its
# gradients are divided by 3, they differ from the original ones by some 2^-24,
# without ranks or reductions. So the sharded run, whose loss has the factor, is
# compared with a process whose loss has it too, to the bits of float64.
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
