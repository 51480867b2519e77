# SPDX-License-Identifier: Apache-2.0
"""What torch_peer.py needs of FlashAttention-3, to be used with the stand-in
for torch. FlashAttention-4 is not installed here."""
import torch


def flash_attn_func(q, k, v, softmax_scale=None, causal=False):
    assert softmax_scale is None
    return torch.attend(q, k, v, causal, 2)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                           max_seqlen_k, softmax_scale=None, causal=False):
    assert cu_seqlens_q is cu_seqlens_k and max_seqlen_q == max_seqlen_k
    assert softmax_scale is None
    return torch.attend(q, k, v, causal, 1)
