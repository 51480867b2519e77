# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.torch. Ranks are threads: backward of CPU tensors runs on the
thread that calls it."""
import os
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
torch.set_num_threads(1)
