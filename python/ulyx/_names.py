# SPDX-License-Identifier: Apache-2.0
"""The fields of C in the texts of errors, under the names of Python's arguments.

The library reports a field of a C struct with its value: "mask_kind is 1 on rank 0
and 0 on rank 2". A table has, for each field whose argument in Python is named
otherwise, the argument and the words of the field's codes. PACKAGE is the table of
all calls and holds for each error; ulyx.torch and ulyx.transformers have a table of
their own beside it, for parts and tensors are single arguments there.
"""
import re
from typing import Dict, Mapping, NamedTuple, Optional

from . import _abi


class Argument(NamedTuple):
    """What a field of C is in Python."""

    name: str
    words: Mapping[str, str] = {}  # of the field's values


Table = Dict[str, Argument]
_DTYPES = {
    str(code): name for name, code in (
        ("bytes", _abi.DTYPE_BYTES), ("float64", _abi.DTYPE_F64),
        ("float32", _abi.DTYPE_F32), ("bfloat16", _abi.DTYPE_BF16),
        ("float16", _abi.DTYPE_F16), ("float8_e4m3fn", _abi.DTYPE_F8_E4M3),
        ("float8_e5m2", _abi.DTYPE_F8_E5M2))}
_UNBOUNDED = {str(_abi.UNBOUNDED): "None"}

PACKAGE: Table = {
    "mask_kind": Argument("mask", {
        str(_abi.MASK_NONE): "'none'", str(_abi.MASK_CAUSAL): "'causal'",
        str(_abi.MASK_WINDOW): "'window'"}),
    "mask_left": Argument("window[0]", _UNBOUNDED),
    "mask_right": Argument("window[1]", _UNBOUNDED),
    "mask_align": Argument("align", {
        str(_abi.ALIGN_BOTTOM_RIGHT): "'bottom_right'",
        str(_abi.ALIGN_TOP_LEFT): "'top_left'"}),
    "mask_diagonal": Argument("diagonal"),
    "work_split": Argument("work", {
        str(_abi.WORK_HEADS): "'heads'", str(_abi.WORK_BALANCED): "'balanced'"}),
    "docs_q": Argument("documents"),
    "docs_k": Argument("documents_k"),
    "timeout_s": Argument("timeout"),
    "memory_kind": Argument("device", {"CUDA": "given"}),
    "count": Argument("the number of elements of src"),
    "nparts": Argument("the number of parts"),
    "ntensors": Argument("the number of tensors"),
    "tensors[*]": Argument("tensors[*]", {
        "HEADS_QUERY": "of query heads (kv=False)",
        "HEADS_KV": "of KV heads (kv=True)"}),
    "dtype": Argument("dtype", _DTYPES),
    "param_dtype": Argument("param_dtype", _DTYPES),
    "save": Argument("save", {
        str(_abi.SAVE_DEFAULT): "None", str(_abi.SAVE_HEADS): "'heads'",
        str(_abi.SAVE_NONE): "'none'"}),
    "tensors[*].dtype": Argument("tensors[*].dtype", _DTYPES),
    "tensors[*].partial_dtype": Argument("tensors[*].partial_dtype", _DTYPES),
    "tensors[*].ownership": Argument("tensors[*].kv", {
        str(_abi.HEADS_QUERY): "False", str(_abi.HEADS_KV): "True"}),
    "parts[*].kind": Argument("parts[*].replicated", {
        str(_abi.PART_SHARDED): "False", str(_abi.PART_REPLICATED): "True"}),
    "parts[*].order": Argument("parts[*].order", {
        str(_abi.TOKENS_CONTIGUOUS): "'contiguous'",
        str(_abi.TOKENS_ZIGZAG): "'zigzag'",
        str(_abi.TOKENS_ZIGZAG_DOCS): "'zigzag_docs'"}),
}

_FIELD = re.compile(
    r"(?<![\w.\]%'])(?P<name>[a-z_]+(?:\[\d+\])?(?:\.[a-z_]+)?)"
    r"(?: is (?P<value>-?[\w']+(?:\.\d+)?)"
    r"(?: on rank 0 and (?P<other>-?[\w']+(?:\.\d+)?))?)?")
_NUMBER = re.compile(r"\[(\d+)\]")


def _argument(name: str, table: Table) -> Optional[Argument]:
    """That of a field, or of the struct that the field is in; parts[*] stands for
    each part."""
    found = table.get(name)
    if found is None:
        found = table.get(_NUMBER.sub("[*]", name))
        number = _NUMBER.search(name)
        if found is not None and number is not None:
            found = found._replace(name=found.name.replace("*", number[1]))
    if found is None and "." in name:
        head, _, field = name.partition(".")
        found = table.get(head)
        if found is not None:
            found = found._replace(name=f"{found.name}.{field}")
    return found


def in_python(text: str, table: Table) -> str:
    """A text of the library with the table's fields as arguments. A field whose
    name is a plain word (dtype) counts where its value follows."""
    def replaced(match: "re.Match[str]") -> str:
        name, value, other = match["name"], match["value"], match["other"]
        argument = _argument(name, table)
        if argument is None or (value is None and name.isalpha()):
            return match[0]
        said = argument.name
        if value is not None:
            said += f" is {argument.words.get(value, value)}"
        if other is not None:
            said += f" on rank 0 and {argument.words.get(other, other)}"
        return said
    return _FIELD.sub(replaced, text)
