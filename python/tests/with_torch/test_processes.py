# SPDX-License-Identifier: Apache-2.0
"""Ranks that torch.distributed has started, in training."""
import os

import pytest

from ranks import Processes

SCRIPT = """
import torch
import torch.distributed as dist
import ulyx.torch as sp
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank,
                        world_size=3)

# Any group, its own order; the group is not needed afterwards.
pair = dist.new_group([0, 2])
comm = ulyx.Communicator.from_group(timeout=60)
assert (comm.rank, comm.nranks) == (rank, 3)
if rank != 1:
    two = ulyx.Communicator.from_group(pair, timeout=60)
    assert (two.rank, two.nranks) == (rank // 2, 2)
    assert two.allreduce(np.float64([rank]))[0] == 2
else:
    try:
        ulyx.Communicator.from_group(pair)
    except (ulyx.InvalidArgumentError, ValueError):
        pass
dist.barrier()
dist.destroy_process_group()

torch.manual_seed(0)
rows = 24
whole = [torch.randn(1, rows, n, 8, dtype=torch.float64) for n in (4, 2, 2)]
mine = slice(8 * rank, 8 * rank + 8)

def layer(q, k, v):
    return sp.attention(q * 2, k, v, comm=comm, causal=True)

def step(call):
    leaves = [t[:, mine].clone().requires_grad_() for t in whole]
    out = call(*leaves)
    out.sin().sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]

wanted = step(layer)

# Forked workers beside the calls, twice.
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.full((3,), float(i))
for persistent in (True, False):
    loader = torch.utils.data.DataLoader(Data(), num_workers=2, batch_size=2,
                                         persistent_workers=persistent)
    for _ in range(2):
        for batch in loader:
            found = step(layer)
            assert all(torch.equal(a, b) for a, b in zip(found, wanted))
    del loader

compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
for _ in range(2):
    found = step(compiled)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))
comm.barrier()
say("done")
"""


def test_groups_workers_and_compiled_code(tmp_path):
    with Processes(3, SCRIPT, meet=False,
                   arguments=[str(tmp_path / "store")]) as job:
        for rank in range(3):
            status, said = job.end(rank, timeout=120)
            assert (status, said) == (0, "done"), job.error(rank)


EXAMPLES = os.path.join(
    os.environ.get("ULYX_TEST_TREE") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."),
    "examples", "python")


@pytest.mark.parametrize("name", ["train_layer.py"])
def test_examples(name):
    path = os.path.join(EXAMPLES, name)
    script = f"import runpy\nrunpy.run_path({path!r}, run_name='__main__')\n"
    with Processes(2, script, meet=False) as job:
        status, said = job.end(0, timeout=120)
        assert status == 0 and "at most" in said, job.error(0)
        assert job.end(1, timeout=120)[0] == 0, job.error(1)
