"""The comparison with a real GPU, as far as it needs none: cases, errors, table, children that fail, records."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsgen.engine.simulate.requests import filled
from dsgen.memory.limits import RANK_PROCESS_BYTES

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 2**30
WORKSPACES = 2 * 32 * 2**20  # of a Hopper


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module


def measured(allocated: int, reserved: int, **more: Any) -> dict[str, Any]:
    return {
        "versions": {"torch": "2.13.0", "flash_attn": None},
        "card": {
            "name": "NVIDIA H100 80GB HBM3",
            "capability": [9, 0],
            "driver": "580.1",
            "total_bytes": 80 * GIB,
            "context_bytes": 500 * 2**20,
        },
        "peak": {"allocated_bytes": allocated, "reserved_bytes": reserved},
        "after": {"outside_bytes": 700 * 2**20},
        **more,
    }


def simulated(allocated: int, reserved: int, out_of_memory: bool = False) -> dict[str, Any]:
    peaks = {"allocated_peak_bytes": allocated, "reserved_peak_bytes": reserved}
    return {"versions": {"torch": "2.13.0"}, "allocator": {**peaks, "out_of_memory": out_of_memory}}


def test_every_case_is_a_valid_request_of_a_name_of_its_own(module):
    found = module("gpu_memory_cases").cases()

    assert len({case.name for case in found}) == len(found) >= 40
    assert len({json.dumps(case.request, sort_keys=True) for case in found}) == len(found)
    for case in found:
        assert filled(case.request)["world_size"] == 1


def test_the_cases_cover_what_moves_memory(module):
    cases = [filled(case.request) for case in module("gpu_memory_cases").cases()]
    zero = [case["config"]["zero_optimization"] for case in cases]

    assert {part["stage"] for part in zero} == {0, 1, 2, 3}
    assert {("offload_optimizer" in part, "offload_param" in part) for part in zero} >= {
        (False, False),
        (True, False),
        (True, True),
        (False, True),
    }
    assert {case["dtype"] for case in cases} == {"bfloat16", "float16", "float32"}
    assert {case["attention"] for case in cases} == {"sdpa", "eager", "flash"}
    assert {case["method"] for case in cases} == {"full", "lora"}
    assert {case["checkpointing"] for case in cases} == {True, False}
    assert {case["config"]["gradient_accumulation_steps"] for case in cases} == {1, 2}
    lengths = {case["seq_len"] for case in cases}
    assert min(lengths) == 512 and max(lengths) == 32768
    assert {case["config"]["train_micro_batch_size_per_gpu"] for case in cases} >= {1, 16}
    assert {case["model"]["model_type"] for case in cases} >= {"opt", "gpt2", "llama", "qwen2"}


def test_what_is_said_of_ram_is_what_a_process_held_and_never_less(module):
    """Tensors, torch's page-locked reserve and the allowance for a process, of each run that offloads on the card."""
    records = json.loads((REPOSITORY / "benchmarks" / "gpu_memory.json").read_text("utf-8"))["cases"]
    ram = module("gpu_memory_ram")
    away = {name: one for name, one in records.items() if "host_reserve_bytes" in one["simulated"]}

    assert len(away) == 7
    for one in away.values():
        said = one["simulated"]["host_bytes"] + one["simulated"]["host_reserve_bytes"] + RANK_PROCESS_BYTES
        assert 1 <= said / one["measured"]["rss_bytes"] < 1.03
        assert ram.besides(one) <= RANK_PROCESS_BYTES
    assert ram.markdown(records).count("\n| qwen2.5-0.5b, ") == 2


def test_a_sequence_is_not_longer_than_the_model_takes(module):
    learned = {"opt": "max_position_embeddings", "gpt2": "n_positions"}  # a longer one has no embedding

    for case in module("gpu_memory_cases").cases():
        key = learned.get(case.request["model"]["model_type"])
        assert key is None or case.request["seq_len"] <= case.request["model"][key]


def test_an_error_is_signed_and_counts_the_workspaces(module):
    table = module("gpu_memory_table")
    record = {"measured": measured(100 * GIB, 110 * GIB), "simulated": simulated(101 * GIB - WORKSPACES, 99 * GIB)}

    found = table.row("a case", record)

    assert found.errors[0] == pytest.approx(0.01)
    assert found.errors[1] == pytest.approx(-0.1, abs=0.001)
    assert found.within == (True, False)
    assert found.note == ""


