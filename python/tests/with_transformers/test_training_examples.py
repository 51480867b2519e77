# SPDX-License-Identifier: Apache-2.0
"""The examples that train models of transformers end in the losses of one
process, and with another status where they do not."""
import os

import pytest
from launch import EXAMPLES, first_of, ranks


@pytest.mark.parametrize("name, needs", [
    ("finetune_llama", "torch"), ("finetune_gpt_oss", "accelerate"),
    ("fsdp2", "torch"), ("sft", "trl")])
def test_example(name, needs):
    pytest.importorskip(needs)
    said = first_of(2, os.path.join(EXAMPLES, name + ".py"))
    assert "largest difference" in said


@pytest.mark.parametrize("name", ["finetune_llama", "fsdp2"])
def test_an_example_that_is_off_says_so(name, tmp_path):
    """A loss without its scale."""
    with open(os.path.join(EXAMPLES, name + ".py")) as file:
        text = file.read()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace("(loss * scale)", "loss"))
    done = ranks(2, str(wrong))
    assert any(status for status, _ in done)
    assert "the losses differ" in done[0][1]
