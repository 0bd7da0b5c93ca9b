"""A config does not only start but trains rightly: ten steps on real ranks beside ten of plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from children import answer
from chosen import chosen

pytestmark = [pytest.mark.proof, pytest.mark.operators]

# Of a loss of about 5.5. In fp32 only the order of sums differs. In bf16 gradients are rounded to 8 bits before
# ranks and micro-steps add them up, and which sums are rounded depends on the stage: that moves the loss by 1e-3.
FP32, BF16 = 1e-5, 1e-2
# A resumed engine's first loss is that of the same state. Later ones differ in bf16 by the order in which stage 3 adds
# rounded gradients up, which it learns anew: up to 3e-4 after five steps.
SAME, RESUMED = 1e-6, {FP32: 2e-6, BF16: 1e-3}
FALLEN = 0.2  # at least, in ten steps on one batch
CPU = {"device": "cpu"}


def config(
    stage: int, ranks: int, *, bf16: bool = False, accumulation: int = 2, clipping: float = 0.3, **zero: Any
) -> Any:
    return {
        "train_batch_size": 2 * accumulation * ranks,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clipping,
        **({"bf16": {"enabled": True}} if bf16 else {}),
        "zero_optimization": {"stage": stage, **zero},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    }


def cases() -> dict[str, tuple[Any, int]]:
    """The main paths: each stage in both types, offload where it has it, more ranks, clipping, accumulation."""
    made: dict[str, tuple[Any, int]] = {}
    for bf16 in (False, True):
        dtype = "bf16" if bf16 else "fp32"
        for stage in range(4):
            made[f"stage {stage}, {dtype}, 2 ranks"] = config(stage, 2, bf16=bf16), 2
        for stage in (1, 2, 3):
            one = config(stage, 2, bf16=bf16, offload_optimizer=CPU)
            made[f"stage {stage}, {dtype}, CPU optimizer, 2 ranks"] = one, 2
    both = config(3, 2, offload_optimizer=CPU, offload_param=CPU)
    made["stage 3, fp32, CPU optimizer and parameters, 2 ranks"] = both, 2
    made["stage 2, fp32, 4 ranks"] = config(2, 4), 4
    made["stage 3, bf16, 4 ranks"] = config(3, 4, bf16=True), 4
    made["stage 3, fp32, hpZ 2, 4 ranks"] = config(3, 4, zero_hpz_partition_size=2), 4
    made["stage 2, fp32, no clipping, no accumulation, 2 ranks"] = config(2, 2, clipping=0.0, accumulation=1), 2
    return made


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """All cases that are run, in one process, which imports torch once."""
    names, made = chosen(request), cases()
    asked = [{"config": config, "ranks": ranks} for config, ranks in (made[name] for name in names)]
    return dict(zip(names, answer("trained_alike", asked=asked, seconds=900), strict=True))


@pytest.mark.parametrize("name", cases())
def test_ten_steps_have_the_losses_of_plain_pytorch_and_resume_with_them(name: str, answers: dict[str, Any]) -> None:
    told = answers[name]
    assert not told["error"], told["error"]
    tolerance = BF16 if "bf16" in name else FP32
    assert told["engine"] == pytest.approx(told["plain"], abs=tolerance)
    assert told["resumed"][0] == pytest.approx(told["engine"][5], abs=SAME)
    assert told["resumed"] == pytest.approx(told["engine"][5:], abs=RESUMED[tolerance])
    assert told["plain"][0] - told["plain"][-1] > FALLEN  # what is compared is training, not noise
