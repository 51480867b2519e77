# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning with TRL's SFTTrainer: short texts are packed into
long samples, whose tokens are sharded over the ranks. The script makes a small
random Llama, a tokenizer and the texts itself, so that no hub is needed.
Prints the losses beside those of one process, for which the script starts
itself a second time.

    torchrun --nproc-per-node 2 sft.py

ulyx needs the four lines that are marked. For a model of your own, leave the
comparison out, and use from_pretrained() and your data.
"""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

import datasets
import tokenizers
import torch
import torch.distributed as dist
import transformers as hf
import trl

import ulyx
import ulyx.transformers as ut                                # 1

RANKS = int(os.environ.get("WORLD_SIZE", "1"))
WORDS = ["<pad>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]


def small_model():
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=48, intermediate_size=96,
        num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False,
        attn_implementation="sdpa"))


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>",
        eos_token="</s>")


def texts():
    """Texts of several lengths, each a run of letters in the order of the
    alphabet."""
    letters = WORDS[3:] * 3
    return datasets.Dataset.from_list([
        {"text": " ".join(letters[i % 26:i % 26 + 7 + 5 * i % 23])}
        for i in range(40)])


def train(comm, folder):
    model = small_model()
    if comm is not None:
        ut.attach(model, comm)                                # 2
    trainer = trl.SFTTrainer(
        model, trl.SFTConfig(
            folder, max_steps=6, per_device_train_batch_size=2, max_length=48,
            packing=True, padding_free=True, learning_rate=1e-2,
            logging_steps=1, report_to=[], save_strategy="no",
            disable_tqdm=True, use_cpu=True, bf16=False,
            train_sampling_strategy="sequential",  # else the order would differ
            ddp_backend="gloo" if RANKS > 1 else None),
        train_dataset=texts(), processing_class=tokenizer())
    if comm is not None:
        trainer.data_collator = ut.Collator(                  # 3
            comm, trainer.data_collator)
        ut.feed(trainer, comm)                                # 4
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def losses_alone():
    """Runs this script in one process without a launcher, and returns its
    losses."""
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                                   "MASTER_PORT")}
    done = subprocess.run([sys.executable, __file__], env=environment,
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    if RANKS == 1:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(train(None, folder)))
        return
    dist.init_process_group("gloo")
    comm = ulyx.Communicator.from_group()
    with tempfile.TemporaryDirectory() as folder:
        losses = train(comm, folder)
    if comm.rank == 0:
        wanted = losses_alone()
        for step, pair in enumerate(zip(losses, wanted)):
            print(f"step {step}: {pair[0]:.5f} on {comm.nranks} ranks, "
                  f"{pair[1]:.5f} on one process")
        worst = max(abs(a - b) for a, b in zip(losses, wanted))
        print(f"largest difference {worst:.1e}")
        assert len(losses) == len(wanted) and worst < 1e-3, "the losses differ"
    comm.barrier()
    comm.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
