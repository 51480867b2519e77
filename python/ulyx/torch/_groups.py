# SPDX-License-Identifier: Apache-2.0
"""Communicators of the process groups that a framework works with."""
from typing import Any, Dict, Optional

from ..communicator import Communicator


class Groups:
    """A communicator for each process group that was used."""

    def __init__(self) -> None:
        self._comms: Dict[str, Communicator] = {}

    def __call__(self, group: Any,
                 device: Optional[int] = None) -> Communicator:
        """Returns the communicator of a process group's ranks. The first use of
        a group makes the communicator, and is collective. device: of the
        communicator; later uses of the group do not read it."""
        name = group.group_name
        if name not in self._comms:
            self._comms[name] = Communicator.from_group(group, device=device)
        return self._comms[name]

    def close(self) -> None:
        """Closes all communicators; no call may be in flight."""
        while self._comms:
            self._comms.popitem()[1].close()
