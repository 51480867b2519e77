# SPDX-License-Identifier: Apache-2.0
"""A rank of test_trainer.py: trains a tiny model, by Trainer or TRL's
SFTTrainer, in one process or sharded, and prints its losses and norms.

    train.py '{"trainer": "hf", "packed": false, ...}'
"""
import json
import os
import sys
import tempfile

import models
import torch
import torch.distributed as dist
import transformers as hf

import ulyx
import ulyx.transformers as ut

RANKS = int(os.environ["WORLD_SIZE"])


class Texts(torch.utils.data.Dataset):
    def __init__(self, count, rows):
        self.items = [models.batch(1, rows - 3 * (i % 3), seed=i)
                      for i in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {name: value[0] for name, value in self.items[i].items()}


def padded(samples):
    """Returns one batch of samples of several lengths, padded on the right."""
    def column(name, fill):
        return torch.nn.utils.rnn.pad_sequence(
            [s[name] for s in samples], True, fill)
    ids = column("input_ids", 0)
    lengths = torch.tensor([len(s["input_ids"]) for s in samples])
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    return {"input_ids": ids, "labels": column("labels", -100),
            "attention_mask": mask.long()}


def packed(samples):
    """Returns all samples one after another, as one item. Positions start again
    at each sample, and the first token of a sample is no target."""
    labels = [torch.cat([torch.tensor([-100]), s["labels"][1:]])
              for s in samples]
    positions = [torch.arange(len(s["input_ids"])) for s in samples]
    return {"input_ids": torch.cat([s["input_ids"] for s in samples])[None],
            "labels": torch.cat(labels)[None],
            "position_ids": torch.cat(positions)[None]}


def arguments(cls, job, folder, **more):
    # The samples of a sequence group must be those of one process.
    return cls(
        output_dir=folder, use_cpu=True, report_to=[], save_strategy="no",
        logging_steps=1, max_steps=6, disable_tqdm=True, seed=3,
        per_device_train_batch_size=2, learning_rate=1e-2, max_grad_norm=0.5,
        gradient_accumulation_steps=job.get("accumulate", 1),
        gradient_checkpointing=job.get("checkpoint", False),
        train_sampling_strategy="random" if job.get("shuffle") else "sequential",
        ddp_backend="gloo" if RANKS > 1 else None,
        bf16=job.get("bf16", False), **more)


def hf_trainer(job, model, folder, shard):
    collate = packed if job.get("packed") else padded
    return hf.Trainer(
        model, arguments(hf.TrainingArguments, job, folder),
        train_dataset=Texts(10, 25), data_collator=shard(collate))


def sft_trainer(job, model, folder, shard):
    import datasets
    import trl
    data = datasets.Dataset.from_list(
        [{"input_ids": item["input_ids"][0].tolist()}
         for item in Texts(10, 25).items])
    tokens = "".join(chr(0x4e00 + i) for i in range(models.VOCAB))
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    words = hf.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(
            {word: i for i, word in enumerate(tokens)}, unk_token=tokens[0])),
        pad_token=tokens[0], eos_token=tokens[2], bos_token=tokens[1])
    args = arguments(
        trl.SFTConfig, job, folder, max_length=64,
        loss_type=job.get("loss", "nll"), packing=bool(job.get("packed")),
        dataset_kwargs={"skip_prepare_dataset": not job.get("packed")})
    args.padding_free = bool(job.get("packed"))
    trainer = trl.SFTTrainer(model, args, train_dataset=data,
                             processing_class=words)
    trainer.data_collator = shard(trainer.data_collator)
    return trainer


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    comm = None
    if RANKS > 1:
        dist.init_process_group("gloo")
        comm = ulyx.Communicator.from_group(timeout=60)
    model = models.make(job.get("kind", "llama"), torch.float32)
    if job.get("by_token"):
        models.route_by_token(model)
    if comm:
        ut.attach(model, comm)

    read = []

    def shard(collate):
        def noted(samples):
            whole = collate(samples)
            read.append(whole["input_ids"].flatten()[:8].tolist())
            return whole
        return ut.Collator(comm, noted) if comm else collate
    make = {"hf": hf_trainer, "sft": sft_trainer}[job["trainer"]]
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(job, model, folder, shard)
        if comm:
            ut.feed(trainer, comm)
        trainer.train()
        steps = [{name: row[name] for name in ("loss", "grad_norm")}
                 for row in trainer.state.log_history if "loss" in row]
    if int(os.environ["RANK"]) == 0:
        print("STEPS " + json.dumps(steps), flush=True)
    if comm:
        all_read = [None] * RANKS
        dist.all_gather_object(all_read, read)
        assert all_read == [read] * RANKS and len(read) >= 6, all_read
        comm.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
