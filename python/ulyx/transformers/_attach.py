# SPDX-License-Identifier: Apache-2.0
"""The name "ulyx" in the registries of transformers, and models that use it."""
from typing import Any, Optional, Tuple

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from .. import torch as sp
from .._names import in_python
from ..communicator import Communicator
from ..errors import InvalidArgumentError, UlyxError, UnsupportedError
from ..torch import _names

NAME = "ulyx"

# The source of the arguments that sp.attention() takes from its caller.
_COLLATOR = ("batches of ulyx.transformers.Collator have ulyx_rows, the tokens of "
             "all ranks together, and documents")
# Arguments of attention functions that change the result and that ulyx does not
# have.
_UNKNOWN = ("position_bias", "head_mask", "layer_head_mask", "attention_bias",
            "block_mask", "score_mod", "block_table")


def _refuse(what: str) -> None:
    raise UnsupportedError(f"attention {NAME!r}: {what}")


def _check(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
           mask: Optional[torch.Tensor], dropout: float, options: Any) -> None:
    if mask is not None:
        _refuse("a mask that is a tensor; causal masks, windows and documents "
                "(cu_seq_lens_q) are known, padding is turned into documents "
                "by ulyx.transformers.Collator")
    if dropout:
        _refuse(f"a dropout of {dropout}; set attention_dropout to 0")
    if options.get("output_attentions"):
        _refuse("output_attentions: the weights are never in memory")
    for name in _UNKNOWN:
        if options.get(name) is not None:
            _refuse(f"the argument {name}")
    if key.shape[2] != query.shape[2]:
        _refuse(f"{key.shape[2]} keys for {query.shape[2]} queries: a cache "
                "of earlier tokens (generation) is not known; training sets "
                "use_cache=False")
    positions = options.get("position_ids")
    if options.get("cu_seq_lens_q") is None and positions is not None and \
            getattr(module, "layer_idx", 0) == 0 and \
            not torch.compiler.is_compiling() and positions.dim() == 2 and \
            bool((positions.diff(dim=-1) != 1).any()):
        _refuse("position_ids that start over, and no cu_seq_lens_q: packed "
                "documents are to be said by ulyx.transformers.Collator")


def _attend(*qkv: torch.Tensor, **options: Any) -> torch.Tensor:
    """sp.attention(), with errors in the words of a model's batch."""
    if torch.compiler.is_compiling():
        return sp.attention(*qkv, **options)
    try:
        return sp.attention(*qkv, **options)
    except UlyxError as error:
        text = in_python(str(error), _names.MODEL)
        error.args = (text.replace(_names.ADVICE, _COLLATOR),)
        raise


def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
              value: torch.Tensor, attention_mask: Optional[torch.Tensor],
              dropout: float = 0.0, scaling: Optional[float] = None,
              is_causal: Optional[bool] = None,
              sliding_window: Optional[int] = None,
              softcap: Optional[float] = None,
              s_aux: Optional[torch.Tensor] = None, **options: Any
              ) -> Tuple[torch.Tensor, None]:
    """Called by AttentionInterface: query, key, value [b, heads, s_r, dim] of
    this rank's tokens; returns [b, s_r, heads, dim] and no weights.

    From the batch come ulyx_rows, the tokens of all ranks together (default:
    as many on each), and cu_seq_lens_q, the documents of all of them."""
    comm = sp.bound(module)
    if comm is None:
        raise InvalidArgumentError(
            f"attention {NAME!r}: {type(module).__name__} has no communicator: "
            "call ulyx.transformers.attach(model, comm), after the model was "
            "wrapped or copied if it was")
    _check(module, query, key, attention_mask, dropout, options)
    causal = getattr(module, "is_causal", True) if is_causal is None \
        else is_causal
    window = None
    if sliding_window is not None:
        window = (int(sliding_window) - 1,
                  0 if causal else int(sliding_window) - 1)
    out = _attend(
        query, key, value, comm=comm, layout="bhsd",
        rows=options.get("ulyx_rows"), causal=bool(causal), window=window,
        documents=options.get("cu_seq_lens_q"), sinks=s_aux, scale=scaling,
        softcap=softcap)
    return out.transpose(1, 2), None


def mask(batch_size: int, q_length: int, kv_length: int,
         attention_mask: Optional[torch.Tensor] = None,
         local_size: Optional[int] = None, use_vmap: bool = False,
         config: Any = None, **options: Any) -> None:
    """Called by AttentionMaskInterface: no mask is made, because attention()
    has causal masks, windows and documents of its own; other masks are
    refused."""
    del batch_size, q_length, options
    if attention_mask is not None and not bool(attention_mask.all()):
        _refuse("an attention_mask with zeros: ulyx.transformers.Collator "
                "turns padding into documents")
    if use_vmap:
        _refuse("a mask function of the model's own")
    window = getattr(config, "sliding_window", None)
    if local_size is not None and local_size != window:
        chunk = getattr(config, "attention_chunk_size", None)
        if chunk is None or kv_length > chunk:
            _refuse("attention within chunks (attention_chunk_size)")


def register() -> None:
    """Adds "ulyx" to the registries; attach() does."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def attach(model: PreTrainedModel, comm: Communicator) -> PreTrainedModel:
    """The model attends over the sequence of the communicator's ranks from now
    on. Returns the model. Not collective; the communicator is the caller's and
    outlives the model's use. Raises UnsupportedError where the model's class
    does not take attention by name."""
    register()
    model.set_attn_implementation(NAME)
    if getattr(model.config, "_attn_implementation", None) != NAME:
        _refuse(f"{type(model).__name__} does not take attention by name")
    sp.bind(model, comm)
    return model


def detach(model: PreTrainedModel, implementation: str = "sdpa") -> None:
    """Takes attach() back; the model attends by `implementation`."""
    sp.unbind(model)
    model.set_attn_implementation(implementation)
