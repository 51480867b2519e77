#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of kernelcheck --bench --vs torch: times PyTorch's attention forward,
one call at a time, as it is told on standard input.

  row B H S D CAUSAL   makes q, k, v; answers "row" and the peers that take it
  run PEER REPEATS     answers the milliseconds of one of REPEATS calls in a row
  quit

Peers are fa2 (FlashAttention-2) and cudnn; both write the logsumexp. Answers
are single lines; "none REASON" at the start ends it.
"""
import sys


def say(*words):
    print(*words, flush=True)


def fa2(torch, q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal, False)


def cudnn(torch, q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal, False)


PEERS = {"fa2": fa2, "cudnn": cudnn}


def make_row(torch, batch, heads, rows, dim):
    """[b][s][h][d] in memory, as ours."""
    def one():
        return torch.randn(batch, rows, heads, dim, device="cuda",
                           dtype=torch.bfloat16).transpose(1, 2)
    return one(), one(), one()


def takes(torch, peer, tensors, causal):
    try:
        PEERS[peer](torch, *tensors, causal)
        torch.cuda.synchronize()
        return True
    except RuntimeError as error:
        print(f"torch {peer}: {error}".splitlines()[0], file=sys.stderr)
        return False


def timed(torch, peer, tensors, causal, repeats):
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        PEERS[peer](torch, *tensors, causal)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def serve(torch):
    tensors, causal = None, False
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        if words[0] == "row":
            batch, heads, rows, dim, causal = map(int, words[1:6])
            tensors, causal = None, bool(causal)
            tensors = make_row(torch, batch, heads, rows, dim)
            say("row", *(p for p in PEERS if takes(torch, p, tensors, causal)))
        else:
            say(timed(torch, words[1], tensors, causal, int(words[2])))


def main():
    try:
        import torch
    except ImportError:
        say("none no torch")
        return
    if not torch.cuda.is_available():
        say("none torch finds no device")
        return
    torch.set_grad_enabled(False)
    say("torch", torch.__version__, "cudnn", torch.backends.cudnn.version())
    serve(torch)


if __name__ == "__main__":
    main()
