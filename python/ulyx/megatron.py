# SPDX-License-Identifier: Apache-2.0
"""ulyx for Megatron-LM: context parallelism by Ulysses, without Transformer Engine.

    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    import ulyx.megatron

    spec = ulyx.megatron.spec(get_gpt_layer_local_spec())
    model = GPTModel(config, spec, ...)       # config.context_parallel_size = P

Every rank of a context parallel group has the tokens that Megatron gives it: two
chunks of the sequence, one from either end (get_batch_on_this_cp_rank). The
attention over the tokens of all ranks is this package's. The number of heads need
not be a multiple of the ranks. The names of Megatron's settings have changed from
version to version, so before the first layer of a kind is made, self_check()
compares Megatron's own attention with this package's on numbers.

Causal masks, windows, GQA, softmax_scale, attention sinks (softmax_type) and
packed sequences ("thd") are supported; dropout, other masks and biases are
refused by name.
Megatron makes rotary embeddings on a GPU; for models on the CPU there is
rotary_on_the_host().
"""
import contextlib
import copy
import dataclasses
import inspect
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from megatron.core import parallel_state
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule

from . import torch as sp
from .communicator import Communicator
from .errors import InternalError, InvalidArgumentError, UnsupportedError
from .torch._groups import Groups

__all__ = ["CoreAttention", "RotaryOnTheHost", "close", "rotary_on_the_host",
           "self_check", "spec"]

_communicator = Groups()
_checked: Set[Tuple[Any, ...]] = set()
_CAUSAL = ("causal", "padding_causal", "causal_bottom_right")
# Arguments of constructors and calls that some version has, and that change
# nothing here.
_IDLE = ("cp_comm_type", "k_channels", "v_channels", "num_splits")


def _refuse(what: str) -> None:
    raise UnsupportedError(f"ulyx.megatron: {what}")


def _known(given: Dict[str, Any], where: str) -> None:
    for name, value in given.items():
        if value is not None and name not in _IDLE:
            _refuse(f"the argument {name} of {where}")


def _group(pg_collection: Any) -> Any:
    """Returns the context parallel group: of the collection if there is one,
    else, as in versions without, of Megatron's global state."""
    found = getattr(pg_collection, "cp", None)
    if found is None:
        found = parallel_state.get_context_parallel_group()
    return found


def _window(config: Any, layer_number: int) -> Optional[Tuple[int, int]]:
    """Returns (keys before, keys after) of a layer, or None if it has no
    window."""
    window = getattr(config, "window_size", None)
    if window is None:
        return None
    try:
        from megatron.core.transformer.utils import is_layer_window_attention
    except ImportError:  # in these versions every layer has the window
        return tuple(window)  # type: ignore[return-value]
    if not is_layer_window_attention(
            window, getattr(config, "window_attn_skip_freq", None),
            layer_number):
        return None
    return tuple(window)  # type: ignore[return-value]


