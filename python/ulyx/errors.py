# SPDX-License-Identifier: Apache-2.0
"""An exception class for each status of the library. The text of an exception
is the library's own: argument, value, ranks."""
import builtins
from typing import Dict, Type

from . import _abi, _names


class UlyxError(RuntimeError):
    """Any failure that the library reports; `status` is its code."""

    status: int = 0


class InvalidArgumentError(UlyxError, ValueError):
    """The call is wrong: nothing was done, outputs are untouched."""


class UnsupportedError(UlyxError, NotImplementedError):
    """The feature or combination named in the text does not exist."""


class OutOfMemoryError(UlyxError, MemoryError):
    """Memory could not be had, here or at the rank named."""


class SizeOverflowError(UlyxError, builtins.OverflowError):
    """A product of the given sizes does not fit 64 bits."""


class MismatchError(UlyxError):
    """Ranks called with different parameters; the communicator is usable."""


class TimeoutError(UlyxError, builtins.TimeoutError):
    """The deadline passed; the communicator has failed."""


class RankLostError(UlyxError):
    """A rank died; the communicator has failed."""


class AbortedError(UlyxError):
    """The communicator was aborted, here or by a peer."""


class BusyError(UlyxError):
    """In use or in quarantine: finish or release first, then call again."""


class PeerRefusedError(UlyxError):
    """A peer refused its own call; the communicator is usable."""


class SystemCallError(UlyxError):
    """A system call failed; the text has its error."""


class AuthenticationError(UlyxError):
    """Wrong secret or wrong user at the other end."""


class VersionError(UlyxError):
    """The other end runs another protocol version of ulyx."""


class ForkedError(UlyxError):
    """Called in a child that was forked while there was a communicator."""


class InternalError(UlyxError):
    """A defect of ulyx: please report."""


BY_STATUS: Dict[int, Type[UlyxError]] = {
    _abi.ERR_INVALID_ARGUMENT: InvalidArgumentError,
    _abi.ERR_UNSUPPORTED: UnsupportedError,
    _abi.ERR_NO_MEMORY: OutOfMemoryError,
    _abi.ERR_OVERFLOW: SizeOverflowError,
    _abi.ERR_MISMATCH: MismatchError,
    _abi.ERR_TIMEOUT: TimeoutError,
    _abi.ERR_RANK_LOST: RankLostError,
    _abi.ERR_ABORTED: AbortedError,
    _abi.ERR_BUSY: BusyError,
    _abi.ERR_PEER_REFUSED: PeerRefusedError,
    _abi.ERR_SYSTEM: SystemCallError,
    _abi.ERR_AUTH: AuthenticationError,
    _abi.ERR_VERSION: VersionError,
    _abi.ERR_FORKED: ForkedError,
    _abi.ERR_INTERNAL: InternalError,
}
for _status, _class in BY_STATUS.items():
    _class.status = _status


def of(status: int, text: str) -> UlyxError:
    """The exception of a status that is not success. Fields of C in the text have
    the names of Python's arguments."""
    found = BY_STATUS.get(status, UlyxError)
    error = found(_names.in_python(text, _names.PACKAGE) or
                  _abi.STATUS.get(status, ("", "unknown status"))[1])
    error.status = status
    return error
