"""An optimizer by the names that programs have for it, and by those alone."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.linting.said_jobs import wishes
from dsgen.shapes.errors import DsgenError

BASE = dsgen.profile("a100-40g") | dsgen.profile("7b")


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("lion", "Lion"), ("ADAMW", "AdamW"), ("adamw8bit", "AdamW8bit"), ("AdamW-8bit", "AdamW8bit"),
     ("adamw_bnb_8bit", "AdamW8bit"), ("adamw_torch_fused", "AdamW"), ("lion_32bit", "Lion"),
     ("paged_adamw_8bit", "AdamW8bit"), ("paged_adamw_32bit", "AdamW"), ("paged_lion_32bit", "Lion")],
)  # fmt: skip
def test_every_name_of_an_optimizer_means_it(name: str, optimizer: str) -> None:
    job = dsgen.job(BASE | {"training": {"optimizer": name}})
    told = [text for text in job.warnings if text.startswith(f"{name} (python) is counted as {optimizer}")]

    assert job.training.optimizer == optimizer
    assert len(told) == name.startswith("paged")
    assert wishes({"optimizer": name}) == wishes({"optimizer": optimizer})


@pytest.mark.parametrize("name", ["lion_8bit", "paged_sgd", "adafactor", "galore_adamw", "adam w", ""])
def test_another_optimizer_is_refused(name: str) -> None:
    with pytest.raises(DsgenError, match="it must be one of AdamW, Adam, Lion"):
        dsgen.job(BASE | {"training": {"optimizer": name}})


def test_a_name_counts_as_what_it_means() -> None:
    wanted = {"hw": "a100-40g", "model": "7b", "gpus": 8, "zero_stage": 2, "offload": "none", "micro_batch": 1}
    paged, plain = (dsgen.memory({**wanted, "optimizer": name}).memory for name in ("paged_adamw_8bit", "AdamW8bit"))

    assert paged.gpu == plain.gpu
