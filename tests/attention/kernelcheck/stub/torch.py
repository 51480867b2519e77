# SPDX-License-Identifier: Apache-2.0
"""What torch_peer.py needs of torch, without a device: every call takes 1 us,
cuDNN has no heads of 256, so that the bench can be run under the emulator."""
import types

__version__ = "0.stub"
bfloat16 = "bfloat16"
calls = 0


class Tensor:
    def __init__(self, shape):
        self.shape = shape

    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return Tensor(tuple(shape))


def randn(*shape, device, dtype):
    assert device == "cuda" and dtype == bfloat16
    return Tensor(shape)


def set_grad_enabled(on):
    assert not on


def _flash(q, k, v, dropout, causal, mask):
    global calls
    assert q.shape == k.shape == v.shape and dropout == 0.0 and not mask
    assert isinstance(causal, bool)
    calls += 1


def _cudnn(q, k, v, bias, lse, dropout, causal, mask):
    if q.shape[3] == 256:
        raise RuntimeError("no such head dimension")
    assert bias is None and lse is True
    _flash(q, k, v, dropout, causal, mask)


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
backends = types.SimpleNamespace(
    cudnn=types.SimpleNamespace(version=lambda: 0))
ops = types.SimpleNamespace(aten=types.SimpleNamespace(
    _scaled_dot_product_flash_attention=_flash,
    _scaled_dot_product_cudnn_attention=_cudnn))
