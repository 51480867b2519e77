# SPDX-License-Identifier: Apache-2.0
"""Arrays of other packages in the form that the library takes: address, shape,
strides in bytes, element type.

NumPy arrays are taken directly; all others through DLPack (`__dlpack__`), which
this module reads itself, because NumPy has no bfloat16. For the same reason
outputs of that type are arrays of ml_dtypes.bfloat16 if that package is
installed, else of uint16 with the same bits. An input of uint16 is taken for
bfloat16 if the call says so.
"""
import ctypes
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _abi
from .errors import InvalidArgumentError, UnsupportedError

DType = Union[str, int, np.dtype, type]

NAMES: Dict[str, int] = {
    "bytes": _abi.DTYPE_BYTES, "uint8": _abi.DTYPE_BYTES,
    "float64": _abi.DTYPE_F64, "float32": _abi.DTYPE_F32,
    "bfloat16": _abi.DTYPE_BF16, "float16": _abi.DTYPE_F16,
    "float8_e4m3fn": _abi.DTYPE_F8_E4M3, "float8_e5m2": _abi.DTYPE_F8_E5M2,
}
SIZES: Dict[int, int] = {
    _abi.DTYPE_BYTES: 1, _abi.DTYPE_F64: 8, _abi.DTYPE_F32: 4,
    _abi.DTYPE_BF16: 2, _abi.DTYPE_F16: 2, _abi.DTYPE_F8_E4M3: 1,
    _abi.DTYPE_F8_E5M2: 1,
}
_BITS = {1: np.uint8, 2: np.uint16}


def dtype_code(dtype: DType) -> int:
    """Returns the library's number of a type, which may be that number, a name,
    or a numpy type."""
    if isinstance(dtype, int):
        if dtype in SIZES:
            return dtype
    else:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        if name in NAMES:
            return NAMES[name]
    raise UnsupportedError(f"the element type {dtype} is not supported; there "
                           f"are {', '.join(NAMES)}")


def numpy_dtype(code: int) -> np.dtype:
    """Returns the numpy type of outputs that have this type of the library."""
    for name, number in NAMES.items():
        if number == code and name != "bytes":
            try:
                return np.dtype(name)
            except TypeError:
                break
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))  # type: ignore[no-any-return]
    except ImportError:
        return np.dtype(_BITS[SIZES[code]])


class Array(NamedTuple):
    """An array in the form that the library takes. `owner` keeps the memory
    alive."""

    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in bytes
    dtype: int
    writable: bool
    cuda: bool  # whether it lies in memory of a CUDA device
    owner: Any

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        size = SIZES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size

    @property
    def dense(self) -> bool:
        """Whether the elements lie one after another in the order of the
        axes."""
        expected = SIZES[self.dtype]
        if 0 in self.shape:
            return True
        for extent, stride in zip(self.shape[::-1], self.strides[::-1]):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    @property
    def has_rows(self) -> bool:
        """Whether, of [b, s, h, ...], the strides of the first three axes
        describe how the array lies: the elements of a row and head are
        adjacent, and none is repeated."""
        if 0 in self.shape:
            return True
        inner = self._replace(shape=self.shape[3:], strides=self.strides[3:])
        return inner.dense and not any(
            extent > 1 and stride == 0
            for extent, stride in zip(self.shape, self.strides[:3]))

    def lies_by(self, strides: Sequence[int]) -> bool:
        """Whether an array [b, s, h, ...] has these strides of the first three
        axes. Three zeros mean dense."""
        if not any(strides) or 0 in self.shape:
            return self.dense
        return self.has_rows and all(
            extent == 1 or own == wanted for extent, own, wanted in
            zip(self.shape, self.strides, strides))

    def check_rows(self, name: str) -> None:
        """Raises InvalidArgumentError unless has_rows."""
        if not self.has_rows:
            raise InvalidArgumentError(
                f"{name} has the shape {self.shape} and the strides "
                f"{self.strides}: the elements of a row and head are to be "
                "adjacent, and none repeated")


