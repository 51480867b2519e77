# SPDX-License-Identifier: Apache-2.0
"""Checks of the calls' arguments. An error names the argument: TypeError for a
wrong type, InvalidArgumentError for a wrong value.

A call with the arguments of an earlier call is not checked again: the checks run
for the first call of a kind, and for a call that fails for another reason.
"""
import operator
from typing import Any, NoReturn, Optional, Sequence, Tuple

import numpy as np
import torch

from ..arrays import Docs
from ..errors import InvalidArgumentError
from ._core import Window


def _kind(given: Any) -> str:
    """A value and its type, as a refusal names them."""
    name = type(given).__name__
    if isinstance(given, (torch.Tensor, dict)) or hasattr(given, "__array__"):
        return f"of type {name}"
    return f"{given!r}, of type {name}"


def _refuse(name: str, given: Any, expected: str) -> NoReturn:
    raise TypeError(f"{name} is {_kind(given)}; expected is {expected}")


def tensor(given: Any, name: str) -> None:
    """Checks that the argument is a tensor of PyTorch."""
    if not isinstance(given, torch.Tensor):
        numpy = hasattr(given, "__array__")
        _refuse(name, given, "a torch.Tensor" + (
            ", which torch.from_numpy() makes of an array" if numpy else ""))


def tensors(names: Optional[Sequence[str]], given: Sequence[Any]) -> None:
    """Checks that all are tensors. Without names, errors have "tensor 0", "tensor
    1" and so on."""
    for i, each in enumerate(given):
        if not isinstance(each, torch.Tensor):
            tensor(each, names[i] if names else f"tensor {i}")


def word(given: Any, name: str) -> None:
    """Checks that the argument is a string."""
    if not isinstance(given, str):
        _refuse(name, given, "a word")


def flag(given: Any, name: str) -> None:
    """Checks that the argument is True or False, or a whole number."""
    if not isinstance(given, (bool, int)) and \
            type(given).__name__ not in ("bool_", "bool"):
        _refuse(name, given, "True or False")


def whole(given: Any, name: str, expected: str = "a whole number") -> int:
    """Returns the argument as a whole number, or a symbol of traced code. A tensor
    is refused, because its value may change."""
    if type(given) is int or isinstance(given, torch.SymInt):
        return given  # type: ignore[return-value]
    if not isinstance(given, torch.Tensor):
        try:
            return operator.index(given)
        except TypeError:
            pass
    _refuse(name, given, expected)


def _whole_or_none(given: Any, name: str, expected: str) -> Optional[int]:
    return None if given is None else whole(given, name, expected)


def number(given: Any, name: str) -> None:
    """Checks that the argument is a number or None. A tensor is refused, because
    its gradient would be lost."""
    if given is None or isinstance(given, (int, float)):
        return
    if isinstance(given, (torch.Tensor, str)) or \
            not hasattr(given, "__float__"):
        _refuse(name, given, "a number, or None")


def numbers(given: Any, name: str, count: int, each: str
            ) -> Optional[Tuple[int, ...]]:
    """Returns `count` whole numbers, or None. each: what each number is, for
    errors."""
    if given is None:
        return None
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        _refuse(name, given, f"{count} whole numbers ({each})")
    if isinstance(given, torch.Tensor):
        given = given.tolist()
    found = tuple(whole(entry, f"{name}[{i}]") for i, entry in enumerate(given))
    if len(found) != count:
        raise InvalidArgumentError(
            f"{name} has {len(found)} entries, not {count} ({each})")
    return found


def window(given: Any) -> Optional[Window]:
    """Returns (keys before, keys after), each a number or None, or None for no
    window."""
    if given is None:
        return None
    expected = ("(keys before, keys after), None for no limit; W keys with the "
                "own one are (W - 1, 0)")
    if isinstance(given, (str, torch.Tensor)) or not hasattr(given, "__iter__"):
        _refuse("window", given, expected)
    sides = tuple(given)
    if len(sides) != 2:
        raise InvalidArgumentError(
            f"window is {given}, not (keys before, keys after)")
    left, right = (_whole_or_none(side, f"window[{i}]",
                                  "a number of keys, or None")
                   for i, side in enumerate(sides))
    for side in (left, right):
        if side is not None and side < 0:
            raise InvalidArgumentError(
                f"window is {given}; a number of keys is not negative, and None "
                "is no limit")
    return left, right


def check_documents(given: Docs, name: str, batch: int, rows: int) -> None:
    """Checks that cumulative lengths cover all tokens of the batch, because a token
    outside of documents would get zeros. Documents that are given by begins and
    lengths may have gaps between them."""
    if given.length is None:
        check_ends(int(given.begin[0]), int(given.begin[-1]), name, batch, rows)


def check_ends(first: int, last: int, name: str, batch: int, rows: int) -> None:
    """Checks the first and the last of the cumulative lengths."""
    if first == 0 and last == batch * rows:
        return
    raise InvalidArgumentError(
        f"{name} begin at {first} and end at {last}; cumulative lengths begin at "
        f"0 and end at {batch * rows}, the number of all tokens ({batch} x {rows} "
        "on all ranks together)")


def documents_of_core(given: Any, batch: int, rows: int) -> None:
    """As check_documents(), for documents as ulysses() passes them to its core.
    Documents on a device are not checked, because the host would wait for
    them."""
    if isinstance(given, torch.Tensor):
        table: Any = given if given.device.type == "cpu" else None
    elif isinstance(given, (list, tuple, np.ndarray)):
        table = np.asarray(given)
    else:
        table = None
    if table is not None and table.ndim == 1 and len(table):
        check_ends(int(table[0]), int(table[-1]), "documents", batch, rows)


def attention(qkv: Sequence[Any], layout: Any, causal: Any, align: Any,
              scale: Any, softcap: Any, order: Any) -> None:
    """Checks the arguments of attention() and ulysses() that need no
    conversion."""
    tensors("qkv", qkv)
    for given, name in ((layout, "layout"), (align, "align"),
                        (order, "order")):
        word(given, name)
    flag(causal, "causal")
    number(scale, "scale")
    number(softcap, "softcap")


def lengths(rows: Any, kv_rows: Any, splits: Any, nranks: int
            ) -> Tuple[Optional[int], Optional[int], Optional[Tuple[int, ...]]]:
    """Returns rows, kv_rows and splits as numbers of Python."""
    expected = "a whole number, or None"
    return (_whole_or_none(rows, "rows", expected),
            _whole_or_none(kv_rows, "kv_rows", expected),
            numbers(splits, "splits", nranks, "the tokens of each rank"))
