# SPDX-License-Identifier: Apache-2.0
"""ulyx: sequence-parallel exchange and attention.

    import ulyx
    comm = ulyx.Communicator.from_env()          # torchrun, mpirun, srun
    plan = ulyx.Plan(comm, [ulyx.Tensor(heads=8, dim=64, dtype="float32")],
                     parts=[4096])
    [by_heads] = plan.execute(ulyx.SEQ_TO_HEAD, [q])   # numpy arrays

ulyx.torch has the same for PyTorch, with gradients. docs/PYTHON.md is the
tutorial.
"""
from . import memory as memory
from ._abi import (DIST_ATTENTION_FORWARD_ONLY, DIST_ATTENTION_FULL,
                   DIST_ATTENTION_GRAD_EQUAL, DIST_ATTENTION_LSE,
                   PLAN_COPY_ENGINE, PLAN_PROGRESS_THREAD, POINTER_ANY,
                   POINTER_WINDOW, TENSOR_FULL, TENSOR_GRAD_EQUAL)
from ._library import version as __version__
from .arrays import Docs
from .communicator import (Communicator, Launch, UniqueId, launch,
                           unique_id)
from .dist_attention import DistAttention, attention_kernels
from .errors import (AbortedError, AuthenticationError, BusyError, ForkedError,
                     InternalError, InvalidArgumentError, MismatchError,
                     OutOfMemoryError, PeerRefusedError, RankLostError,
                     SizeOverflowError, SystemCallError, TimeoutError,
                     UlyxError, UnsupportedError, VersionError)
from .log import log_to
from .plan import (HEAD_TO_SEQ, HEAD_TO_SEQ_ADJOINT, SEQ_TO_HEAD,
                   SEQ_TO_HEAD_ADJOINT, Part, Plan, Segment, Tensor)

__all__ = [
    "AbortedError", "AuthenticationError", "BusyError", "Communicator",
    "DIST_ATTENTION_FORWARD_ONLY", "DIST_ATTENTION_FULL",
    "DIST_ATTENTION_GRAD_EQUAL", "DIST_ATTENTION_LSE", "DistAttention", "Docs",
    "ForkedError", "HEAD_TO_SEQ", "HEAD_TO_SEQ_ADJOINT", "InternalError",
    "InvalidArgumentError", "Launch", "MismatchError", "OutOfMemoryError",
    "PLAN_COPY_ENGINE", "PLAN_PROGRESS_THREAD", "POINTER_ANY", "POINTER_WINDOW",
    "Part", "PeerRefusedError", "Plan", "RankLostError", "SEQ_TO_HEAD",
    "SEQ_TO_HEAD_ADJOINT", "Segment", "SizeOverflowError", "SystemCallError",
    "TENSOR_FULL", "TENSOR_GRAD_EQUAL", "Tensor", "TimeoutError", "UlyxError",
    "UniqueId", "UnsupportedError", "VersionError", "__version__",
    "attention_kernels", "launch",
    "log_to", "memory", "unique_id",
]
