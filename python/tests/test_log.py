# SPDX-License-Identifier: Apache-2.0
"""The lines of the library's log as records of Python's logging."""
import logging
import time

import numpy as np
import pytest

import ulyx
from ranks import Processes


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def test_lines_become_records():
    logger = logging.Logger("lines")
    kept = Kept()
    logger.addHandler(kept)
    ulyx.log_to(logger, "info")
    comm, = ulyx.Communicator.local(1)
    with pytest.raises(ulyx.InvalidArgumentError):
        ulyx.Plan(comm, [ulyx.Tensor(4, 8)], [-1])
    comm.close()
    ulyx.log_to(None)  # all earlier lines have arrived when this returns
    told = [record.getMessage() for record in kept.records]
    assert any("rows" in text for text in told), told
    count = len(told)
    ulyx.Communicator.local(1)[0].allreduce(np.zeros(1))
    time.sleep(0.05)
    assert len(kept.records) == count
    with pytest.raises(ulyx.InvalidArgumentError, match="'loud'"):
        ulyx.log_to(logger, "loud")


def test_an_end_with_a_logger_is_an_orderly_one():
    script = """
import logging
logging.basicConfig(stream=sys.stdout, format="%(message)s")
ulyx.log_to(logging.getLogger("ulyx"), "debug")
logging.getLogger("ulyx").setLevel(logging.DEBUG)
comm = ulyx.Communicator.from_env()
comm.barrier()
if rank == 1:
    sys.exit(5)
try:
    comm.barrier()
except ulyx.RankLostError:
    sys.exit(6)
"""
    with Processes(2, script, meet=False) as job:
        assert job.end(0)[0] == 6 and job.end(1)[0] == 5
