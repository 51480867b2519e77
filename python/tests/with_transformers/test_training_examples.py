# SPDX-License-Identifier: Apache-2.0
"""The examples that train models of transformers end with the losses of one
process, and with another status where they do not. Also, the whole runs
of docs/PYTHON.md train."""
import os
import re

import pytest
from launch import EXAMPLES, first_of, ranks
from test_documents import blocks


@pytest.mark.parametrize("name, needs", [
    ("finetune_llama", "torch"), ("finetune_gpt_oss", "accelerate"),
    ("fsdp2", "torch"), ("sft", "trl")])
def test_example(name, needs):
    pytest.importorskip(needs)
    said = first_of(2, os.path.join(EXAMPLES, name + ".py"))
    assert "largest difference" in said


def test_the_run_of_the_tutorial_trains(tmp_path, monkeypatch):
    pytest.importorskip("trl")
    text, = [block for block in blocks() if "# packed.py" in block]
    script = tmp_path / "packed.py"
    script.write_text(text)
    monkeypatch.chdir(tmp_path)
    losses = [re.findall(r"'loss': '?([0-9.]+)", said)
              for _, said in ranks(2, str(script))]
    assert losses[0] and float(losses[0][-1]) < 1 < float(losses[0][0])


def test_the_loop_of_the_tutorial_trains(tmp_path):
    """Losses on two ranks are those of one, which attends as one process does."""
    text, = [block for block in blocks() if "# loop.py" in block]
    script = tmp_path / "loop.py"
    script.write_text(text)
    losses = {nranks: [float(loss) for loss in re.findall(
        r"loss ([0-9.]+)", first_of(nranks, str(script)))] for nranks in (1, 2)}
    assert len(losses[1]) == 20 and losses[1][-1] < losses[1][0] / 2
    assert losses[2] == pytest.approx(losses[1], abs=0.01)


@pytest.mark.parametrize("name", ["finetune_llama", "fsdp2"])
def test_an_example_with_other_losses_fails(name, tmp_path):
    """Removes the scale of the loss."""
    with open(os.path.join(EXAMPLES, name + ".py")) as file:
        text = file.read()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(text.replace("(loss * scale)", "loss"))
    done = ranks(2, str(wrong))
    assert any(status for status, _ in done)
    assert "the losses differ" in done[0][1]
