# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.torch. Ranks are threads, because backward of CPU tensors runs
on the thread that calls it. mypy needs minutes to read PyTorch, so
scripts/frameworks.sh checks the types of code that uses it."""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
torch.set_num_threads(1)
collect_ignore = [] if os.environ.get("ULYX_TEST_FRAMEWORKS") else [
    "test_typed.py"]
