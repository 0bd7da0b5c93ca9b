"""The code that makes sequences of samples: cut at the longest that a plan has room for, or packed."""

from __future__ import annotations

from dsgen.jobs.job import Job

__all__ = ["sequences_code"]


def sequences_code(job: Job, of_trainer: bool) -> str:
    """What a program does with its samples.

    Args:
        job: What it runs.
        of_trainer: Whether the Trainer runs it.
    """
    length = job.seq_len
    if job.training.packing:
        by_itself = f"# SFTConfig(max_length={length}, packing=True) does all of it; elsewhere:\n" if of_trainer else ""
        # The Trainer takes away what is no argument of the model: without seq_lengths nobody knows the borders.
        taken = "Trainer(data_collator=collate), and remove_unused_columns=False of its arguments"
        return (
            f"{by_itself}from trl import pack_dataset\n"
            "from trl.trainer.sft_trainer import DataCollatorForLanguageModeling\n\n"
            f'dataset = pack_dataset(dataset, seq_length={length}, strategy="bfd")  # of tokenized samples\n'
            "collate = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id, padding_free=True)\n"
            f"# {taken if of_trainer else 'DataLoader(collate_fn=collate)'}"
        )
    if job.training.padding_free:
        by_itself = (
            f"# SFTConfig(max_length=None, padding_free=True) of samples cut at {length} tokens; elsewhere:\n"
            if of_trainer
            else ""
        )
        return (
            f"{by_itself}from transformers import DataCollatorWithFlattening\n\n"
            f"tokenizer.model_max_length = {length}  # with truncation=True where you tokenize\n"
            "collate = DataCollatorWithFlattening()"
        )
    if of_trainer:
        return (
            f"# SFTConfig(max_length={length}), or the same where you tokenize:\ntokenizer.model_max_length = {length}"
        )
    return f"tokenizer.model_max_length = {length}  # with truncation=True where you tokenize"