class CoreAttention(MegatronModule):  # type: ignore[misc]
    """The replacement of core_attention in a layer's spec. Creation is
    collective over the context parallel group, as Megatron creates layers.

    config, layer_number, attn_mask_type, attention_type, attention_dropout,
    softmax_scale, pg_collection: as Megatron's own. Raises UnsupportedError for
    unsupported settings that would change the result, InternalError where
    self_check() finds that Megatron computes something else.
    """

    def __init__(self, config: Any, layer_number: int, attn_mask_type: Any,
                 attention_type: str, attention_dropout: Optional[float] = None,
                 softmax_scale: Optional[float] = None,
                 pg_collection: Any = None, **others: Any) -> None:
        super().__init__(config=config)
        _known(others, "core_attention")
        if attention_type != "self":
            _refuse(f"attention of type {attention_type!r}")
        dropout = config.attention_dropout if attention_dropout is None \
            else attention_dropout
        if dropout:
            _refuse(f"a dropout of {dropout}; set attention_dropout to 0")
        if getattr(config, "qk_clip", False):
            _refuse("qk_clip, which needs the largest logits")
        self.config, self.layer_number = config, max(1, layer_number)
        self.attn_mask_type, self.scale = attn_mask_type, softmax_scale
        self.window = _window(config, self.layer_number)
        self._make_sinks(pg_collection)
        self.comm = self._meet(pg_collection)

    def _meet(self, pg_collection: Any) -> Communicator:
        self_check(self.config, self.layer_number, self.attn_mask_type,
                   self.scale)
        return _communicator(_group(pg_collection))

    def _make_sinks(self, pg_collection: Any) -> None:
        kind = getattr(self.config, "softmax_type", "vanilla")
        tp = getattr(pg_collection, "tp", None)
        heads = self.config.num_attention_heads // (tp.size() if tp else 1)
        if kind == "vanilla":
            self.softmax_offset: Any = None
        elif kind == "off-by-one":
            self.register_buffer("softmax_offset", torch.zeros(heads),
                                 persistent=False)
        elif kind == "learnable":
            self.softmax_offset = torch.nn.Parameter(torch.empty(
                heads, dtype=self.config.params_dtype))
            if getattr(self.config, "perform_initialization", True):
                self.config.init_method(self.softmax_offset)
        else:
            _refuse(f"softmax_type {kind!r}")

    def forward(self, query: torch.Tensor, key: torch.Tensor,
                value: torch.Tensor, attention_mask: Optional[torch.Tensor],
                attn_mask_type: Any = None, attention_bias: Any = None,
                packed_seq_params: Any = None, **others: Any) -> torch.Tensor:
        """[s, b, heads, dim] to [s, b, heads * dim]; packed, [t, heads, dim] to
        [t, heads * dim]. The tensor attention_mask is not read, only the type
        of the mask, as in Transformer Engine for causal masks."""
        _known({**others, "attention_bias": attention_bias}, "attention")
        kind = attn_mask_type or self.attn_mask_type
        causal = kind is not None and kind.name in _CAUSAL
        if not causal and (kind is None or kind.name != "no_mask"):
            _refuse(f"a mask of type {getattr(kind, 'name', kind)!r}")
        options: Dict[str, Any] = dict(
            comm=self.comm, causal=causal and self.window is None,
            window=self._visible(causal), sinks=self.softmax_offset,
            scale=self.scale)
        if packed_seq_params is not None:
            return self._packed(query, key, value, packed_seq_params, options)
        self._check_chunks(query.shape[0])
        out = sp.attention(query, key, value, layout="sbhd", order="zigzag",
                           **options)
        return out.reshape(*out.shape[:2], -1)

    def _visible(self, causal: bool) -> Optional[Tuple[Optional[int],
                                                       Optional[int]]]:
        if self.window is None:
            return None
        left, right = (None if count < 0 else count for count in self.window)
        return left, 0 if causal else right

    def _check_chunks(self, rows: int) -> None:
        if self.comm.nranks > 1 and rows % 2:
            raise InvalidArgumentError(
                f"ulyx.megatron: {rows} tokens on a rank, and Megatron gives "
                "two chunks of as many each")

    def _packed(self, query: torch.Tensor, key: torch.Tensor,
                value: torch.Tensor, packed: Any, options: Dict[str, Any]
                ) -> torch.Tensor:
        if packed.qkv_format != "thd":
            _refuse(f"packed sequences in the format {packed.qkv_format!r}")
        ends = getattr(packed, "cu_seqlens_q_padded", None)
        ends = packed.cu_seqlens_q if ends is None else ends
        if self.comm.nranks > 1:
            lengths = ends.diff()
            if bool((lengths % (2 * self.comm.nranks)).any()):
                raise InvalidArgumentError(
                    f"ulyx.megatron: sequences of {lengths.tolist()} tokens, "
                    f"which {2 * self.comm.nranks} chunks do not divide: pad "
                    "them (cu_seqlens_q_padded)")
            options["order"] = "zigzag_docs"
        out = sp.attention(*(tensor.unsqueeze(0) for tensor in
                             (query, key, value)), documents=ends,
                           rows=int(ends[-1]), **options)
        return out.squeeze(0).flatten(1)


