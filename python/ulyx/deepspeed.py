# SPDX-License-Identifier: Apache-2.0
"""ulyx under DeepSpeed's sequence parallelism (Ulysses, ALST).

    import ulyx.deepspeed
    ulyx.deepspeed.install()

After install() an unchanged recipe, also one with accelerate's `sp_size`, attends
and exchanges by ulyx. Replaced are UlyssesSPAttentionHF.register_with_transformers,
DistributedAttention.forward, and the all-to-all operator's kernel on the CPU.
Results are right also where DeepSpeed's own are silently wrong (sliding windows and
packed samples with sdpa) and where DeepSpeed refuses (a number of heads that is no
multiple of the ranks). The gradients of Trainer's steps with sp_size have the scale
of one process. uninstall() restores what was replaced.
"""
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

import deepspeed.sequence.layer as layer
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.sequence_parallel import ulysses_sp
from torch.utils.weak import WeakIdKeyDictionary
from transformers import trainer
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from . import torch as sp
from .communicator import Communicator
from .errors import InvalidArgumentError, UnsupportedError
from .torch import _device
from .torch._groups import Groups
from .transformers import _attach
from .transformers._collator import packing

__all__ = ["DistributedAttention", "install", "uninstall"]

_groups = Groups()
_LOSS = "deepspeed_sp_compute_loss"  # imported by transformers.trainer
_saved: Dict[str, Any] = {}
# Masks that were made for a core and that contain only what the arguments of
# the attention also give: causality, a window, documents.
_redundant: Any = WeakIdKeyDictionary()


def communicator(group: Any) -> Communicator:
    """Returns the communicator of a process group. It has device memory if
    DeepSpeed runs on CUDA."""
    accelerator = get_accelerator()
    return _groups(group, int(accelerator.current_device())
                   if accelerator.device_name() == "cuda" else None)


# ---- transformers -----------------------------------------------------------

class _Positions:
    """The documents of a step's position_ids. They are gathered once, because
    all layers are given the same tensor."""

    def __init__(self, comm: Communicator):
        self.comm = comm
        self.last: Optional["weakref.ref[torch.Tensor]"] = None
        self.documents: Optional[torch.Tensor] = None

    def documents_of(self, local: torch.Tensor) -> Optional[torch.Tensor]:
        if self.last is None or self.last() is not local:
            items = local.shape[0]
            mine = local.detach().to(torch.int64).contiguous().view(-1)
            whole = mine.new_empty((self.comm.nranks, len(mine)))
            self.comm.allgather(mine.view(torch.uint8), whole.view(torch.uint8),
                                stream=_device.stream_of(self.comm))
            parts = whole.cpu().reshape(self.comm.nranks, items, -1)
            self.documents = packing(
                parts.transpose(0, 1).reshape(items, -1), items)
            self.last = weakref.ref(local)
        return self.documents


def _attention_of(comm: Communicator, core: Callable[..., Any],
                  disable_in_eval: bool, only_bound: bool
                  ) -> Callable[..., Any]:
    """Returns the replacement of a core attention. only_bound: the recipe was
    given a model instead of a model's name, so modules of other models keep the
    core."""
    positions = _Positions(comm)

    def attention(module: torch.nn.Module, query: torch.Tensor,
                  key: torch.Tensor, value: torch.Tensor,
                  attention_mask: Optional[torch.Tensor], *args: Any,
                  **options: Any) -> Any:
        bound = sp.bound(module)
        if (bound is None and only_bound) or \
                (disable_in_eval and not module.training):
            return core(module, query, key, value, attention_mask, *args,
                        **options)
        if attention_mask is not None and attention_mask in _redundant:
            attention_mask = None
        local = options.pop("position_ids", None)
        if local is not None and options.get("cu_seq_lens_q") is None:
            options["cu_seq_lens_q"] = positions.documents_of(
                local.expand(query.shape[0], -1))
        if bound is None:
            sp.bind(module, comm)
        return _attach.attention(module, query, key, value, attention_mask,
                                 *args, **options)
    return attention


