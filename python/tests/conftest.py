# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package. ULYX_LIBRARY names the library under test."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# The library's warnings are the subject of tests, not their output.
os.environ.setdefault("ULYX_DEBUG", "NONE")
