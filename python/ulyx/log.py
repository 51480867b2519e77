# SPDX-License-Identifier: Apache-2.0
"""Lines of the library's log as records of Python's logging.

The library may log from any of its threads, with locks held. Therefore the
function that it calls only puts the line into a queue. A thread of this module
takes the line from there, so handlers may do whatever they need.
"""
import atexit
import ctypes
import logging
import os
import queue
import threading
from typing import Any, Optional

from . import _abi
from ._library import check, lib

_LEVELS = {_abi.LOG_VERSION: logging.INFO, _abi.LOG_WARN: logging.WARNING,
           _abi.LOG_INFO: logging.INFO, _abi.LOG_TRACE: logging.DEBUG}
_NAMES = {None: _abi.LOG_DEFAULT, "warning": _abi.LOG_WARN,
          "info": _abi.LOG_INFO, "debug": _abi.LOG_TRACE}


class _Sink:
    """The function that the library calls, the queue, and the thread that reads
    it."""

    def __init__(self, logger: logging.Logger) -> None:
        self.lines: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.logger = logger
        self.function = _abi.ulyx_log_fn(self._put)
        self.thread = threading.Thread(target=self._run, name="ulyx-log",
                                       daemon=True)
        self.thread.start()

    def _put(self, _: Any, level: int, rank: int, text: bytes) -> None:
        self.lines.put((level, rank, text))

    def _run(self) -> None:
        while True:
            line = self.lines.get()
            if line is None:
                return
            level, rank, text = line
            where = "" if rank < 0 else f"rank {rank}: "
            self.logger.log(_LEVELS.get(level, logging.INFO), "%s%s", where,
                            text.decode(errors="replace"))

    def close(self) -> None:
        """Ends the thread after the lines in the queue are logged."""
        self.lines.put(None)
        self.thread.join(5)


_sink: Optional[_Sink] = None
_pid = 0


def log_to(logger: Optional[logging.Logger], level: Optional[str] = None) -> None:
    """Gives the library's lines to a logger instead of standard error; None:
    back. level: "warning", "info" or "debug"; None: the level of ULYX_DEBUG."""
    global _sink, _pid
    from .plan import choice
    number = choice(level, _NAMES, "level")
    old, new = _sink, None if logger is None else _Sink(logger)
    check(lib.ulyx_log_set(new.function if new else _abi.ulyx_log_fn(), None,
                           number))
    _sink, _pid = new, os.getpid()
    if old is not None:
        old.close()


@atexit.register
def _end() -> None:
    # No thread of the library may call into an interpreter that has ended.
    if _sink is not None and _pid == os.getpid():
        log_to(None)