def _mask_of(mask: Callable[..., Any], disable_in_eval: bool
             ) -> Callable[..., Any]:
    def made(*args: Any, **options: Any) -> Any:
        if not disable_in_eval:
            return _attach.mask(*args, **options)
        # Later, the module's mode decides whether the core or ulyx is called.
        found = mask(*args, **options)
        if found is not None:
            try:
                _attach.mask(*args, **options)
                _redundant[found] = True
            except UnsupportedError:
                pass  # the attention refuses the mask, but in training only
        return found
    return made


def _register(cls: Any, model_name_or_path: Any, core_attn_implementation: str,
              sequence_parallel_size: int, micro_batch_size: int,
              seq_length: Optional[int] = None,
              seq_length_is_variable: bool = True,
              disable_in_eval: bool = False,
              max_length: Optional[int] = None) -> Any:
    """Replaces register_with_transformers(): takes the same arguments, uses the
    same groups, and registers ulyx under the name of the core. Lengths may
    always vary."""
    del cls, micro_batch_size, seq_length, seq_length_is_variable, max_length
    if sequence_parallel_size == 1:
        return None
    if core_attn_implementation not in ALL_ATTENTION_FUNCTIONS:
        raise InvalidArgumentError(
            f"core_attn_implementation is {core_attn_implementation!r}; there "
            f"are {', '.join(ALL_ATTENTION_FUNCTIONS.valid_keys())}")
    import deepspeed.runtime.sequence_parallel.parallel_state_sp as mpu
    mpu.initialize_sequence_parallel(
        sequence_parallel_size=sequence_parallel_size)
    comm = communicator(mpu.get_sequence_parallel_group())
    is_model = isinstance(model_name_or_path, torch.nn.Module)
    if is_model:
        used = getattr(model_name_or_path.config, "_attn_implementation", None)
        if used not in (None, core_attn_implementation):
            raise InvalidArgumentError(
                f"core_attn_implementation is {core_attn_implementation!r}, "
                f"and the model's is {used!r}")
        sp.bind(model_name_or_path, comm)
    core = ALL_ATTENTION_FUNCTIONS[core_attn_implementation]
    ALL_ATTENTION_FUNCTIONS[core_attn_implementation] = _attention_of(
        comm, core, disable_in_eval, is_model)
    mask = ALL_MASK_ATTENTION_FUNCTIONS[core_attn_implementation]
    ALL_MASK_ATTENTION_FUNCTIONS[core_attn_implementation] = _mask_of(
        mask, disable_in_eval)
    _saved.setdefault(f"core {core_attn_implementation}", (core, mask))
    return mpu


# ---- the scale of Trainer's gradients ----------------------------------------

def _averages(engine: Any) -> bool:
    """Returns whether DeepSpeed divides the sum of all ranks' gradients by the
    number of ranks. With a sequence_parallel_size P the divisor is smaller by a
    factor of P, except where ZeRO-3 scatters what it reduces, as it does by
    default."""
    return bool(engine.zero_optimization_stage() == 3 and
                engine.zero_reduce_scatter())


