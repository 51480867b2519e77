# SPDX-License-Identifier: Apache-2.0
"""loss_scale() and what DDP and FSDP2 do with gradients; DeepSpeed's stages are in
test_deepspeed.py."""
import json
import os

import pytest
from launch import HERE, first_of, marked


# Norms of transformers round gradients to float32 on their way, and 3 times a
# gradient is rounded otherwise; 2 times is not.
@pytest.mark.parametrize("nranks, most", [(2, 1e-12), (3, 1e-6)])
def test_gradients_have_the_scale_of_one_process(nranks, most):
    said = first_of(nranks, os.path.join(HERE, "scale.py"))
    found = json.loads(marked(said, "FOUND "))
    assert len(found) == 6
    assert max(found.values()) < most, found
