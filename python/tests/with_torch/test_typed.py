# SPDX-License-Identifier: Apache-2.0
"""The package is typed where PyTorch's own types are there, too."""
from test_types import test_the_package_is_typed  # noqa: F401