def _loss_of(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces Trainer's loss of a sequence. The loss is gathered from the P
    ranks, and each of them runs backward from all of it, so each rank has P
    times its share of the gradients. Where DeepSpeed does not remove this
    factor, this function does; the value of the loss stays the same."""
    def computed(accelerator: Any, model: Any, inputs: Any,
                 return_outputs: bool, pc: Any) -> Any:
        found = compute(accelerator, model, inputs, return_outputs, pc)
        loss, *outputs = found if return_outputs else (found,)
        if not _averages(accelerator.deepspeed_engine_wrapped.engine):
            value = loss.detach()
            loss = value + (loss - value) / pc.sp_size
        return (loss, *outputs) if return_outputs else loss
    return computed


# ---- DistributedAttention, the exchange alone -------------------------------

def _forward(self: Any, query: torch.Tensor, key: torch.Tensor,
             value: torch.Tensor, batch_dim_idx: int,
             rotary_pos_emb: Optional[Tuple[torch.Tensor, ...]] = None,
             *args: Any, **options: Any) -> torch.Tensor:
    """Replaces DistributedAttention.forward(): exchanges q, k and v at once.
    Tensors are [b, s, h, d] with batch_dim_idx 0, and [s, b, h, d] with 1."""
    comm = communicator(self.spg)
    layout = "sbhd" if batch_dim_idx == 1 else "bshd"
    heads = [int(tensor.shape[2]) for tensor in (query, key, value)]
    query, key, value = sp.reshuffle(query, key, value, comm=comm,
                                     layout=layout)
    if rotary_pos_emb is not None:
        cos, sin = (part.permute(1, 0, 2, 3) for part in rotary_pos_emb[:2])
        query = layer.apply_rotary_pos_emb(query, cos, sin)
        key = layer.apply_rotary_pos_emb(key, cos, sin)
    context = self.local_attn(query, key, value, *args, **options)
    context, = sp.reshuffle(context, direction="head_to_seq", comm=comm,
                            layout=layout, heads=heads[:1])
    return context


class DistributedAttention(layer.DistributedAttention):  # type: ignore[misc]
    """deepspeed.sequence.layer.DistributedAttention, which exchanges by
    ulyx."""

    forward = _forward


def _all_to_all(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    """The kernel that replaces deepspeed::dim_zero_all_to_all."""
    comm = communicator(layer._all_to_all_groups[group_name])
    source = tensor.contiguous()
    result = torch.empty_like(source)
    comm.alltoall(source.view(torch.uint8).detach(),
                  result.view(torch.uint8).detach())
    return result


# ---- on and off -------------------------------------------------------------

def install(scale: bool = True) -> None:
    """Makes DeepSpeed's sequence parallelism go by ulyx in this process, from
    its next call on. Not collective, but every rank calls it, before the
    recipe. A second call does nothing.

    scale: with accelerate's sp_size, the gradients of transformers' Trainer
    become those of one process; with ZeRO-1 and 2 DeepSpeed's own gradients are
    sp_size times as large. False leaves DeepSpeed's scale, for runs whose
    learning rate or clipping was chosen for it."""
    if "register" in _saved:
        return
    if scale:
        _saved["loss"] = getattr(trainer, _LOSS, None)
        if _saved["loss"] is not None:  # only versions with sp_size have it
            setattr(trainer, _LOSS, _loss_of(_saved["loss"]))
    head = ulysses_sp.UlyssesSPAttentionHF
    _saved["register"] = head.__dict__["register_with_transformers"]
    head.register_with_transformers = classmethod(_register)
    _saved["forward"] = layer.DistributedAttention.forward
    layer.DistributedAttention.forward = _forward
    if "kernel" not in _saved:
        layer._dim_zero_all_to_all_op.register_kernel("cpu")(_dispatched)
        _saved["kernel"] = layer.dist.all_to_all_single


def _own_all_to_all(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    """What DeepSpeed's own kernel does."""
    result = torch.empty_like(tensor)
    layer.dist.all_to_all_single(
        result, tensor, group=layer._all_to_all_groups[group_name])
    return result


def _dispatched(tensor: torch.Tensor, group_name: str) -> torch.Tensor:
    """The kernel that install() registers. It cannot be unregistered, so after
    uninstall() it does what DeepSpeed's own kernel does."""
    kernel = _all_to_all if "register" in _saved else _own_all_to_all
    return kernel(tensor, group_name)


def uninstall() -> None:
    """Undoes install() and what the recipe has registered since, and closes
    the communicators. No call may be under way."""
    if "register" not in _saved:
        return
    head = ulysses_sp.UlyssesSPAttentionHF
    head.register_with_transformers = _saved.pop("register")
    layer.DistributedAttention.forward = _saved.pop("forward")
    loss = _saved.pop("loss", None)
    if loss is not None:
        setattr(trainer, _LOSS, loss)
    for name in [name for name in _saved if name.startswith("core ")]:
        core, mask = _saved.pop(name)
        ALL_ATTENTION_FUNCTIONS[name[len("core "):]] = core
        ALL_MASK_ATTENTION_FUNCTIONS[name[len("core "):]] = mask
    _groups.close()
