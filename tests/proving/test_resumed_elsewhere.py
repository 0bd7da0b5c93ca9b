"""A run on four ranks goes on with two, and on two with four: by DeepSpeed's universal checkpoint; in one file too."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest
from children import answer

from dsgen.proving.proven_models import Lora

pytestmark = pytest.mark.proof

WHOLE = "DSGEN_CELLS_ALONE" in os.environ  # `nox -s cells` runs all, `nox` some
MANY, FEW, SAVED_AFTER = 4, 2, 5  # ranks; each step has as many samples on both
CPU = {"device": "cpu"}
# DeepSpeed's engine writes no universal_checkpoint_info at stages 1 and 2: its converter makes an empty one when told.
TOLD = ("--inject_missing_state",)
# The first loss is that of the same state. Later ones differ by the order of sums: 3e-7 was seen in fp32, 4e-4 in bf16.
SAME, LATER = 1e-6, {"fp32": 2e-6, "bf16": 1e-3, "fp16": 1e-3}
WEIGHTS = 1e-5  # of weights that moved by 5e-3 from plain PyTorch's, fp32: 4e-6 was seen


def case(
    stage: int, *, half: str = "", tp: int = 1, options: tuple[str, ...] = TOLD, ranks: int = MANY, **more: Any
) -> Any:
    """A run; `more` is of the ZeRO section, or `scheduler`, or what trained_alike has of a model."""
    of_case = {name: more.pop(name) for name in ("model", "adapters", "same_base") if name in more}
    of_config = {name: more.pop(name) for name in ("scheduler",) if name in more}
    config = {
        "train_batch_size": 2 * MANY,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": MANY // ranks,
        "gradient_clipping": 0.3,
        **({half: {"enabled": True, **({"initial_scale_power": 10} if half == "fp16" else {})}} if half else {}),
        **({"tensor_parallel": {"autotp_size": tp}} if tp > 1 else {}),
        "zero_optimization": {"stage": stage, **more},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        **of_config,
    }
    others = FEW if ranks == MANY else MANY
    return {"config": config, "ranks": ranks, "others": others, "options": list(options), **of_case}


SCHEDULE = {
    "type": "WarmupDecayLR",
    "params": {
        "total_num_steps": 10, "warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 3,
        "warmup_type": "linear",
    },
}  # fmt: skip
QWEN = {"model_type": "qwen2", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}  # fmt: skip
LORA = Lora(method="lora", rank=4, targets=("q_proj", "v_proj")).to_engine()
ALWAYS = {"stage 2, fp32": case(2), "stage 3, fp32": case(3), "stage 1, AutoTP 2, fp32": case(1, tp=2)}
MORE = {
    "stage 1, fp32": case(1),
    "stage 1, bf16": case(1, half="bf16"),
    "stage 2, CPU optimizer, bf16": case(2, half="bf16", offload_optimizer=CPU),
    "stage 3, CPU optimizer and parameters, bf16": case(3, half="bf16", offload_optimizer=CPU, offload_param=CPU),
    "two to four, stage 2, schedule, fp32": case(2, ranks=FEW, scheduler=SCHEDULE),
    "two to four, stage 3, bf16": case(3, ranks=FEW, half="bf16"),
    "stage 2, schedule, fp16": case(2, half="fp16", scheduler=SCHEDULE),
    "stage 3, tied Qwen 2, fp32": case(3, model=QWEN),
    "stage 2, LoRA, bf16": case(2, half="bf16", adapters=LORA, same_base=True),  # see runtime/engine.py:4660
}
# What DeepSpeed 0.19.8 does not convert, in its own words.
REFUSED = {
    "stage 1, not told to inject": (case(1, options=()), "Required universal_checkpoint_info state is missing"),
    "stage 0, fp32": (case(0), "can't find *_optim_states.pt files"),
}
RESUMED = {**ALWAYS, **(MORE if WHOLE else {})}


@functools.cache
def answers() -> dict[str, dict[str, Any]]:
    """All cases in one process, which imports torch once; each on forked ranks."""
    asked = {**RESUMED, **({name: one for name, (one, _) in REFUSED.items()})}
    return dict(zip(asked, answer("resumed_elsewhere", asked=list(asked.values()), seconds=1200), strict=True))


@pytest.mark.parametrize("name", RESUMED)
def test_other_ranks_resume_with_the_losses_that_there_were(name: str) -> None:
    told = answers()[name]
    assert "failed" not in told, told["error"]
    assert told["resumed"][0] == pytest.approx(told["engine"][SAVED_AFTER], abs=SAME)
    assert told["resumed"] == pytest.approx(told["engine"][SAVED_AFTER:], abs=LATER[name.rpartition(", ")[2]])


@pytest.mark.parametrize("name", [name for name in RESUMED if "fp32" in name and "AutoTP" not in name])
def test_one_file_has_the_weights_of_plain_pytorch(name: str) -> None:
    assert answers()[name]["distance"] < WEIGHTS


def test_autotp_is_not_made_one_file_in_deepspeeds_words() -> None:
    assert "Expected 2 of '*_optim_states.pt'" in answers()["stage 1, AutoTP 2, fp32"]["one_file"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_deepspeed_does_not_convert_it_refuses_in_these_words(name: str) -> None:
    told = answers()[name]
    assert told["failed"] == "convert"
    assert REFUSED[name][1] in told["error"]