@pytest.mark.parametrize(
    ("capability", "mib"), [([7, 5], 16.25), ([8, 0], 16.25), ([9, 0], 64), ([10, 0], 64), ([12, 0], 64)]
)
def test_the_workspaces_are_those_of_the_card(module, capability, mib):
    assert module("gpu_memory_table").workspace_bytes(capability) == mib * 2**20


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "the card: not run; the simulation: not run"),
        ({"measured": {"not_run": "flash_attn is not installed"}}, "the card: not run, flash_attn is not installed"),
        (
            {"measured": {"error": {"type": "OutOfMemoryError", "message": "CUDA | out\nmore", "phase": "step"}}},
            "the card: OutOfMemoryError in step, CUDA / out",
        ),
        ({"simulated": simulated(1, 1, out_of_memory=True)}, "the simulation ran out of memory"),
    ],
)
def test_what_failed_is_a_row_with_its_reason(module, record, words):
    table = module("gpu_memory_table")

    assert words in table.row("a case", record).note
    assert table.row("a case", record).errors is None
    assert "| a case | " in table.markdown({"a case": record})


def test_the_table_drops_nothing_and_counts_what_is_within(module):
    table = module("gpu_memory_table")
    records = {
        "good": {"measured": measured(10 * GIB, 12 * GIB), "simulated": simulated(10 * GIB - WORKSPACES, 12 * GIB)},
        "far": {"measured": measured(10 * GIB, 12 * GIB), "simulated": simulated(5 * GIB - WORKSPACES, 12 * GIB)},
        "lost": {"measured": {"error": {"type": "Timeout", "message": "no answer"}}},
    }

    text = table.markdown(records)

    assert "3 cases, 2 compared: allocated within 2% in 1 (worst -50.0%), reserved within 5% in 2" in text
    assert "| good | 10.00 | 10.00 | +0.0% | 12.00 | 12.06 | +0.5% | 700 |  |" in text
    assert "| lost | – |" in text
    assert "Measured on NVIDIA H100 80GB HBM3, driver 580.1, torch 2.13.0." in text
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 2 + len(records)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        ("import sys; sys.stderr.write('first\\nlast words'); sys.exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
        ("import time; time.sleep(60)", "Timeout"),
    ],
)
def test_a_child_that_dies_or_hangs_answers_with_an_error(module, program, kind):
    found = module("gpu_memory").ask([sys.executable, "-c", program], {}, limit_seconds=3)

    assert found["error"]["type"] == kind
    assert found["error"]["message"]


def test_a_child_that_answers_is_heard(module):
    program = "import json, sys; print(json.dumps({'said': json.load(sys.stdin)}))"

    assert module("gpu_memory").ask([sys.executable, "-c", program], {"a": 1}) == {"said": {"a": 1}}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu_memory.py", *options]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": str(Path(sys.executable).parent)}
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False)


def test_a_dry_run_lists_the_cases_that_were_asked_for():
    done = run("--dry-run", "--only", "gpt2")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{len(done.stdout.splitlines()) - 1} cases"
    assert all(line.startswith("gpt2, zero-") for line in done.stdout.splitlines()[:-1])


def test_words_that_no_case_has_are_said():
    done = run("--dry-run", "--only", "gpt9")

    assert done.returncode == 1
    assert "no case has 'gpt9' in its name" in done.stderr


