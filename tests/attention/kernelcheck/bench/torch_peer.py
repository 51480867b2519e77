#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peers of kernelcheck --bench --vs: times attention of Python's packages,
one call at a time, as standard input asks for it.

torch_peer.py torch|PEER,PEER...

  row B H HKV S DQK DV DOCS CAUSAL BACKWARD
                       makes the tensors; answers "row" and the peers that take
                       them. DOCS: documents of equal length of a batch item
  run PEER REPEATS     answers the milliseconds of one of REPEATS calls in a row
  quit

Peers are cudnn and fa2 (FlashAttention-2) of PyTorch, fa3 and fa4 where their
packages are found; all write the logsumexp. Answers are single lines. The first
says what was found and what was not; "none REASON" there ends it.
"""
import importlib
import inspect
import sys

MODULES = {"fa3": ("flash_attn_interface",
                   "flash_attn_3.flash_attn_interface"),
           "fa4": ("flash_attn.cute",)}


def say(*words):
    print(*words, flush=True)


class Row:
    """The tensors of a row, [b][s][h][d] in memory, as ours are."""

    def __init__(self, torch, words):
        (self.batch, heads, heads_kv, self.len, dim_qk, dim_v, self.docs,
         causal, backward) = map(int, words)
        self.causal, self.backward = bool(causal), bool(backward)
        self.torch = torch
        self.q = self.make(heads, dim_qk)
        self.k = self.make(heads_kv, dim_qk)
        self.v = self.make(heads_kv, dim_v)
        self.results = {} # results of the peers' forward passes, which backward needs
        if self.docs:
            self.longest = self.len // self.docs
            self.begins = torch.arange(
                0, self.batch * self.len + 1, self.longest, device="cuda",
                dtype=torch.int32)

    def make(self, heads, dim):
        return self.torch.randn(
            self.batch, self.len, heads, dim, device="cuda",
            dtype=self.torch.bfloat16, requires_grad=self.backward)

    def by_head(self):
        """Returns a view [b][h][s][d] of the same memory."""
        return [t.transpose(1, 2) for t in (self.q, self.k, self.v)]

    def packed(self):
        """Returns a view [rows of all batch items][h][d]."""
        return [t.flatten(0, 1) for t in (self.q, self.k, self.v)]


def fa2(row):
    if row.docs:
        return row.torch.ops.aten._flash_attention_forward(
            *row.packed(), row.begins, row.begins, row.longest, row.longest,
            0.0, row.causal, False)
    return row.torch.ops.aten._scaled_dot_product_flash_attention(
        *row.by_head(), 0.0, row.causal, False)


def cudnn(row):
    if row.docs:
        raise RuntimeError("no documents")
    return row.torch.ops.aten._scaled_dot_product_cudnn_attention(
        *row.by_head(), None, True, 0.0, row.causal, False)


def flash(module):
    """FlashAttention-3 or -4, whose interfaces are the same."""
    def call(function, tensors, **options):
        known = inspect.signature(function).parameters
        return function(*tensors, **{name: value for name, value
                                     in options.items() if name in known})

    def attention(row):
        if not row.docs:
            return call(module.flash_attn_func, (row.q, row.k, row.v),
                        causal=row.causal)
        return call(module.flash_attn_varlen_func, row.packed(),
                    causal=row.causal, cu_seqlens_q=row.begins,
                    cu_seqlens_k=row.begins, max_seqlen_q=row.longest,
                    max_seqlen_k=row.longest)
    return attention


def find(names):
    """Returns {name: attention of a row}, and a description of what was
    found."""
    peers, words = {}, []
    for name in ("cudnn", "fa2", "fa3", "fa4"):
        if names != ["torch"] and name not in names:
            continue
        if name not in MODULES:
            peers[name] = {"cudnn": cudnn, "fa2": fa2}[name]
            continue
        reason = ""
        for module in MODULES[name]:
            try:
                peers[name] = flash(importlib.import_module(module))
                break
            except Exception as error: # a package may fail in any way
                reason = reason or str(error)
        words.append(f"{name}: {module if name in peers else reason}")
    return peers, words


def forward(peers, peer, row):
    result = peers[peer](row)
    return result[0] if isinstance(result, (tuple, list)) else result


def prepare(peers, peer, row):
    """Makes a first call, whose results backward uses. Raises if a peer
    refuses."""
    out = forward(peers, peer, row)
    if row.backward:
        row.results[peer] = out, row.torch.randn_like(out)
        once(peers, peer, row)
    row.torch.cuda.synchronize()


def once(peers, peer, row):
    if not row.backward:
        forward(peers, peer, row)
        return
    out, dout = row.results[peer]
    row.torch.autograd.grad(out, (row.q, row.k, row.v), dout,
                            retain_graph=True)


def takes(peers, peer, row):
    try:
        prepare(peers, peer, row)
        return True
    except Exception as error: # a package may refuse by any exception
        lines = str(error).splitlines() or [type(error).__name__]
        print(f"{peer}: {lines[0]}", file=sys.stderr)
        return False


def timed(peers, peer, row, repeats):
    torch = row.torch
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        once(peers, peer, row)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def serve(torch, peers):
    row = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            return
        if words[0] == "row":
            row = None # frees the memory before the next row's is allocated
            row = Row(torch, words[1:10])
            torch.set_grad_enabled(row.backward)
            say("row", *(p for p in peers if takes(peers, p, row)))
        else:
            say(timed(peers, words[1], row, int(words[2])))


def main():
    try:
        import torch
    except ImportError:
        say("none no torch")
        return
    if not torch.cuda.is_available():
        say("none torch finds no device")
        return
    peers, words = find(sys.argv[1].split(",") if sys.argv[1:] else ["torch"])
    say("torch", torch.__version__, "cudnn", torch.backends.cudnn.version(),
        *("; " + word for word in words))
    serve(torch, peers)


if __name__ == "__main__":
    main()
