# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package. ULYX_LIBRARY names the library under test."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# Some tests expect warnings of the library. They must not appear in the output.
os.environ.setdefault("ULYX_DEBUG", "NONE")
