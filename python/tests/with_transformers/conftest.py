# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.transformers. Ranks are threads in test_models.py, processes in
test_trainer.py, which takes minutes and is run by scripts/frameworks.sh."""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
torch.set_num_threads(1)
collect_ignore = [] if os.environ.get("ULYX_TEST_FRAMEWORKS") else [
    "test_trainer.py", "test_scale.py",
    "test_training_examples.py"]
