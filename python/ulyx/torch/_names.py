# SPDX-License-Identifier: Apache-2.0
"""The texts of errors in the words of ulyx.torch's callers: the argument of Python
for each field of C, and the reason for which a peer has refused a call."""
import re

from .._names import Argument, Table, in_python
from ..communicator import Communicator
from ..errors import MismatchError, PeerRefusedError, UlyxError
from ._cache import Lengths

# The keys are names of C as the table ulyx._names.PACKAGE leaves them.
_PARTS: Table = {
    "parts[0].rows": Argument("rows"),
    "parts[1].rows": Argument("kv_rows"),
    "parts[0].splits": Argument("splits"),
    "parts[*].order": Argument("order"),
    "parts[*].row_capacity": Argument("the room for rows"),
    "batch": Argument("the batch of the tensors"),
}
ATTENTION: Table = {
    **_PARTS,
    "mask": Argument("the mask of causal= and window="),
    "heads": Argument("the number of heads of q"),
    "kv_heads": Argument("the number of heads of k"),
    "dim_qk": Argument("the last axis of q"),
    "dim_v": Argument("the last axis of v"),
    "dtype": Argument("the type of q"),
    "param_dtype": Argument("the type of sinks, which q's decides,"),
    "scale": Argument("scale", {"0": "None"}),
    "softcap": Argument("softcap", {"0": "None"}),
    "max_docs": Argument("the room for documents"),
    **{f"tensors[{i}].{field}": Argument(f"the {what} of {name}")
       for i, name in enumerate("qkv")
       for field, what in (("heads", "number of heads"), ("dim", "last axis"),
                           ("dtype", "type"))},
}
# For models of transformers; the keys are names as ATTENTION leaves them.
MODEL: Table = {
    "rows": Argument("ulyx_rows"),
    "window[0]": Argument("sliding_window - 1"),
    "scale": Argument("scaling"),
}
RESHUFFLE: Table = {
    **_PARTS,
    "heads": Argument("the number of heads of tensor 0"),
    "tensors[*]": Argument("tensor *"),
    "tensors[*].heads": Argument("the number of heads of tensor *"),
    "tensors[*].dim": Argument("the last axis of tensor *"),
    "tensors[*].dtype": Argument("the type of tensor *"),
    "tensors[*].partial_dtype": Argument("the type of tensor *"),
}

_ROWS = re.compile(r"\brows is (\d+) on rank 0 and (\d+) on rank (\d+)")
_TABLES = re.compile(
    r"the rows or document tables of rank (\d+) and rank (\d+) differ")
_OTHER_CALL = "ranks are in different calls"
_REFUSED = re.compile(
    r"\brank (\d+) refused: (?:invalid argument: )?(.*)", re.S)
_RANK = re.compile(r"^rank \d+: ")
ADVICE = ("give rows= (the tokens of all ranks together, of which the first "
           "ranks have one more) or splits= (the tokens of each rank)")


def reason_of(error: Exception) -> str:
    """Why this rank refuses a call, for the exceptions of its peers, which name
    the rank themselves."""
    return _RANK.sub("", str(error)) or type(error).__name__


def explain(error: UlyxError, table: Table, comm: Communicator,
            lengths: Lengths, local: int) -> None:
    """Puts the text of an error into the caller's words. lengths, local: of the
    call, and this rank's rows."""
    text = in_python(str(error), table)
    if isinstance(error, MismatchError):
        text = _unequal(text, comm, lengths, local)
    elif isinstance(error, PeerRefusedError):
        text = _refused(text)
    error.args = (text, *error.args[1:])


def _unequal(text: str, comm: Communicator, lengths: Lengths,
             local: int) -> str:
    """Returns the text for ranks whose calls differ. Most often their numbers of
    tokens differ: without rows and splits, each rank takes its own tokens times
    the number of ranks for the whole."""
    counted = lengths.splits is None and lengths.rows[0] == local * comm.nranks
    found = _ROWS.search(text)
    if found is not None and counted:
        zero, other, rank = map(int, found.groups())
        if zero % comm.nranks == 0 and other % comm.nranks == 0:
            return (f"rank 0 has {zero // comm.nranks} tokens and rank {rank} "
                    f"has {other // comm.nranks}: {ADVICE}")
    tables = _TABLES.search(text)
    if tables is not None:
        text = (f"rank {tables[1]} and rank {tables[2]} have different numbers of "
                f"tokens or documents, and rank {comm.rank} has {local} tokens")
        return f"{text}: {ADVICE}" if counted else text
    if counted and _OTHER_CALL in text:
        return (f"{text}. If the numbers of tokens differ, of which rank "
                f"{comm.rank} has {local}, {ADVICE}")
    return text


def _refused(text: str) -> str:
    found = _REFUSED.search(text)
    return text if found is None else \
        f"rank {found[1]} refused the call: {found[2]}"
