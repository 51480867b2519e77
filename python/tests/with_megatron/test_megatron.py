# SPDX-License-Identifier: Apache-2.0
"""A GPT of Megatron whose context parallel ranks attend by ulyx has the results
of the same GPT in one process with Megatron's own attention. Unsupported
settings are refused."""
import json
import os

import pytest
import torch
from launch import first_of, marked
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.enums import AttnMaskType

import ulyx
import ulyx.megatron

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("nranks, job", [
    (2, dict(groups=2)), (2, dict(heads=3, window=[5, 0])),
    (2, dict(groups=1, softmax="learnable")), (2, dict(packed=[8, 16])),
    (3, dict(heads=5, groups=1)), (2, dict(rope=1.0)),
    (2, dict(rope=1.0, packed=[8, 16])),
    (3, dict(rope=0.5, interleaved=True, groups=2))], ids=str)
def test_a_model_is_that_of_one_process(nranks, job):
    found = json.loads(marked(first_of(
        nranks, os.path.join(HERE, "train.py"), json.dumps(job)), "FOUND "))
    assert found["loss"] < 1e-5 and found["worst"] < 2e-6
    assert found["sinks"] == 2 * (job.get("softmax") == "learnable")


def config(**options):
    return TransformerConfig(**{**dict(
        num_layers=1, hidden_size=32, num_attention_heads=4,
        attention_dropout=0.0, use_cpu_initialization=True,
        masked_softmax_fusion=False), **options})


class Alone(ulyx.megatron._OneRank):
    """A layer whose group has no peers, without the self-check."""


def layer(mask=AttnMaskType.causal, kind="self", made=None, **options):
    return Alone(made or config(), 1, mask, kind, **options)


@pytest.mark.parametrize("options", [
    dict(), dict(num_query_groups=2), dict(window_size=(3, 0)),
    dict(softmax_type="off-by-one"), dict(softmax_type="learnable")], ids=str)
def test_megatron_computes_what_is_expected(options):
    ulyx.megatron._checked.clear()
    ulyx.megatron.self_check(config(**options))
    ulyx.megatron.self_check(config(**options), softmax_scale=0.3)
    assert len(ulyx.megatron._checked) == 2


def test_another_megatron_version_is_refused(monkeypatch):
    """Simulates a version of Megatron whose attention has another scale."""
    their = ulyx.megatron.DotProductAttention.forward
    monkeypatch.setattr(
        ulyx.megatron.DotProductAttention, "forward",
        lambda self, query, *rest, **options: their(self, 2 * query, *rest,
                                                    **options))
    ulyx.megatron._checked.clear()
    with pytest.raises(ulyx.InternalError, match="another version"):
        ulyx.megatron.self_check(config())


def test_unsupported_settings_are_refused_by_name():
    q = torch.randn(4, 1, 4, 8)
    cases = [
        (lambda: layer(made=config(attention_dropout=0.1)), "dropout of 0.1"),
        (lambda: layer(kind="cross"), "'cross'"),
        (lambda: layer(sparsity=3), "sparsity"),
        (lambda: layer(AttnMaskType.padding)(q, q, q, None), "'padding'"),
        (lambda: layer()(q, q, q, None, attention_bias=q), "attention_bias"),
        (lambda: layer()(q, q, q, None, page_table=q), "page_table"),
    ]
    for call, text in cases:
        with pytest.raises(ulyx.UnsupportedError, match=text):
            call()


def test_rotary_embeddings_of_other_kinds_are_refused():
    model = torch.nn.Module()
    assert ulyx.megatron.rotary_on_the_host(model) is model
    model.position_embedding_type, model.rotary_pos_emb = "yarn", object()
    with pytest.raises(ulyx.UnsupportedError, match="'yarn' on the CPU"):
        ulyx.megatron.rotary_on_the_host(model)


def test_a_spec_has_it_everywhere():
    given = get_gpt_layer_local_spec()
    made = ulyx.megatron.spec([given, given])
    for part in made:
        assert part.submodules.self_attention.submodules.core_attention is \
            ulyx.megatron.CoreAttention
    assert given.submodules.self_attention.submodules.core_attention is not \
        ulyx.megatron.CoreAttention
    with pytest.raises(ulyx.InvalidArgumentError, match="no core_attention"):
        ulyx.megatron.spec(given.submodules.mlp)