# ---- rotary embeddings -------------------------------------------------------

class RotaryOnTheHost(torch.nn.Module):
    """The replacement of a model's RotaryEmbedding. It gives the same angles
    for the same tokens, but on the CPU; Megatron's own needs a GPU."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.given = given

    def get_rotary_seq_len(self, *arguments: Any, **options: Any) -> int:
        """As Megatron's own: the tokens of all ranks together."""
        return int(self.given.get_rotary_seq_len(*arguments, **options))

    def forward(self, max_seq_len: int, offset: int = 0,
                packed_seq: bool = False, cp_group: Any = None) -> torch.Tensor:
        """Returns the angles [s, 1, 1, dim] for this rank's two chunks of
        max_seq_len tokens. Where sequences are packed, returns them for all
        tokens, because Megatron cuts each packed sequence into chunks later."""
        angles = self.given.get_freqs_non_repeated(max_seq_len, offset)
        angles = angles.repeat_interleave(2, -1) \
            if self.given.rotary_interleaved else torch.cat([angles] * 2, -1)
        group = self.given.cp_group if cp_group is None else cp_group
        if group is not None and group.size() > 1 and not packed_seq:
            chunks, rank = angles.chunk(2 * group.size()), group.rank()
            angles = torch.cat([chunks[rank], chunks[-1 - rank]])
        return angles[:, None, None]


def rotary_on_the_host(model: Any) -> Any:
    """Lets a GPTModel with position_embedding_type "rope" run on the CPU, and
    returns the model. A model without rotary embeddings is left unchanged.
    Local. Raises UnsupportedError for other rotary embeddings ("yarn",
    "mrope")."""
    kind = getattr(model, "position_embedding_type", None)
    given = getattr(model, "rotary_pos_emb", None)
    if given is None or isinstance(given, RotaryOnTheHost):
        return model
    if kind != "rope":
        _refuse(f"position_embedding_type {kind!r} on the CPU; there is 'rope'")
    model.rotary_pos_emb = RotaryOnTheHost(given)
    return model


# ---- the numeric self-check --------------------------------------------------

class _Alone:
    """A group of one rank, with the methods of groups that Megatron calls."""

    def size(self) -> int:
        return 1

    def rank(self) -> int:
        return 0


class _OneRank(CoreAttention):
    """A layer on one rank, for self_check()."""

    def _meet(self, pg_collection: Any) -> Communicator:
        return Communicator.local(1)[0]


def self_check(config: Any, layer_number: int = 1, attn_mask_type: Any = None,
               softmax_scale: Optional[float] = None) -> None:
    """Compares the attention of one rank with Megatron's own, forward and
    backward, on small random tensors with the config's heads. Does so once in a
    process for each kind of layer, and only for the mask types causal and
    no_mask. Local. Raises InternalError where the results differ."""
    if attn_mask_type is None:
        attn_mask_type = AttnMaskType.causal
    heads, groups = config.num_attention_heads, config.num_query_groups or \
        config.num_attention_heads
    kind = (heads, groups, config.kv_channels, softmax_scale, attn_mask_type,
            _window(config, layer_number),
            getattr(config, "softmax_type", "vanilla"))
    if kind in _checked or attn_mask_type.name not in ("causal", "no_mask"):
        return
    config = copy.copy(config)
    config.context_parallel_size = config.tensor_model_parallel_size = 1
    config.masked_softmax_fusion = False  # because it needs a GPU
    config.sequence_parallel = True  # otherwise a dropout of 0 draws numbers on a GPU
    config.fp16 = config.bf16 = False
    config.params_dtype, config.attention_softmax_in_fp32 = torch.float32, True
    groups_of_one = type("Collection", (), {"tp": _Alone(), "cp": _Alone()})()
    arguments = (config, layer_number, attn_mask_type, "self")
    options = {"softmax_scale": softmax_scale, "pg_collection": groups_of_one}
    taken = inspect.signature(DotProductAttention.__init__).parameters
    # the model's random numbers must not change
    with torch.random.fork_rng(devices=[]):
        with _OnTheHost():
            theirs = DotProductAttention(*arguments, **{
                name: value for name, value in options.items()
                if name in taken})
        ours = _OneRank(*arguments, **options)
    if isinstance(ours.softmax_offset, torch.nn.Parameter):
        ours.softmax_offset = theirs.softmax_offset = torch.nn.Parameter(
            torch.linspace(-1, 1, heads))
    difference = _difference(theirs, ours, (heads, groups, groups),
                             config.kv_channels, attn_mask_type)
    ours.comm.close()
    if not difference < 1e-4:
        raise InternalError(
            f"ulyx.megatron: Megatron's own attention differs by {difference:.1e} "
            f"(relative) for {heads} heads in {groups} groups, mask "
            f"{attn_mask_type.name}, window {kind[5]}: another version than "
            "this package knows")
    _checked.add(kind)


