"""Liger's SwiGLU or GeGLU, norms and RoPE: what a block keeps by hand, for whom they are known, and who brings them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from ruamel.yaml import YAML

import dsgen
from dsgen.asking.memory_questions.loaders import for_program
from dsgen.engine.simulate.requests import LIGER_KERNELS
from dsgen.families.tape.liger import ALL_NORMS
from dsgen.frameworks import job_files
from dsgen.frameworks.needs import needs
from dsgen.memory.activations import activations
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model

LLAMA = {"hw": "h100-80g", "gpus": 8, "model": "llama-3.1-8b", "zero_stage": 3, "micro_batch": 2, "seq_len": 4096,
         "checkpointing": "none", "chunked_loss": True}  # fmt: skip
WITH = {**LLAMA, "liger_kernels": True}


def kept(model: Model, **more: Any) -> int:
    """Bytes that a token of one more block keeps, in bf16 with FlashAttention."""
    said: dict[str, Any] = {"precision": "bf16", "attention": "flash", "seq_len": 1024, **more}
    one, two = (activations(attrs.evolve(model, layers=layers), **said).kept for layers in (1, 2))
    assert two[0] == one[0]
    return (two[1] - one[1]) // 1024


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mistral-7b", "qwen2.5-7b", "gemma-7b"])
def test_a_block_keeps_what_goes_into_its_matrices_and_its_kernels(name: str) -> None:
    """Twice a norm's input and its root, queries, keys, values and their output; gate, up and their product."""
    model = dsgen.job({**WITH, "model": name}).model
    heads, head = model.attention_heads * model.head_size, model.kv_heads * model.head_size
    attention = 2 * (2 * heads + 2 * head) + 4 * model.attention_heads  # and FlashAttention's fp32 sums
    norms = 2 * (2 * 2 * model.hidden_size + 4)

    assert kept(model) == norms + attention + 3 * 2 * model.ffn_size


def test_norms_over_heads_are_ligers_since_0_8_5() -> None:
    """Before, Hugging Face's keep of each head its elements in fp32, twice, and in 16 bits, and a root."""
    new, old = (dsgen.job({**WITH, "model": "qwen3-8b", "liger": one}).model for one in ("0.8.5", "0.8.4"))
    heads = new.attention_heads + new.kv_heads
    theirs, ligers = (4 + 2) * new.head_size + 4, 2 * new.head_size + 4

    assert (new.liger_kernels, old.liger_kernels) == ("0.8.5", "0.4.1")
    assert kept(old) - kept(new) == heads * (theirs - ligers)


@pytest.mark.parametrize("release", ["0.5.7", "0.8.4", "0.8.5"])
def test_norms_over_heads_of_gemma_3_are_ligers_in_every_release_that_knows_it(release: str) -> None:
    """Four norms around a block's parts, and one over each head of queries and keys: its input and its root."""
    model = dsgen.job({**WITH, "model": "gemma-3-4b", "liger": release}).model
    heads, head = model.attention_heads * model.head_size, model.kv_heads * model.head_size
    attention = 2 * (2 * heads + 2 * head) + 4 * model.attention_heads
    of_heads = 2 * (heads + head) + 4 * (model.attention_heads + model.kv_heads)
    norms = 2 * (2 * 2 * model.hidden_size + 4) + 2 * (2 * model.hidden_size + 4)  # two go into matrices

    assert kept(model) == norms + of_heads + attention + 3 * 2 * model.ffn_size
    with pytest.raises(DsgenError, match=r"of type gemma3_text in Liger 0\.5\.6; .* from release 0\.5\.7 on"):
        dsgen.job({**WITH, "model": "gemma-3-4b", "liger": "0.5.6"})


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("stage", [0, 2, 3])
def test_less_is_kept_and_no_more_is_needed(stage: int, method: str) -> None:
    layout = {"zero_stage": stage, "method": method, "model": "llama-3.2-1b", "micro_batch": 4}
    without, kernels = (dsgen.memory({**one, **layout}).memory.gpu for one in (LLAMA, WITH))
    again = [dsgen.memory({**one, **layout, "checkpointing": "full"}).memory.gpu for one in (LLAMA, WITH)]

    assert kernels.peak_bytes < 0.9 * without.peak_bytes
    assert again[1].peak_bytes <= again[0].peak_bytes


