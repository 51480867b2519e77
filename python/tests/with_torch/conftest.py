# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.torch. Ranks are threads: backward of CPU tensors runs on the
thread that calls it. mypy reads PyTorch for minutes, so the types of what uses it
are checked by scripts/frameworks.sh."""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
torch.set_num_threads(1)
collect_ignore = [] if os.environ.get("ULYX_TEST_FRAMEWORKS") else [
    "test_typed.py"]
