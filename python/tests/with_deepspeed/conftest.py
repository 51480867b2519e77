# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.deepspeed. They start processes; scripts/frameworks.sh runs
them."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "with_transformers")]
collect_ignore = [] if os.environ.get("ULYX_TEST_FRAMEWORKS") \
    else ["test_deepspeed.py"]