def test_a_record_is_written_only_with_update(module, tmp_path, monkeypatch):
    """A card and a simulation that are made up; a second run takes what is recorded."""
    program, asked = module("gpu_memory"), []

    def ask(command: list[str], question: dict[str, Any], limit_seconds: float = 1) -> dict[str, Any]:
        asked.append(question)
        if "check" in question:
            return {"first_call": None, "built": []}
        if command == program.MEASURE:
            return measured(10 * GIB, 12 * GIB)
        phase = {"phase": "load", "step": 0, "micro_batch": 0, "gpu": {"peak_bytes": 1, "end_bytes": 1}}
        place = {"bytes": 1, "parts": {"weights": 1}}
        gpu = {**place, "allocator": simulated(10 * GIB, 12 * GIB)["allocator"]}
        host = {**place, "pinned": {"bytes": 1, "reserved_bytes": 4}}
        return {"versions": {}, "peak": {"gpu": gpu, "host": host}, "phases": [phase], "seconds": 1}

    monkeypatch.setattr(program, "ask", ask)
    output = tmp_path / "found.json"
    options = ["gpu_memory.py", "--only", "opt-125m, zero-3", "--output", str(output)]

    monkeypatch.setattr(sys, "argv", options)
    program.main()
    assert not output.exists()

    monkeypatch.setattr(sys, "argv", [*options, "--update"])
    program.main()
    written = json.loads(output.read_text("utf-8"))["cases"]
    (record,) = written.values()
    assert set(record) == {"request", "measured", "simulated"}
    assert record["request"]["gpu_memory_bytes"] == 80 * GIB - 700 * 2**20 - WORKSPACES
    assert record["request"]["workspace_bytes"] == WORKSPACES // 2

    asked.clear()
    program.main()
    assert [list(question) for question in asked] == [["check"]]


def test_without_a_card_every_case_is_named_and_nothing_is_simulated(module, monkeypatch, capsys, tmp_path):
    program = module("gpu_memory")
    call = {"type": "AssertionError", "message": "Torch not compiled with CUDA enabled", "site": "torch/cuda:1"}

    def ask(command: list[str], question: dict[str, Any], limit_seconds: float = 1) -> dict[str, Any]:
        assert command == program.MEASURE
        built = [{"parameters": 1} for _ in question["check"]]
        return {"first_call": call, "built": [{"error": {"message": "no such model"}}, *built[1:]]}

    monkeypatch.setattr(program, "ask", ask)
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py", "--output", str(tmp_path / "none.json")])
    program.main()

    said = capsys.readouterr().out.splitlines()
    names = [case.name for case in module("gpu_memory_cases").cases()]
    assert said[0] == f"{len(names) - 1} of {len(names)} cases: model, DeepSpeed config and batch built"
    assert said[1] == f"cannot be built: {names[0]}: no such model"
    assert "not run: no CUDA device" in said[2] and call["message"] in said[2]
    assert said[3:] == [f"not run: {name}" for name in names]


def limits_tried(module: Any, monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is kept of the limits, where a child answers so in turn."""
    program, left = module("gpu_memory_limits"), iter(answers)
    monkeypatch.setattr(program, "ask", lambda command, question: next(left))
    tried: list[dict[str, Any]] = program._measured({"least_bytes": 1000}, {}, float("inf"))
    assert next(left, None) is None
    return tried


RAN = {"after": {"allocation_retries": 1}, "peak": {"reserved_bytes": 900}, "versions": {}}
DIED = {"error": {"type": "OutOfMemoryError", "message": "CUDA out of memory", "phase": "backward"}}
BROKEN = {"error": {"type": "RuntimeError", "message": "no compiler", "phase": "init"}}


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        ([RAN, DIED], [(1010, True), (990, False)]),
        ([DIED, RAN, DIED], [(1010, False), (1040, True), (990, False)]),
        ([RAN, RAN, RAN], [(1010, True), (990, True), (960, True)]),
        ([RAN, BROKEN], [(1010, True)]),
    ],
)
def test_a_limit_further_off_is_tried_where_a_run_did_otherwise(module, monkeypatch, answers, seen):
    tried = limits_tried(module, monkeypatch, answers)

    assert [(one["limit_bytes"], one["ran"]) for one in tried] == seen


def test_limits_that_were_tried_are_kept_where_there_is_no_card(module, monkeypatch, tmp_path, capsys):
    program, file = module("gpu_memory_limits"), tmp_path / "limits.json"
    file.write_text(program.RESULTS.read_text("utf-8"), encoding="utf-8")
    call = {"type": "AssertionError", "message": "Torch not compiled with CUDA enabled"}
    monkeypatch.setattr(program, "ask", lambda command, question, seconds=1: {"first_call": call, "built": []})
    monkeypatch.setattr(sys, "argv", ["gpu_memory_limits.py", "--measure", "--update", "--output", str(file)])

    program.main()

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "not run: no CUDA device: AssertionError: Torch not compiled with CUDA enabled"
    assert sum(line.startswith("not run: ") for line in said) == 1 + len(program.CASES)
    assert json.loads(file.read_text("utf-8")) == json.loads(program.RESULTS.read_text("utf-8"))