# ---- DLPack -----------------------------------------------------------------
class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_DL_TYPES = {
    (2, 64): _abi.DTYPE_F64, (2, 32): _abi.DTYPE_F32, (2, 16): _abi.DTYPE_F16,
    (4, 16): _abi.DTYPE_BF16, (0, 8): _abi.DTYPE_BYTES,
    (1, 8): _abi.DTYPE_BYTES, (10, 8): _abi.DTYPE_F8_E4M3,
    (12, 8): _abi.DTYPE_F8_E5M2,
}
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _from_dlpack(given: Any) -> Array:
    # The capsule is not consumed: it frees the tensor when it is collected,
    # together with the Array.
    capsule = given.__dlpack__()
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype = _DL_TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise UnsupportedError(
            f"a DLPack tensor of type code {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes is not supported")
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise UnsupportedError(
            f"a DLPack tensor on device type {tensor.device_type} is not "
            "supported; there are CPU and CUDA")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    size = SIZES[dtype]
    if tensor.strides:
        strides = tuple(tensor.strides[i] * size for i in range(tensor.ndim))
    else:
        strides = _dense_strides(shape, size)
    return Array((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype,
                 True, tensor.device_type in (_CUDA, _CUDA_MANAGED),
                 (given, capsule))


def _dense_strides(shape: Tuple[int, ...], size: int) -> Tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


# ---- what the rest of the package calls --------------------------------------
def array(given: Any, name: str, dtype: Optional[int] = None,
          output: bool = False, cuda: bool = False) -> Array:
    """Returns `given` as an Array. dtype: the type that it must have; uint16
    passes for bfloat16. output: it must be writable. cuda: where it must
    lie."""
    if isinstance(given, Array):
        found = given
    elif isinstance(given, np.ndarray):
        code = _numpy_code(given, name, dtype)
        found = Array(given.ctypes.data, given.shape, given.strides, code,
                      given.flags.writeable, False, given)
    elif hasattr(given, "__dlpack__"):
        found = _from_dlpack(given)
    else:
        raise InvalidArgumentError(
            f"{name} is a {type(given).__name__}: neither a numpy array nor "
            "anything with __dlpack__")
    if dtype is not None and found.dtype != dtype:
        raise InvalidArgumentError(
            f"{name} is of type {_name_of(found.dtype)}, not {_name_of(dtype)}")
    if output and not found.writable:
        raise InvalidArgumentError(f"{name} is read-only")
    if found.cuda != cuda:
        places = "on the host", "in memory of a CUDA device"
        raise InvalidArgumentError(
            f"{name} lies {places[found.cuda]}, and the tensors of this "
            f"communicator {places[cuda]}")
    return found


def _numpy_code(given: np.ndarray, name: str, dtype: Optional[int]) -> int:
    kind = given.dtype
    if kind.name == "uint16" and dtype in (_abi.DTYPE_BF16, None):
        return _abi.DTYPE_BF16
    if kind.name in NAMES:
        return NAMES[kind.name]
    raise UnsupportedError(f"{name} is of type {kind}; there are "
                           f"{', '.join(NAMES)}")


def _name_of(code: int) -> str:
    return next(name for name, number in NAMES.items() if number == code)


def dense(given: Any, name: str, dtype: Optional[int] = None,
          output: bool = False, cuda: bool = False) -> Array:
    """As array(), but the elements must lie one after another."""
    found = array(given, name, dtype, output, cuda)
    if not found.dense:
        raise InvalidArgumentError(
            f"{name} is not contiguous: shape {found.shape}, strides "
            f"{found.strides} bytes")
    return found


def like(given: Array, dtype: Optional[int] = None,
         shape: Optional[Tuple[int, ...]] = None) -> np.ndarray:
    """Returns a new array for an output, by default of given's type and
    shape."""
    if given.cuda:
        raise InvalidArgumentError("outputs of CUDA arrays are to be given")
    return np.empty(given.shape if shape is None else shape,
                    numpy_dtype(given.dtype if dtype is None else dtype))


def int64s(values: Any, name: str, count: Optional[int] = None) -> np.ndarray:
    """Returns whole numbers as an int64 array that the library can read."""
    numbers = np.ascontiguousarray(values)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidArgumentError(f"{name} is not a list of whole numbers")
    if count is not None and numbers.size != count:
        raise InvalidArgumentError(
            f"{name} has {numbers.size} entries, not {count}")
    return numbers.astype(np.int64, copy=False)


class Docs:
    """A document table: cumulative lengths (n + 1 numbers: cu_seqlens), or
    begins and lengths of n documents, with gaps between them."""

    def __init__(self, begin: Any, length: Any = None, *,
                 name: str = "documents") -> None:
        self.begin = _indices(begin, name)
        count = self.begin.size
        self.length = None
        if length is None:
            if count == 0:
                raise InvalidArgumentError(
                    f"{name}: cumulative lengths begin with 0")
            count -= 1
        else:
            self.length = int64s(length, f"lengths of {name}", count)
            self.begin = self.begin.astype(np.int64, copy=False)
        self.count = count
        self.struct = _abi.ulyx_docs_t(
            count=count, index_bytes=self.begin.itemsize,
            begin=self.begin.ctypes.data,
            length=None if self.length is None else self.length.ctypes.data)
        self.pointer = ctypes.addressof(self.struct)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Docs) and (
            self is other or (
                np.array_equal(self.begin, other.begin)
                and (self.length is None) == (other.length is None)
                and (self.length is None or other.length is None
                     or np.array_equal(self.length, other.length))))

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def of(given: Any, name: str = "documents") -> Optional["Docs"]:
        """Returns the Docs of None, a Docs, cumulative lengths, or a pair
        (begins, lengths)."""
        if given is None or isinstance(given, Docs):
            return given
        if isinstance(given, tuple) and len(given) == 2 and \
                not isinstance(given[0], (int, np.integer)):
            return Docs(*given, name=name)
        return Docs(given, name=name)


def _indices(values: Any, name: str) -> np.ndarray:
    """Leaves int32 arrays as they are, because the library takes them."""
    if isinstance(values, np.ndarray) and values.dtype == np.int32 and \
            values.ndim == 1:
        return np.ascontiguousarray(values)
    return int64s(values, name)
