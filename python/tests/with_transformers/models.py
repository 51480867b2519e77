# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the kinds whose attention differs, and batches."""
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
    """Makes a model of one process that attends by sdpa (the softmax of eager
    is in float32)."""
    torch.manual_seed(seed)
    config = KINDS[kind]()
    implementation = "eager" if kind == "gpt-oss" else "sdpa"
    # the other implementations have no float64
    config._experts_implementation = "eager"
    model = hf.AutoModelForCausalLM.from_config(
        config, attn_implementation=implementation)
    with torch.no_grad():  # gives sinks and norms values other than their initial ones
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return model.to(dtype).train()


def route_by_token(model):
    """Makes a GPT-OSS whose tokens get their experts by their number in the
    vocabulary. Otherwise, in a type other than float32, two experts that are
    nearly as good may change places because of a rounding error, and all later
    results differ."""
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
    """Returns input_ids and labels of whole samples. Some labels are no
    targets."""
    torch.manual_seed(seed)
    ids = torch.randint(3, VOCAB, (items, rows))
    labels = ids.clone()
    labels[torch.rand(items, rows) < 0.2] = -100
    return {"input_ids": ids, "labels": labels}


def twin(model):
    """Returns a copy with weights of its own."""
    return copy.deepcopy(model)


def loss_of(model, batch, count):
    """Returns the loss as transformers computes a causal loss, which is in
    float32 for every model."""
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
    """Returns the targets of a causal model's loss."""
    return int((labels[:, 1:] != -100).sum())


def scale(found, wanted):
    """Returns the common factor of all gradients relative to the expected
    ones."""
    name = "lm_head.weight"
    return float((wanted[name] * found[name]).sum() / (wanted[name] ** 2).sum())


def worst(found, wanted):
    """Returns the largest relative L2 distance of two sets of gradients.
    Gradients that are zero are measured relative to the largest."""
    most = max(float(w.double().norm()) for w in wanted.values())
    return max(float((found[n].double() - w.double()).norm()) /
               max(float(w.double().norm()), 1e-3 * most)
               for n, w in wanted.items())
