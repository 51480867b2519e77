# SPDX-License-Identifier: Apache-2.0
"""The communicator of a call: the argument comm, else that of the innermost use()
around the call in this thread or task. There is no default for the process."""
import contextlib
import contextvars
import weakref
from typing import Iterator, Optional

import torch

from ..communicator import Communicator
from ..errors import InvalidArgumentError

_current: "contextvars.ContextVar[Optional[Communicator]]" = \
    contextvars.ContextVar("ulyx_communicator", default=None)
_bound: "weakref.WeakKeyDictionary[torch.nn.Module, Communicator]" = \
    weakref.WeakKeyDictionary()


@contextlib.contextmanager
def use(comm: Communicator) -> Iterator[Communicator]:
    """Inside, calls of this thread or task without comm= take this communicator.
    Backward takes the communicator of its forward, in whatever thread it
    runs."""
    token = _current.set(comm)
    try:
        yield comm
    finally:
        _current.reset(token)


def bind(module: torch.nn.Module, comm: Communicator) -> None:
    """Gives a module, and all modules within it, this communicator, which bound()
    returns and the integrations of frameworks use. The module itself is not
    changed. The binding ends with the module's life."""
    for part in module.modules():
        _bound[part] = comm


def unbind(module: torch.nn.Module) -> None:
    """Undoes bind() for a module and all modules within it."""
    for part in module.modules():
        _bound.pop(part, None)


def bound(module: torch.nn.Module) -> Optional[Communicator]:
    """The communicator of a module, or None."""
    return _bound.get(module)


def resolve(comm: Optional[Communicator]) -> Communicator:
    """Returns the communicator of a call to which this argument was passed."""
    found = comm if comm is not None else _current.get()
    if isinstance(found, Communicator):
        return found
    if found is None:
        raise InvalidArgumentError(
            "no communicator: give comm=, or call inside ulyx.torch.use(comm)")
    raise TypeError(f"comm is of type {type(found).__name__}; expected is a "
                    "ulyx.Communicator")
