# SPDX-License-Identifier: Apache-2.0
"""A rank of test_megatron.py: a small GPT of Megatron with context parallelism by
ulyx, and the same GPT with Megatron's own attention in one process.

    train.py '{"heads": 4, "groups": 2, "window": [5, 0], ...}'
"""
import copy
import json
import os
import sys

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.dot_product_attention import DotProductAttention

import ulyx.megatron

RANKS, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
ROWS, VOCAB = 24, 64


def model_of(job, ranks, spec):
    torch.manual_seed(0)
    heads = job.get("heads", 4)
    window = job.get("window")
    config = TransformerConfig(
        num_layers=2, hidden_size=8 * heads, num_attention_heads=heads,
        num_query_groups=job.get("groups", heads), kv_channels=8,
        ffn_hidden_size=64, use_cpu_initialization=True,
        rotary_interleaved=job.get("interleaved", False),
        attention_dropout=0.0, hidden_dropout=0.0, add_bias_linear=False,
        masked_softmax_fusion=False, bias_dropout_fusion=False,
        gradient_accumulation_fusion=False, context_parallel_size=ranks,
        softmax_type=job.get("softmax", "vanilla"),
        window_size=tuple(window) if window else None,
        params_dtype=torch.float32)
    model = GPTModel(config, spec, VOCAB, ROWS, parallel_output=True,
                     position_embedding_type="rope" if "rope" in job
                     else "learned_absolute", rotary_base=100,
                     rotary_percent=job.get("rope", 1.0))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("softmax_offset"):
                weight.copy_(torch.linspace(-1, 1, heads))
    return model


def mine(whole):
    """Returns this rank's chunks of [b, s], as get_batch_on_this_cp_rank gives
    them."""
    chunks = whole.chunk(2 * RANKS, 1)
    return torch.cat([chunks[RANK], chunks[2 * RANKS - 1 - RANK]], 1)


def loss_of(model, ids, labels, positions, packed=None, mask=None):
    logits = model(ids, positions, mask, packed_seq_params=packed)
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="sum") / (2 * ROWS)


def sharded_loss(model, lengths, ids, labels, positions):
    """Returns the loss of this rank's tokens, of a batch or of sequences of
    these lengths packed into one."""
    if not lengths:
        return loss_of(model, mine(ids), mine(labels), mine(positions))
    ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0)
    own = [torch.cat([mine(part) for part in whole[:1].split(lengths, 1)], 1)
           for whole in (ids, labels, torch.cat([
               torch.arange(count) for count in lengths])[None])]
    return loss_of(model, *own, packed=PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends,
        max_seqlen_q=max(lengths), max_seqlen_kv=max(lengths)))


def whole_loss(model, job, ids, labels, positions):
    """Returns the loss of all tokens in one process, whose own attention takes
    no packed sequences."""
    def mask_of(rows):
        return None if job.get("window") else \
            torch.ones(rows, rows, dtype=torch.bool).triu(1)[None, None]
    lengths = job.get("packed")
    if not lengths:
        return loss_of(model, ids, labels, positions, mask=mask_of(ROWS))
    return sum(loss_of(model, *parts, positions[:1, :parts[0].shape[1]],
                       mask=mask_of(parts[0].shape[1]))
               for parts in zip(ids[:1].split(lengths, 1),
                                labels[:1].split(lengths, 1)))


def gradients(model):
    return {name: weight.grad for name, weight in model.named_parameters()
            if weight.grad is not None}


def on_the_cpu(model):
    """For a dropout of 0, Megatron's own attention takes random numbers from a
    GPU, unless its sequence is parallel."""
    for part in model.modules():
        if isinstance(part, DotProductAttention):
            part.config = copy.copy(part.config)
            part.config.sequence_parallel = True
    return model


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(context_parallel_size=RANKS)
    torch.manual_seed(1)
    ids = torch.randint(0, VOCAB, (2, ROWS))
    labels = torch.randint(0, VOCAB, (2, ROWS))
    positions = torch.arange(ROWS).expand(2, -1)
    local = get_gpt_layer_local_spec()
    model = ulyx.megatron.rotary_on_the_host(
        model_of(job, RANKS, ulyx.megatron.spec(local)))
    loss = sharded_loss(model, job.get("packed"), ids, labels, positions)
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    found = gradients(model)
    for grad in found.values():
        dist.all_reduce(grad)

    # One process is one context parallel rank.
    ulyx.megatron.close()
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel()
    with ulyx.megatron._OnTheHost():
        alone = on_the_cpu(model_of(job, 1, local))
        wanted_loss = whole_loss(alone, job, ids, labels, positions)
        wanted_loss.backward()
    wanted = gradients(alone)
    assert wanted.keys() == found.keys()
    worst = max(float((found[name] - grad).norm() / grad.norm())
                for name, grad in wanted.items())
    if RANK == 0:
        print("FOUND " + json.dumps(dict(
            loss=abs(float(total) - float(wanted_loss.detach())), worst=worst,
            sinks=sum("softmax_offset" in name for name in found))), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
