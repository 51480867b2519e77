# SPDX-License-Identifier: Apache-2.0
"""Whole tensors on every rank as functions of autograd, so that a test is one
function of whole tensors. If each rank ran gradcheck on its own rows, the
perturbations of the ranks would mix; here all ranks perturb the same element at
the same time."""
import torch
import torch.nn.functional as F

import ulyx
import ulyx.torch as sp


def positions(comm, rows, order="contiguous", splits=None):
    """Returns which of the rows this rank has."""
    plan = ulyx.Plan(comm, [ulyx.Tensor(1, 1, "float32")],
                     [ulyx.Part(rows, order=order, splits=splits)])
    return torch.from_numpy(plan.positions())


def summed(comm, tensor):
    return torch.from_numpy(comm.allreduce(tensor.detach().contiguous()))


class Shard(torch.autograd.Function):
    """This rank's rows of a whole tensor, which is equal on all ranks."""

    @staticmethod
    def forward(ctx, whole, comm, mine):
        ctx.comm, ctx.mine, ctx.shape = comm, mine, whole.shape
        return whole[:, mine]

    @staticmethod
    def backward(ctx, grad):
        whole = grad.new_zeros(ctx.shape)
        whole[:, ctx.mine] = grad
        return summed(ctx.comm, whole), None, None


class Gather(torch.autograd.Function):
    """The whole tensor, made on each rank from the rows of all ranks."""

    @staticmethod
    def forward(ctx, local, comm, mine, rows):
        ctx.mine = mine
        whole = local.new_zeros((local.shape[0], rows, *local.shape[2:]))
        whole[:, mine] = local
        return summed(comm, whole)

    @staticmethod
    def backward(ctx, grad):
        return grad[:, ctx.mine], None, None, None


class Replicated(torch.autograd.Function):
    """A parameter of which every rank has a copy and a share of the
    gradient."""

    @staticmethod
    def forward(ctx, whole, comm):
        ctx.comm = comm
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx, grad):
        return summed(ctx.comm, grad), None


def visible(batch, rows, causal, window, documents):
    """Returns [b, 1, S, S]: to which keys a query attends, written out."""
    seen = torch.zeros(batch, 1, rows, rows, dtype=torch.bool)
    left, right = window or (rows, rows)
    left = rows if left is None else left
    right = 0 if causal else rows if right is None else right
    ends = [] if documents is None else [int(end) for end in documents]
    for item in range(batch):
        for i in range(rows):
            for j in range(max(0, i - left), min(rows, i + right + 1)):
                at = [item * rows + i, item * rows + j]
                number = [sum(end <= a for end in ends) for a in at]
                inside = documents is None or 0 < number[0] < len(ends)
                seen[item, 0, i, j] = number[0] == number[1] and inside
    return seen


def plain(q, k, v, causal=False, window=None, documents=None, sinks=None,
          slopes=None, scale=None, softcap=None):
    """Attention on whole [b, s, h, d] tensors, by matrix products alone."""
    group = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, 2) for t in (k, v))
    score = torch.einsum("bihd,bjhd->bhij", q, k) * (scale or q.shape[3] ** -0.5)
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    rows = torch.arange(q.shape[1], dtype=q.dtype)
    if slopes is not None:
        score = score - slopes[None, :, None, None] * \
            (rows[:, None] - rows[None]).abs()
    seen = visible(q.shape[0], q.shape[1], causal, window, documents)
    score = score.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        column = sinks[None, :, None, None].expand(*score.shape[:3], 1)
        score = torch.cat([score, column.to(score.dtype)], -1)
        weight = F.softmax(score, -1)[..., :-1]
    else:
        weight = F.softmax(score, -1).masked_fill(
            ~seen.any(-1, keepdim=True), 0.0)
    return torch.einsum("bhij,bjhd->bihd", weight, v)


def relative(found, wanted):
    """Returns the relative L2 distance of two tensors of any dtype."""
    found, wanted = found.double(), wanted.double()
    scale = wanted.norm()
    return float((found - wanted).norm() / (scale if scale else 1))


# The orders in which frameworks store [b, s, h, d] tensors.
ORDERS = {
    "bshd": lambda t: t.contiguous(),
    "bhsd": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "sbhd": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "padded": lambda t: F.pad(t, (0, 8))[..., :t.shape[3]],
    "fused": lambda t: torch.cat([t, t, t], 2)[:, :, t.shape[2]:2 * t.shape[2]],
    "repeated": lambda t: t[:1].expand(t.shape) if t.shape[0] == 1 else t,
    "scattered": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
}


def run_layer(comm, q, k, v, dout, *, order="contiguous", lie="bshd",
              call=sp.attention, sinks=None, splits=None, **options):
    """Returns (positions, out, dq, dk, dv, d_sinks) of this rank, computed from
    whole tensors."""
    rows = q.shape[1]
    mine = positions(comm, rows, order, splits)
    local = [ORDERS[lie](t[:, mine]).detach().requires_grad_()
             for t in (q, k, v)]
    if sinks is not None:
        options["sinks"] = sinks = sinks.clone().requires_grad_()
    out = call(*local, comm=comm, rows=rows, order=order, splits=splits,
               **options)
    inputs = [*local, *([] if sinks is None else [sinks])]
    grads = torch.autograd.grad(out, inputs, dout[:, mine])
    return mine, (out.detach(), *grads)
