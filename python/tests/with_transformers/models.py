# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the kinds that differ in their attention, and batches."""
import copy
import functools

import torch
import transformers as hf

VOCAB = 61
COMMON = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64,
              num_hidden_layers=2, max_position_embeddings=256,
              attention_dropout=0.0, use_cache=False, pad_token_id=0,
              bos_token_id=1, eos_token_id=2)
HEADS = dict(num_attention_heads=6, num_key_value_heads=2, head_dim=8)

KINDS = {
    "llama": lambda: hf.LlamaConfig(**COMMON, **HEADS),
    "llama-5-1": lambda: hf.LlamaConfig(
        **{**COMMON, "hidden_size": 40}, num_attention_heads=5,
        num_key_value_heads=1, head_dim=8),
    "qwen3": lambda: hf.Qwen3Config(
        **COMMON, num_attention_heads=8, num_key_value_heads=4, head_dim=16),
    "mistral": lambda: hf.MistralConfig(**COMMON, **HEADS, sliding_window=6),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **COMMON, **HEADS, sliding_window=7, query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"]),
    "gpt-oss": lambda: hf.GptOssConfig(
        **COMMON, num_attention_heads=8, num_key_value_heads=2, head_dim=16,
        sliding_window=9, num_local_experts=4, num_experts_per_tok=2,
        layer_types=["sliding_attention", "full_attention"]),
}


def make(kind, dtype=torch.float64, seed=5):
    """A model of one process, by sdpa (eager has its softmax in float32)."""
    torch.manual_seed(seed)
    config = KINDS[kind]()
    implementation = "eager" if kind == "gpt-oss" else "sdpa"
    config._experts_implementation = "eager"  # others have no float64
    model = hf.AutoModelForCausalLM.from_config(
        config, attn_implementation=implementation)
    with torch.no_grad():  # sinks and norms are more than their first values
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return model.to(dtype).train()


def route_by_token(model):
    """A GPT-OSS whose tokens have the experts of their number in the vocabulary:
    in another type than float32 two that are nearly as good may change places,
    by each rounding error, and from then on it is another computation."""
    def noted(module, arguments, named):
        module.tokens = named["input_ids"].reshape(-1, 1)

    def route(router, hidden):
        logits = torch.nn.functional.linear(hidden, router.weight, router.bias)
        chosen = (model.tokens + torch.arange(router.top_k)) % router.num_experts
        scores = torch.softmax(logits.gather(1, chosen), 1)
        return logits, scores.to(logits.dtype), chosen
    model.register_forward_pre_hook(noted, with_kwargs=True)
    for layer in model.model.layers:
        router = layer.mlp.router
        router.forward = functools.partial(route, router)
    return model


def batch(items, rows, seed=7):
    """input_ids, labels of whole samples; some labels are no targets."""
    torch.manual_seed(seed)
    ids = torch.randint(3, VOCAB, (items, rows))
    labels = ids.clone()
    labels[torch.rand(items, rows) < 0.2] = -100
    return {"input_ids": ids, "labels": labels}


def twin(model):
    """A copy with weights of its own."""
    return copy.deepcopy(model)


def loss_of(model, batch, count):
    """As transformers' causal loss, which is in float32 for any model."""
    batch = dict(batch)
    labels = batch.pop("labels")
    shifted = batch.pop("shift_labels", None)
    if shifted is None:
        shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    logits = model(**batch).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), shifted.flatten(), ignore_index=-100,
        reduction="sum") / count


def gradients(model):
    return {name: weight.grad.detach().clone() if weight.grad is not None
            else torch.zeros_like(weight)
            for name, weight in model.named_parameters()}


def targets(labels):
    """Targets of a causal model's loss."""
    return int((labels[:, 1:] != -100).sum())


def scale(found, wanted):
    """The common factor of all gradients over the expected ones."""
    name = "lm_head.weight"
    return float((wanted[name] * found[name]).sum() / (wanted[name] ** 2).sum())


def worst(found, wanted):
    """The largest relative L2 distance of two sets of gradients; those that
    are zero are measured against the largest."""
    most = max(float(w.double().norm()) for w in wanted.values())
    return max(float((found[n].double() - w.double()).norm()) /
               max(float(w.double().norm()), 1e-3 * most)
               for n, w in wanted.items())
