# SPDX-License-Identifier: Apache-2.0
"""The package is typed also where PyTorch, with its own types, is installed."""
from test_types import test_the_package_is_typed  # noqa: F401
