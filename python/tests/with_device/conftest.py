# SPDX-License-Identifier: Apache-2.0
"""Tests of ulyx.torch with device memory, on emulated devices. ULYX_LIBRARY is
the library of tests/emulate/python, whose device memory the host can read and
write. `Emulated` takes the place of torch.cuda. Its tensors are tensors of the
host over device memory, and each of its calls has ended when it returns,
because operators of the host know no streams."""
import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "with_torch"), HERE]
# The library opens the emulated driver, which looks up its functions there.
ctypes.CDLL(os.environ["ULYX_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
