# SPDX-License-Identifier: Apache-2.0
"""Which communicator a call means: its argument, else the innermost use()
around it in this thread or task. There is no process-wide one."""
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
    """Calls inside, of this thread, are on this communicator where they name no
    other. Backward takes that of its forward, wherever it runs."""
    token = _current.set(comm)
    try:
        yield comm
    finally:
        _current.reset(token)


def bind(module: torch.nn.Module, comm: Communicator) -> None:
    """The module and all within it are on this communicator: what bound() and
    the integrations of frameworks go by. Nothing of the module is changed, and
    the binding ends with it."""
    for part in module.modules():
        _bound[part] = comm


def unbind(module: torch.nn.Module) -> None:
    """Takes bind() back."""
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
