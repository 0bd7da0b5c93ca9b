"""What lies on a card and what shows it, in the words of its maker's software."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import dsgen
from dsgen.cli import main
from dsgen.memory import expandable
from dsgen.shapes.makers import NVIDIA, maker_of

OTHERS = {"mi300x-192g": ("HIP context", "RCCL", "rocm-smi"), "gaudi2-96g": ("HPU context", "HCCL", "hl-smi")}
OF_NVIDIA = re.compile(r"nvidia-smi|\bNCCL\b|CUDA|cuBLAS|expandable segments on")
JOB = ("--model", "7b", "--gpus", "8")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints of one job on both streams."""

    def answered(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main([*arguments, *JOB])
        return "".join(capsys.readouterr())

    return answered


@pytest.mark.parametrize("hw", OTHERS)
@pytest.mark.parametrize(
    "command",
    [
        ("memory",),
        ("memory", "--format", "html"),
        ("memory", "--observed", "reserved=50GiB", "--observed", "nvidia-smi=60GiB"),
        ("render",),
        ("plan",),
        ("launch", "--target", "hf-trainer", "--script", "train.py", "--dry-run"),
    ],
    ids=" ".join,
)
def test_nothing_of_nvidia_s_is_said_of_another_maker_s_card(
    said: Callable[..., str], hw: str, command: tuple[str, ...]
) -> None:
    assert OF_NVIDIA.findall(said(*command, "--hw", hw)) == []


@pytest.mark.parametrize(("hw", "words"), OTHERS.items())
def test_memory_names_them(said: Callable[..., str], hw: str, words: tuple[str, str, str]) -> None:
    context, collectives, tool = words
    text = said("memory", "--hw", hw)

    assert f"{context} " in text
    assert f"{collectives} buffers " in text
    assert f"; {tool} " in text


@pytest.mark.parametrize("hw", [*OTHERS, "a100-80g"])
def test_the_json_says_whose_tool_shows_it(said: Callable[..., str], hw: str) -> None:
    told = json.loads(said("memory", "--hw", hw, "--format", "json"))
    tool = OTHERS[hw][2] if hw in OTHERS else None

    assert told["card"].get("shown_by") == tool
    assert told["gpu"].get("shown_by") == tool
    assert told["card"]["nvidia_smi_bytes"] > told["card"]["reserved_bytes"]


@pytest.mark.parametrize(
    ("hw", "tool"), [("mi300x-192g", "rocm-smi"), ("gaudi2-96g", "hl-smi"), ("a100-40g", "amd-smi")]
)
def test_a_person_names_the_tool_that_they_have(said: Callable[..., str], hw: str, tool: str) -> None:
    text = said("memory", "--hw", hw, "--observed", f"{tool}=30GiB")

    assert f"your run: {OTHERS[hw][2] if hw in OTHERS else 'nvidia-smi'} 30.0 GiB" in text


def test_a_reading_too_large_is_said_of_the_tool_that_was_named(said: Callable[..., str]) -> None:
    text = said("memory", "--hw", "gaudi2-96g", "--observed", "hl-smi=150GiB")

    assert "--observed hl-smi is 150 GiB; the GPU has 96.0" in text


@pytest.mark.parametrize("hw", OTHERS)
def test_segments_that_do_not_grow_are_said(said: Callable[..., str], hw: str) -> None:
    asked = " ".join(said("memory", "--hw", hw, "--expandable-segments").split())
    plain = said("memory", "--hw", hw)

    vendor = dsgen.plan({"hw": hw, "model": "7b"}).job.hardware.vendor
    assert f"note: expandable segments are not counted: {maker_of(vendor).fixed}" in asked
    assert "expandable segments are" not in plain
    assert ("expandable segments off" in " ".join(plain.split())) is (hw == "mi300x-192g")


def test_a_card_of_no_maker_is_one_of_nvidia_s() -> None:
    job = dsgen.plan({"hw": "generic-24g", "model": "1b", "gpus": 1}).job

    assert maker_of(job.hardware.vendor) == NVIDIA
    assert expandable(job)
