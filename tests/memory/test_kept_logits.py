"""An evaluation that keeps its logits for metrics, and one that generates: what lies on the GPU besides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsgen
from dsgen.asking import memory_questions
from dsgen.memory import Verdict
from dsgen.memory.evaluating import CACHE, GATHERED, KEPT, LOGITS, cached_bytes, evaluation, generation, kept_bytes
from dsgen.memory.later import later
from dsgen.planning.planner import Plan

KIB, GIB = 2**10, 2**30


def planned(**wishes: object) -> Plan:
    return dsgen.plan({"hw": "a100-80g", "gpus": 8, "model": "llama-3.1-8b", "zero_stage": 3, **wishes})


def test_the_logits_of_a_batch_are_those_of_all_ranks() -> None:
    made = planned()

    assert kept_bytes(made.job, made.chosen.strategy, 2) == 8 * 2 * 4096 * 128_256 * 2
    wide = planned(transformers="4.40")  # whose Llama returns logits in fp32
    assert kept_bytes(wide.job, wide.chosen.strategy, 2) == 2 * kept_bytes(made.job, made.chosen.strategy, 2)


def test_what_is_kept_is_there_twice_while_another_batch_is_put_behind_it() -> None:
    made = planned()
    job, chosen = made.job, made.chosen.strategy
    plain, each = evaluation(job, chosen, 1), kept_bytes(made.job, chosen, 1)
    kept = {count: evaluation(job, chosen, 1, count) for count in (1, 2, 8)}

    assert plain is not None
    assert all(one is not None for one in kept.values())
    # A rank's own are there until it has those of all, and stage 3 keeps weights for a backward that does not come: so
    # has it the simulated engine, to 0.1 % (test_simulator_real.py).
    assert (kept[1].parts[KEPT], kept[1].parts[LOGITS]) == (each, each // 8)
    assert kept[1].parts[GATHERED] == kept[8].parts[GATHERED] == 3_986_685_952
    assert kept[8].parts[KEPT] == 16 * each
    assert LOGITS not in kept[8].parts
    assert kept[8].peak_bytes == sum(kept[8].parts.values()) > kept[2].peak_bytes > kept[1].peak_bytes
    assert kept[1].peak_bytes > plain.peak_bytes


def test_a_token_keeps_its_keys_and_values_in_every_layer() -> None:
    sizes = {name: planned(model=name) for name in ("llama-2-7b", "llama-3.1-8b")}

    told = {name: cached_bytes(made.job, made.chosen.strategy) for name, made in sizes.items()}

    assert told == {"llama-2-7b": 512 * KIB, "llama-3.1-8b": 128 * KIB}


def test_a_generation_has_them_and_no_logits_of_its_prompt() -> None:
    made = planned()
    job, chosen = made.job, made.chosen.strategy
    one, made_by = evaluation(job, chosen, 8), generation(job, chosen, 8, 4096)

    assert one is not None
    assert made_by is not None
    assert made_by.parts[CACHE] == 4 * GIB
    assert {**one.parts, CACHE: 4 * GIB} == {**made_by.parts, LOGITS: one.parts[LOGITS]}
    assert generation(planned(model="deepseek-v2-lite").job, chosen, 8, 4096) is None


def test_both_are_phases_of_the_run_and_what_does_not_fit_is_said() -> None:
    made = planned()
    question = memory_questions.ask(made.job)
    said = question.evaluating(4, "--eval-batch").saying(memory_questions.KEPT, 64, "--eval-keep")
    footprint = memory_questions.answer(said.saying(memory_questions.GENERATED, 2048, "--generate"))

    phases = {one.phase.phase: one for one in footprint.later}
    assert list(phases) == ["evaluate 4 sequences", "generate 4 sequences", "save", "resume"]
    assert phases["evaluate 4 sequences"].verdict is Verdict.DOES_NOT_FIT
    assert phases["generate 4 sequences"].noun == "generation"
    assert [one.phase.phase for one in later(made.job, question.strategy, None, 4)] == [
        "evaluate 4 sequences",
        "save",
        "resume",
    ]


@pytest.mark.parametrize(
    ("model", "sequences", "words"),
    [("deepseek-v2-lite", 8, "multi-head latent attention"), ("llama-3.1-8b", 0, "no evaluation is counted")],
)
def test_what_is_in_no_number_is_said(model: str, sequences: int, words: str) -> None:
    question = memory_questions.ask(planned(model=model).job).evaluating(sequences, "--eval-batch")
    footprint = memory_questions.answer(question.saying(memory_questions.GENERATED, 64, "--generate"))

    assert [note for note in footprint.question.notes if words in note]
    assert "generate" not in {one.phase.phase.partition(" ")[0] for one in footprint.later}


TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 64}  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mistral", "gemma"])
def test_a_real_generate_keeps_as_many_bytes_and_the_trainer_s_own_class_as_many_logits(
    tmp_path: Path, model_type: str
) -> None:
    import torch
    import transformers
    from transformers.trainer_pt_utils import EvalLoopContainer

    hf_config = transformers.AutoConfig.for_model(model_type, **TINY, head_dim=16, sliding_window=None)
    model = transformers.AutoModelForCausalLM.from_config(hf_config, dtype=torch.bfloat16)
    (tmp_path / "config.json").write_text(json.dumps(hf_config.to_dict()))
    said = {"gpus": 1, "model": str(tmp_path / "config.json"), "seq_len": 32, "zero_stage": 2, "precision": "bf16"}
    made = planned(**said)
    job, chosen = made.job, made.chosen.strategy

    prompt = torch.ones(2, 8, dtype=torch.long)
    out = model.generate(prompt, max_new_tokens=9, min_new_tokens=9, return_dict_in_generate=True, do_sample=False)
    held = sum(one.nbytes for layer in out.past_key_values.layers for one in (layer.keys, layer.values))
    assert held == 2 * (8 + 9 - 1) * cached_bytes(job, chosen)  # the last token's are not needed

    container = EvalLoopContainer()
    logits = model(input_ids=torch.ones(2, 32, dtype=torch.long)).logits.detach()
    container.add(logits)
    before = container.tensors
    container.add(logits)
    assert logits.nbytes == kept_bytes(job, chosen, 2)
    assert container.tensors.nbytes == 2 * before.nbytes
    assert container.tensors.data_ptr() != before.data_ptr()
