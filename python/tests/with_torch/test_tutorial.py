# SPDX-License-Identifier: Apache-2.0
"""The code in docs/PYTHON.md that needs PyTorch runs and prints what the page
shows."""
from ranks import Processes
from test_documents import blocks


def test_torch_of_the_tutorial_runs():
    layer = next(block for block in blocks() if "sp.attention" in block)
    core, = (block for block in blocks() if "head):" in block)
    script = """
import torch
q, k, v = (torch.randn(1, 6, n, 8) for n in (4, 2, 2))
def flash_attn_func(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal,
        enable_gqa=True).transpose(1, 2)
""" + layer + "first = out\n" + core + "say((first - out).abs().max() < 1e-5)\n"
    with Processes(2, script, meet=False) as job:
        for rank in range(2):
            status, said = job.end(rank, timeout=120)
            assert (status, said) == (0, "tensor(True)"), job.error(rank)


def test_one_process_of_the_tutorial_runs():
    alone, on_rank = (block for block in blocks()
                      if "Communicator.local(" in block)
    names = {}
    exec(alone + on_rank, names)  # the page's own assert compares
    assert [comm.rank for comm in names["comms"]] == [0, 1, 2, 3]