@pytest.mark.parametrize("name", ["mixtral-8x7b", "phi-3-mini", "olmo-2-7b", "gpt2"])
def test_what_is_not_known_is_refused(name: str) -> None:
    """In one sentence, which says for whom it is known."""
    known = "counted for gemma, gemma2, gemma3_text, llama, mistral, qwen2, qwen3 alone, from release 0.4.1 on"
    with pytest.raises(DsgenError, match=known):
        dsgen.job({"hw": "h100-80g", "model": name, "liger_kernels": True})


def test_an_old_release_is_refused() -> None:
    with pytest.raises(DsgenError, match=r"of type llama in Liger 0\.4\.0; its SwiGLU"):
        dsgen.job({**WITH, "liger": "0.4.0"})
    assert dsgen.job({**LLAMA, "liger": "0.4.0"}).model.liger_kernels == ""


@pytest.mark.parametrize(
    ("said", "target", "run"),
    [({}, "hf-trainer", True), ({}, "deepspeed", False), ({}, None, False), ({"liger_kernels": True}, None, True),
     ({"liger_kernels": False}, "hf-trainer", False), ({"chunked_loss": False}, "hf-trainer", False),
     ({"liger": "0.3.1"}, "hf-trainer", False), ({"model": "mixtral-8x7b"}, "hf-trainer", False)],
)  # fmt: skip
def test_the_trainer_takes_all_of_liger(said: dict[str, Any], target: str | None, run: bool) -> None:
    """`use_liger_kernel` is how it chunks a loss; where a person says no, or it is not known, nothing is counted."""
    job = for_program(dsgen.job({**LLAMA, **said}), target)

    assert bool(job.model.liger_kernels) is run


def test_a_release_is_as_of_the_last_that_changed_it() -> None:
    choices = attrs.fields_dict(Model)["liger_kernels"].metadata["choices"]
    as_of = {one: dsgen.job({**WITH, "liger": one}).model.liger_kernels for one in (None, "0.4.1", "0.6.5", "0.8", "1")}

    assert choices == ("", *LIGER_KERNELS)
    assert LIGER_KERNELS[-1] == ALL_NORMS
    assert as_of == {None: "0.8.5", "0.4.1": "0.4.1", "0.6.5": "0.4.1", "0.8": "0.8.5", "1": "0.8.5"}


def test_a_program_of_ones_own_is_told_to_bring_them() -> None:
    plan = dsgen.plan({**WITH, "micro_batch": 1})
    told = {one.code: one for one in needs(plan, "deepspeed")}
    without, without_them = dsgen.memory({**LLAMA, "micro_batch": 1}).memory.gpu, told["liger-kernels"].otherwise

    assert f"{without.needed_bytes / 2**30:.1f} of" in without_them
    assert "_apply_liger_kernel_to_instance(model=model)" in told["liger-kernels"].snippet


@pytest.mark.parametrize(
    ("chunked", "kernels", "told"),
    [(True, None, None), (True, True, None), (True, False, {"rope": False, "rms_norm": False, "swiglu": False,
     "geglu": False}), (False, True, {"fused_linear_cross_entropy": False})],
)  # fmt: skip
def test_a_trainer_s_arguments_say_which_of_liger_runs(chunked: bool, kernels: bool | None, told: Any) -> None:
    """The Trainer takes all where nobody says less; Axolotl and LLaMA-Factory have names of their own."""
    config = dsgen.render(
        {**LLAMA, "micro_batch": 1, "checkpointing": "auto", "chunked_loss": chunked, "liger_kernels": kernels}
    )
    said = {
        target: YAML(typ="safe").load(job_files(config, target).files[1].text)
        for target in ("hf-trainer", "axolotl", "llama-factory")
    }

    assert said["hf-trainer"]["use_liger_kernel"] is True
    assert said["hf-trainer"].get("liger_kernel_config") == told
    assert said["llama-factory"]["enable_liger_kernel"] is True
    assert "liger_kernel_config" not in {**said["axolotl"], **said["llama-factory"]}
    assert said["axolotl"].get("liger_fused_linear_cross_entropy", False) is chunked
    assert {"liger_glu_activation", "liger_rms_norm", "liger_rope"} & set(said["axolotl"]) == (
        {"liger_glu_activation", "liger_rms_norm", "liger_rope"} if kernels else set()
    )
