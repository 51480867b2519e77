# SPDX-License-Identifier: Apache-2.0
"""The shared library: which one is loaded, whether these bindings were made for
it, and how its functions are called.

ULYX_LIBRARY names another library than the one in this package, for example a
centre's own build. Calls release the GIL. The text of a failure is kept per
thread, so the thread that called reads it at once.
"""
import ctypes
import os
import re
from typing import Any

from . import _abi, errors

_HERE = os.path.dirname(os.path.abspath(__file__))
BUNDLED = os.path.join(_HERE, "lib", "libulyx.so.%d.%d" % _abi.VERSION[:2])


def _load() -> ctypes.CDLL:
    path = os.environ.get("ULYX_LIBRARY") or BUNDLED
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"ulyx: the library {path} cannot be loaded ({error}); "
            "ULYX_LIBRARY names another one") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"ulyx: {path} has no {name}: it is another "
                              "version than these bindings")
        function.restype, function.argtypes = result, arguments
    return library


def _check_version() -> str:
    numbers = [ctypes.c_int32() for _ in range(3)]
    lib.ulyx_get_version(*(ctypes.byref(number) for number in numbers))
    version = tuple(number.value for number in numbers)
    text = ".".join(map(str, version))
    if version[:2] != _abi.VERSION[:2]:
        raise ImportError("ulyx: the library is version %s, these bindings are "
                          "of %d.%d" % (text, *_abi.VERSION[:2]))
    return text


def _check_sizes() -> None:
    """Checks that the library's structs have the sizes of these bindings."""
    size = ctypes.c_size_t()
    for struct in _abi.STRUCTS:
        if struct is _abi.ulyx_unique_id_t:  # these are plain bytes
            continue
        check(lib.ulyx_get_struct_size(struct.__name__.encode(),
                                       ctypes.byref(size)))
        if size.value != ctypes.sizeof(struct):
            raise ImportError(
                f"ulyx: {struct.__name__} has {size.value} bytes in the "
                f"library and {ctypes.sizeof(struct)} in these bindings")


def check(status: int) -> None:
    """Raises the exception of a status that the calling thread has just
    received."""
    if status:
        raise errors.of(status, lib.ulyx_last_error().decode(errors="replace"))


def text_of(function: Any, handle: Any, size: int = 16384) -> str:
    """Returns the text that a function (handle, text_p, text_bytes) writes. A
    text that does not fit ends with the number of bytes left out."""
    text = ctypes.create_string_buffer(size)
    check(function(handle, text, size))
    cut = re.search(rb"\.\.\. \(needs (\d+)\)\Z", text.value)
    if cut:
        text = ctypes.create_string_buffer(int(cut[1]))
        check(function(handle, text, len(text)))
    return text.value.decode(errors="replace")


lib = _load()
version = _check_version()
_check_sizes()
