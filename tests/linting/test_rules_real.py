"""Every rule that calls something an error, held against the real DeepSpeed: its example stops, the other starts."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import attrs
import pytest

from dsgen.asking.foresight import UNEXPLAINED, explains
from dsgen.deepspeed import surface
from dsgen.documents.hjson import reader
from dsgen.linting.linter import lint
from dsgen.linting.rules import RULES, Rule
from dsgen.linting.subjects import Facts
from dsgen.proving.endings import one_line
from dsgen.shapes.findings import Finding, Severity

pytestmark = pytest.mark.proof

SERVER = Path(__file__).parents[1] / "helpers" / "deepspeed_verdicts.py"
FIELDS = {field.name for field in attrs.fields(Facts)}
# What the child cannot be: another release, another program, a machine with other hardware.
ELSEWHERE = {"deepspeed", "target", "hardware", "model", "network"}
# The child runs on a CPU: DeepSpeed's CPU optimizers only mind a model on a GPU. What to write instead of the NVMe
# examples swaps for real, with an operator that takes minutes to build; the tests of `dsgen prove` do that. Nor does
# the child swap at all, for its tensors are too small: test_foreseen.py starts what has too few buffers, and a Llama
# of which AutoTP splits a part, for the child's model has no attention.
NOT_HERE = {"offload-optimizer-at-stage-0", "nvme-needs-libaio", "nvme-path-missing", "hpz-with-nvme",
            "nvme-buffers-too-few", "nvme-io-refused", "tensor-parallel-without-partner"}  # fmt: skip
PARALLEL = "DSG4"  # needs a model that DeepSpeed can split and as many ranks; the child's is two linear layers
NEED_A_MODEL = ("tensor-parallel-does-not-fit-gpus", "tensor-parallel-zero-3-batch")  # AutoTP refuses the child's first
RANKS = 8  # of a parallel config whose rule names no number


def said(rule: Rule) -> list[Finding]:
    """What a rule says of its own example."""
    facts = Facts(**{name: value for name, value in rule.given.items() if name in FIELDS})
    found = lint(reader.read(rule.example, "example"), target="deepspeed", facts=facts)
    return [item for item in found if item.rule == rule.name]


def severity(rule: Rule) -> Severity | None:
    """The worst of it."""
    return max((item.severity for item in said(rule)), default=None)


PROVABLE = [
    rule
    for rule in RULES
    if rule.reads == "config"
    and rule.name not in NOT_HERE
    and not ELSEWHERE & set(rule.given)
    and severity(rule) is Severity.ERROR
]


@pytest.fixture(scope="module")
def ask() -> Iterator[Any]:
    """Sends a config to the child and gives DeepSpeed's verdict."""
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        yield functools.partial(verdict, child.stdin, child.stdout)


def verdict(asks: IO[str], answers: IO[str], rule: Rule, text: str) -> str:
    """What DeepSpeed says of one of a rule's configs."""

    config = reader.read(text, "example").config
    if rule.given.get("client_optimizer") is None and "optimizer" not in config:
        config = {**config, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    world = rule.given.get("world_size") or (RANKS if rule.code.startswith(PARALLEL) else 1)
    fp16 = rule.given.get("accelerator") != "cpu"
    client = rule.given.get("client_optimizer") == "torch"
    asks.write(json.dumps({"config": config, "world": world, "fp16": fp16, "client": client}) + "\n")
    asks.flush()
    return str(json.loads(answers.readline()))


def test_there_are_rules_to_prove() -> None:
    assert len(PROVABLE) > 20


@pytest.mark.parametrize("rule", PROVABLE, ids=lambda rule: rule.name)
def test_deepspeed_refuses_the_example_and_takes_the_other(rule: Rule, ask: Any) -> None:
    refused, taken = ask(rule, rule.example), ask(rule, rule.instead)

    assert refused.partition(":")[0] in ("parse", "init", "step")
    if not ("model policy" in refused and rule.name in NEED_A_MODEL):
        words, config = one_line(refused.partition(": ")[2]), reader.read(rule.example, "example").config
        known = surface.load()
        assert min(explains(item, config, words, known) for item in said(rule)) < UNEXPLAINED, refused
    if rule.code.startswith(PARALLEL):
        assert taken != refused or "model policy" in taken
        assert not taken.startswith("parse")
    else:
        assert taken == "ok"
