# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the main thread waits inside the library.

Python runs a signal's handler only once the call has returned, which may take
until the deadline. But the number of the signal is written to a file descriptor
at once (signal.set_wakeup_fd). A thread of this module reads it and aborts the
communicator of the waiting call: the call returns, the peers receive the abort,
and Python raises KeyboardInterrupt. This happens only for a SIGINT whose
handler is Python's own. Programs that handle SIGINT themselves are unaffected,
and so are calls of other threads, because the main thread gets
KeyboardInterrupt in any case.

A creation has no communicator yet that could be aborted. It runs in a thread of
its own, for which the main thread waits (`interruptible`).
"""
import os
import signal
import threading
# signal.getsignal without its enum, because every call comes through here.
from _signal import getsignal  # type: ignore[import-not-found]
from typing import Any, Callable, Optional

_MAIN = threading.main_thread().ident


class _Watcher:
    """The descriptor, its thread, and the communicator of the call that waits
    now."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)
        self.waiting: Any = None  # the communicator for which the main thread waits
        self.previous = -1
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="ulyx-interrupt",
                         daemon=True).start()

    def _run(self) -> None:
        while True:
            numbers = os.read(self.read_fd, 64)
            waiting, previous = self.waiting, self.previous
            if signal.SIGINT in numbers and waiting is not None:
                waiting.abort()
            if previous >= 0:  # so that other readers of signals get the number as well
                try:
                    os.write(previous, numbers)
                except OSError:
                    pass


_watcher: Optional[_Watcher] = None


def _ready() -> _Watcher:
    global _watcher
    if _watcher is None or _watcher.pid != os.getpid():
        _watcher = _Watcher()
    return _watcher


def waiting(comm: Any, function: Callable[..., int], *arguments: Any) -> int:
    """Returns function(*arguments), a call on the communicator's handle, during
    which Ctrl-C aborts the communicator. A communicator of one rank never
    waits, so its calls are made directly."""
    comm.inside += 1
    watcher = None
    if not comm.alone and threading.get_ident() == _MAIN and \
            getsignal(signal.SIGINT) is signal.default_int_handler:
        watcher = _ready()
        watcher.waiting = comm
        watcher.previous = signal.set_wakeup_fd(watcher.write_fd,
                                                warn_on_full_buffer=False)
    try:
        return function(*arguments)
    finally:
        comm.inside -= 1
        if watcher is not None:
            watcher.waiting = None
            signal.set_wakeup_fd(watcher.previous, warn_on_full_buffer=False)


def interruptible(call: Callable[[], Any], undo: Callable[[Any], None]) -> Any:
    """Returns or raises as call(). On the main thread, call() runs in another
    thread, so that Ctrl-C is handled at once; then undo() gets the result that
    call() still returned."""
    if threading.get_ident() != _MAIN:
        return call()
    result: Any = None
    error: Optional[BaseException] = None
    left = False
    lock = threading.Lock()
    done = threading.Event()

    def run() -> None:
        nonlocal result, error
        try:
            result = call()
        except BaseException as caught:
            error = caught
        with lock:
            done.set()
            late = left
        if late and error is None:
            undo(result)

    threading.Thread(target=run, name="ulyx-create", daemon=True).start()
    try:
        done.wait()
    except BaseException:
        with lock:
            left = True
            finished = done.is_set()
        if finished and error is None:
            undo(result)
        raise
    if error is not None:
        raise error
    return result