class _HostBuffer:
    """Replaces Megatron's buffer for scores."""

    def get_tensor(self, shape: Any, dtype: torch.dtype, *_: Any
                   ) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)


class _OnTheHost(torch.overrides.TorchFunctionMode):
    """Within this context, what Megatron's own attention puts on a GPU lies on
    the host: scores, masks of windows, sinks."""

    def __enter__(self) -> Any:
        self.kept = (torch.cuda.current_device,
                     parallel_state.get_global_memory_buffer)
        host: Any = torch.device("cpu")
        torch.cuda.current_device = lambda: host
        parallel_state.get_global_memory_buffer = _HostBuffer
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        (torch.cuda.current_device,
         parallel_state.get_global_memory_buffer) = self.kept
        return super().__exit__(*error)

    def __torch_function__(self, function: Any, types: Any,
                           arguments: Any = (), options: Any = None) -> Any:
        options = dict(options or {})
        if options.get("device") is not None:
            options["device"] = torch.device("cpu")
        return function(*arguments, **options)


def _difference(theirs: Any, ours: Any, heads: Tuple[int, int, int], dim: int,
                attn_mask_type: Any) -> float:
    """Returns the largest relative difference of results and gradients."""
    rows = 12
    numbers = torch.Generator().manual_seed(1)
    tensors = [torch.randn(rows, 2, count, dim, generator=numbers)
               for count in heads]
    mask = torch.ones(rows, rows, dtype=torch.bool).triu(1)[None, None] \
        if attn_mask_type is AttnMaskType.causal else None
    found: List[List[torch.Tensor]] = []
    if theirs.scale_mask_softmax.window_size is not None:
        mask = None  # Megatron makes its own mask only if none is given
    for layer, given in ((theirs, mask), (ours, None)):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        with _OnTheHost() if layer is theirs else contextlib.nullcontext():
            out = layer(*leaves, given, attn_mask_type=attn_mask_type)
        found.append([out.detach(), *torch.autograd.grad(
            out.sin().sum(), leaves)])
    return max(float((a - b).norm() / a.norm()) for a, b in zip(*found))


# ---- specs -------------------------------------------------------------------

def spec(given: Any) -> Any:
    """Returns a copy of the ModuleSpec of one or several layers, in which every
    core_attention is CoreAttention. Raises InvalidArgumentError if the spec has
    no core_attention."""
    made = copy.deepcopy(given)
    if not _replace(made):
        raise InvalidArgumentError(
            "ulyx.megatron.spec: no core_attention in what was given")
    return made


def _replace(node: Any) -> int:
    """Replaces core attentions in the fields of specs and submodules. Returns
    how many were replaced."""
    if isinstance(node, (list, tuple)):
        return sum(_replace(part) for part in node)
    if not dataclasses.is_dataclass(node) or isinstance(node, type):
        return 0
    count = 0
    for field in dataclasses.fields(node):
        value = getattr(node, field.name, None)
        if field.name == "core_attention" and value is not None:
            setattr(node, field.name, CoreAttention)
            count += 1
        else:
            count += _replace(value)
    return count


def close() -> None:
    """Closes the communicators of all layers. No call may be under way, and the
    layers must not be used afterwards."""
    _communicator.close()
