# SPDX-License-Identifier: Apache-2.0
"""What torch_peer.py needs of torch, without a device. Every call takes 1 us,
and cuDNN takes no heads of 256, so the bench can be run under the emulator."""
import types

__version__ = "0.stub"
bfloat16 = "bfloat16"
int32 = "int32"
calls = 0
grad_enabled = True


class Tensor:
    def __init__(self, shape, requires_grad=False):
        self.shape = shape
        self.requires_grad = requires_grad

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return Tensor(tuple(shape), self.requires_grad)

    def flatten(self, a, b):
        assert (a, b) == (0, 1)
        return Tensor((self.shape[0] * self.shape[1], *self.shape[2:]),
                      self.requires_grad)


def randn(*shape, device, dtype, requires_grad):
    assert device == "cuda" and dtype == bfloat16
    return Tensor(shape, requires_grad)


def randn_like(tensor):
    return Tensor(tensor.shape)


def arange(begin, end, step, device, dtype):
    assert device == "cuda" and dtype == int32
    return Tensor((len(range(begin, end, step)),))


def set_grad_enabled(on):
    global grad_enabled
    grad_enabled = on


def attend(q, k, v, causal, head):
    """Returns an output of the call; head: the dimension of the heads."""
    global calls
    assert isinstance(causal, bool)
    assert k.shape[:-1] == v.shape[:-1] and q.shape[-1] == k.shape[-1]
    assert q.shape[head] % k.shape[head] == 0
    calls += 1
    return Tensor((*q.shape[:-1], v.shape[-1]),
                  q.requires_grad and grad_enabled)


def _flash(q, k, v, dropout, causal, mask):
    if q.shape[-1] != v.shape[-1]:
        raise RuntimeError("head dimensions differ")
    assert dropout == 0.0 and not mask
    return attend(q, k, v, causal, 1), None


def _packed(q, k, v, begins_q, begins_k, longest_q, longest_k, dropout,
            causal, mask):
    assert len(q.shape) == 3 and begins_q is begins_k
    assert longest_q == longest_k and dropout == 0.0 and not mask
    assert (begins_q.shape[0] - 1) * longest_q == q.shape[0]
    return attend(q, k, v, causal, 1), None


def _cudnn(q, k, v, bias, lse, dropout, causal, mask):
    if q.shape[3] == 256:
        raise RuntimeError("no such head dimension")
    assert bias is None and lse is True and dropout == 0.0 and not mask
    return attend(q, k, v, causal, 1), None


def _grad(out, tensors, dout, retain_graph):
    global calls
    assert out.requires_grad and dout.shape == out.shape and retain_graph
    assert all(t.requires_grad for t in tensors)
    calls += 1


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = calls

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e-3


cuda = types.SimpleNamespace(
    is_available=lambda: True, synchronize=lambda: None, Event=Event)
autograd = types.SimpleNamespace(grad=_grad)
backends = types.SimpleNamespace(
    cudnn=types.SimpleNamespace(version=lambda: 0))
ops = types.SimpleNamespace(aten=types.SimpleNamespace(
    _flash_attention_forward=_packed,
    _scaled_dot_product_flash_attention=_flash,
    _scaled_dot_product_cudnn_attention=_cudnn))
