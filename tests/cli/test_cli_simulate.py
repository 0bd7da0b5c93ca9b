"""`dsgen simulate` without DeepSpeed: its options, its pages from a made-up answer, its exit codes."""

from __future__ import annotations

import copy
import io
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from simulated import ANSWER, CONFIG, GIB, MODEL, answering, asked, refusal

from dsgen.cli import main
from dsgen.report import footprints, simulation, simulation_page, timeline
from dsgen.simulating import Options, Simulation, from_config, simulate

SVG = "{http://www.w3.org/2000/svg}"
PAIR = ("gpu", "host")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a config and a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text("// ours\n" + json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def by_config(here: Path, *arguments: str, answer: Any = ANSWER) -> int:
    """The command with a config of one's own and an answer given to it."""
    basis = ("--config", "ds.json", "--model", "config.json", "--world-size", "16")
    return run(*basis, "--python", answering(here, answer), *arguments)


def found(folder: Path, **more: Any) -> Simulation:
    request = from_config(CONFIG, model=MODEL, world_size=16, options=Options(steps=1), **more)
    return simulate(request, python=answering(folder))


@pytest.mark.parametrize("watched", [True, False])
def test_seconds_are_counted_where_somebody_looks(here: Path, monkeypatch: pytest.MonkeyPatch, watched: bool) -> None:
    """The line on stderr is gone in the end; a file gets none of it."""
    monkeypatch.setattr("dsgen.cli.simulate._TICK_SECONDS", 0.01)
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: watched, raising=False)
    monkeypatch.setattr(sys, "stderr", errors)

    assert by_config(here) == 0

    if watched:
        assert re.search(r"\r.* \.\.\. 0 s\x1b\[K", errors.getvalue())
        assert errors.getvalue().endswith("\r\x1b[K")
    else:
        assert errors.getvalue() == ""


def test_a_scenario_is_planned_rendered_and_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--hw", "a100-40g", "--model", "7b", "--zero-stage", "3", "--seq-len", "2048", "--rank", "3")

    code = run(*options, "--steps", "1", "--python", answering(here))

    question = asked(here)
    assert code == 0
    assert question["config"]["zero_optimization"]["stage"] == 3
    assert (question["rank"], question["steps"], question["seq_len"], question["world_size"]) == (3, 1, 2048, 8)
    assert capsys.readouterr().out.startswith("7b on 8 GPUs (a100-40g): ZeRO-3")


def test_what_fits_nowhere_is_simulated_all_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person wants to see where it dies; what would fit is said beside it."""
    pins = ("--zero-stage", "2", "--offload", "none", "--tp", "1", "--micro-batch", "4", "--checkpointing", "full")

    run("--hw", "a100-40g", "--gpus", "2", "--model", "13b", *pins, "--python", answering(here))

    question, said = asked(here), capsys.readouterr().err
    assert question["config"]["zero_optimization"]["stage"] == 2
    assert (question["config"]["train_micro_batch_size_per_gpu"], question["checkpointing"]) == (4, True)
    assert said.startswith("warning: 13b at 4096 tokens fits nowhere on 2 GPUs of 39.4 GiB with ")
    assert "; simulated all the same\n" in said
    assert "fits with --method qlora" in said


def test_what_cannot_run_is_not_simulated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins = ("--zero-stage", "2", "--tp", "3", "--micro-batch", "4")

    assert run("--hw", "a100-40g", "--gpus", "2", "--model", "13b", *pins, "--python", answering(here)) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_behind_a_checkpoint_come_the_scripts_that_read_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """26.9 GB of fp32 weights, which each of six files has below stage 3; of a config nobody knows the trained part."""
    options = ("--hw", "a100-80g", "--model", "7b", "--zero-stage", "2", "--checkpoint", "--python", answering(here))

    run(*options, "--format", "json")
    told = json.loads(capsys.readouterr().out)
    run(*options)
    page = capsys.readouterr().out
    by_config(here, "--checkpoint")

    scripts = {one["name"]: one for one in told["conversions"]}
    assert scripts["zero_to_fp32"]["host_bytes"] == 4 * 6_738_415_616
    assert scripts["zero_to_fp32"]["disk_bytes"] == 6 * 4 * 6_738_415_616
    assert told["written"]["weights"] == 2 * 2 * 6_738_415_616
    assert re.search(r"^zero_to_fp32 +0\.00 +25\.1 +151$", page, re.MULTILINE)
    assert "--max_shard_size 27GB makes one file" in page
    assert "dsgen memory --config says what they take" in capsys.readouterr().out


def test_where_memory_runs_out_first_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = copy.deepcopy(ANSWER)
    told = answer["peak"]["gpu"]["allocator"]

    by_config(here, "--hw", "a100-40g", answer=answer)
    assert "a smaller GPU would run out first in backward 1 of step 1, where 2.0 GiB" in unfolded(capsys)
    told["out_of_memory"], told["shortage"]["later"], told["shortage"]["bytes"] = True, True, 250 * 2**20
    by_config(here, "--hw", "a100-40g", answer=answer)
    words = (
        "memory runs out in backward 1 of a later step, where 250 MiB are asked for (logits and loss, engine.py:2345)"
    )
    assert words in unfolded(capsys)
    told["shortage"] = None
    by_config(here, "--hw", "a100-40g", answer=answer)
    assert "memory runs out in" not in unfolded(capsys)


def test_the_phase_that_a_nodes_ram_ends_in_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of a node's processes take 24 GiB before a tensor is there."""
    by_config(here, "--hw", "a100-40g", "--host-memory", "16GiB")
    assert "load is the first that has no room; 8 ranks" in unfolded(capsys)
    by_config(here, "--hw", "a100-40g", "--host-memory", "4GiB", "--gpus-per-node", "1")
    assert "has no room; the only rank of its node" in unfolded(capsys)
    by_config(here, "--hw", "a100-40g")
    assert "has no room" not in unfolded(capsys)


def unfolded(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, in one line."""
    return " ".join(capsys.readouterr().out.split())


def test_what_only_the_engine_knows_is_planned_as_its_nearest(here: Path) -> None:
    options = ("--hw", "a100-40g", "--model", "7b", "--checkpointing", "deepspeed", "--attention", "math")

    assert run(*options, "--python", answering(here)) == 0

    assert (asked(here)["checkpointing"], asked(here)["attention"]) == ("deepspeed", "math")


def test_a_scenario_file_is_taken_and_world_size_says_its_gpus(here: Path) -> None:
    (here / "scenario.yaml").write_text("hw: a100-40g\nmodel: 7b\nnetwork: ib-hdr-200g\n", encoding="utf-8")

    assert run("scenario.yaml", "--world-size", "16", "--python", answering(here)) == 0

    assert asked(here)["world_size"] == 16


def test_a_config_is_taken_as_it_is_with_what_the_options_say(here: Path) -> None:
    more = ("--checkpointing", "full", "--attention", "sdpa", "--method", "lora", "--lora-rank", "4", "--lora-targets",
            "q_proj,v_proj", "--lora-dropout", "0.05", "--lora-train-embeddings", "--chunked-loss", "--seq-len", "32",
            "--rank", "2", "--gpus-per-node", "4", "--force", "--dtype", "fp32")  # fmt: skip

    assert by_config(here, *more) == 0

    question = asked(here)
    assert (question["config"], question["model"]) == (CONFIG, MODEL)
    told = {"world_size": 16, "gpus_per_node": 4, "rank": 2, "steps": 2, "seq_len": 32, "attention": "sdpa",
            "checkpointing": True, "method": "lora", "lora_rank": 4, "lora_targets": ["q_proj", "v_proj"],
            "lora_dropout": 0.05, "lora_train_embeddings": True, "chunked_loss": True, "dtype": "float32",
            "force": True}  # fmt: skip
    assert {name: question[name] for name in told} == told


def test_hardware_beside_a_config_gives_limits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_config(here, "--hw", "a100-40g", "--format", "json") == 0
    named = json.loads(capsys.readouterr().out)
    assert by_config(here, "--gpu-memory", "80GiB", "--format", "json") == 0
    sized = json.loads(capsys.readouterr().out)
    assert by_config(here, "--format", "json") == 0
    none = json.loads(capsys.readouterr().out)

    assert (named["verdict"], named["gpu"]["verdict"]) == ("fits", "fits")
    assert 39 * GIB < named["gpu"]["limit_bytes"] < 40 * GIB < 78 * GIB < sized["gpu"]["limit_bytes"] < 80 * GIB
    assert (none["verdict"], none["gpu"]["limit_bytes"], none["host"]["verdict"]) == (None, None, None)


@pytest.mark.parametrize(
    ("memory", "code", "verdict"),
    [("14.6GiB", 0, "uncertain"), ("12GiB", 1, "does not fit"), ("40GiB", 0, "fits")],
)
def test_the_exit_code_is_1_where_it_does_not_fit(
    here: Path, capsys: pytest.CaptureFixture[str], memory: str, code: int, verdict: str
) -> None:
    assert by_config(here, "--gpu-memory", memory, "--format", "json") == code

    said = capsys.readouterr()
    assert json.loads(said.out)["gpu"]["verdict"] == verdict
    assert ("not certain to fit" in said.err) is (verdict == "uncertain")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--config", "ds.json", "--model", "7b", "--world-size", "8", "--zero-stage", "2"),
            "--zero-stage describes a",
        ),
        (("--config", "ds.json", "--model", "7b", "--world-size", "8", "--set", "a=1"), "--set describes a scenario"),
        (("scenario.yaml", "--config", "ds.json", "--model", "7b"), "scenario.yaml describes a scenario"),
        (("--config", "ds.json", "--world-size", "8"), "--config needs a model"),
        (("--config", "ds.json", "--model", "7b"), "--config needs the number of GPUs"),
        (("--config", "none.json", "--model", "7b", "--world-size", "8"), "there is no such file"),
        (
            ("--config", "ds.json", "--model", "7b", "--world-size", "8", "--rank", "8"),
            "rank is 8; it must be from",
        ),
        (("ds.json",), "To simulate a DeepSpeed config: --config ds.json"),
        (("--hw", "a100-40g", "--model", "7b", "--gpus-per-node", "4"), "--gpus-per-node is for --config"),
        (("--hw", "a100-40g", "--model", "7b", "--target", "hf-trainer"), "--target is for --config"),
    ],
)
def test_a_mistake_exits_with_2_and_says_what_to_do(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err


def test_what_deepspeed_refuses_exits_with_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = refusal("ValueError", "bad bucket", "deepspeed/runtime/zero/config.py:1 in f")

    assert by_config(here, answer=answer) == 2
    assert "error: DeepSpeed refuses it in init: ValueError: bad bucket" in capsys.readouterr().err


def test_a_yaml_file_that_holds_a_config_fixes_program_and_ranks(here: Path) -> None:
    (here / "train.yaml").write_text(
        "learning_rate: 1.0e-5\ndeepspeed:\n  train_micro_batch_size_per_gpu: auto\n  zero_optimization: {stage: 2}\n",
        encoding="utf-8",
    )

    assert run("--config", "train.yaml", "--model", "7b", "--gpus", "8", "--python", answering(here)) == 0

    assert asked(here)["config"]["train_micro_batch_size_per_gpu"] == 8  # TrainingArguments' default


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_page_keeps_to_its_width(tmp_path: Path, width: int) -> None:
    page = simulation.text(found(tmp_path), width, every=True)

    assert max(map(len, page.splitlines())) <= width


def test_the_page_tells_places_phases_tensors_and_collectives(tmp_path: Path) -> None:
    lines = simulation.text(found(tmp_path), 80).splitlines()

    assert lines[0] == "llama with <config> on 16 GPUs"
    assert "GPU   12.0 GiB (up to 12.8); peak in backward 1 of step 1" in lines
    assert "      torch allocates 12.0 and reserves 13.0 GiB; it needs 12.8 not to run out" in lines
    assert "      (with expandable_segments it reserves 12.5 and needs 12.2)" in lines
    page = " ".join(" ".join(lines).split())
    assert "LlamaForCausalLM, 6.74 B parameters, ZeRO stage 3, 1 x 64 tokens, 2 passes a step; rank 0 of 16" in page
    assert (
        "8 ranks of a node, all alike: 8 x 6.0 GiB, 40.0 GiB of it page-locked, 64.0 as torch rounds up and keeps it"
        in page
    )
    assert "step 1: backward 1 to 2 12.0 3.0 48.0 48.0" in page
    assert "4.0 activations 32 x bf16 1x2048x4096 modeling_llama.py:312" in page
    assert "forward all-gather 16 10 3.0 512.0" in page
    assert "barrier" not in page
    assert "the real DeepSpeed 0.19.8 (torch 2.13.0, transformers 5.23.0) on a virtual GPU" in page
    assert "no GPU was used" in lines[-1]


def test_the_headline_says_what_is_not_as_usual(tmp_path: Path) -> None:
    adapters = {"method": "qlora", "lora_rank": 8, "lora_dropout": 0.05, "lora_train_embeddings": True}
    options = Options(checkpointing="deepspeed", attention="eager", chunked_loss=True, **adapters)

    found_ = simulate(from_config(CONFIG, model=MODEL, world_size=16, options=options), python=answering(tmp_path))

    line = list(simulation.headlines(found_))[1]
    assert (
        "qlora of rank 8, dropout 0.05, embedding and head beside it, DeepSpeed's checkpointing, eager attention, "
        "chunked loss; rank 0 of 16" in line
    )
    assert list(simulation.headlines(found(tmp_path)))[1].endswith("2 passes a step; rank 0 of 16")


def test_alike_micro_batches_are_one_row_and_others_their_own(tmp_path: Path) -> None:
    estimate = found(tmp_path).estimate

    names = [row[0] for row in footprints.phase_rows(estimate.phases)]

    assert names == ["phase", "load", "init", "step 1: forward 1 to 2", "step 1: backward 1 to 2",
                     "step 1: optimizer step"]  # fmt: skip


def test_the_data_adds_up_and_is_whole_bytes(tmp_path: Path) -> None:
    told = json.loads(json.dumps(simulation.data(found(tmp_path))))

    for place in PAIR:
        assert sum(told[place]["parts"].values()) == told[place]["peak_bytes"]
        assert told[place]["overhead_bytes"] == sum(told[place]["overhead"].values())
        for phase in told["phases"]:
            assert sum(phase[place]["parts"].values()) == phase[place]["peak_bytes"]
            assert sum(phase[place]["end_parts"].values()) == phase[place]["end_bytes"]
        assert max(one["bytes"] for one in told["timeline"][place]) == told[place]["peak_bytes"]
    assert (told["gpu"]["allocated_bytes"], told["gpu"]["reserved_bytes"]) == (12 * GIB + 512, 13 * GIB)
    assert (told["host"]["ranks"], told["host"]["per_rank_bytes"]) == (8, 6 * GIB)
    assert _floats(told) == {"lora_dropout", "seconds"}


def _floats(told: Any, name: str = "") -> set[str]:
    """The names under which numbers that are not whole stand."""
    if isinstance(told, dict):
        return {one for key, value in told.items() for one in _floats(value, key)}
    if isinstance(told, list):
        return {one for value in told for one in _floats(value, name)}
    return {name} if isinstance(told, float) else set()


def test_the_drawing_is_well_formed_and_has_an_area_for_every_kind(tmp_path: Path) -> None:
    root = ElementTree.fromstring(timeline.svg(found(tmp_path)).partition("\n")[2])

    assert root.tag == f"{SVG}svg"
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "dsgen-title dsgen-desc")
    assert {root[0].tag, root[1].tag} == {f"{SVG}title", f"{SVG}desc"}
    assert "peak 12.0 GiB" in str(root[1].text)
    areas = [path.find(f"{SVG}title") for path in root.iter(f"{SVG}path")]
    kinds = [str(area.text).partition(":")[0] for area in areas if area is not None]
    assert kinds == ["weights", "gradients", "gathered parameters", "activations", "logits and loss",
                     "fp32 master weights", "optimizer states"]  # fmt: skip
    labels = {text.text for text in root.iter(f"{SVG}text")}
    assert {"one GPU", "one node's RAM, 8 ranks", "forward", "backward", "step 1", "start"} <= labels


def test_the_drawings_peak_is_as_high_as_the_parts_say(tmp_path: Path) -> None:
    """The top of the highest area stands at peak / top of the scale, which lies 6 % above the peak."""
    root = ElementTree.fromstring(timeline.svg(found(tmp_path)).partition("\n")[2])
    area = next(
        path
        for path in root.iter(f"{SVG}path")
        if path.find(f"{SVG}title") is not None and "logits" in str(path.find(f"{SVG}title").text)  # type: ignore[union-attr]
    )
    grid = [float(re.findall(r"M64 ([\d.]+)H", str(path.get("d")))[0]) for path in root.iter(f"{SVG}path")
            if path.get("class") == "grid" and "H" in str(path.get("d"))]  # fmt: skip
    tops = [float(number) for number in re.findall(r"V([\d.]+)H", str(area.get("d")))]

    assert min(tops) == pytest.approx(grid[0] - 280 / 1.06, abs=0.2)


@pytest.mark.parametrize(("memory", "drawn"), [(20 * GIB, True), (100 * GIB, False)])
def test_a_limit_is_drawn_where_it_is_in_reach(tmp_path: Path, memory: int, drawn: bool) -> None:
    import attrs

    import dsgen
    from dsgen.simulating import hardware_of

    card = attrs.evolve(hardware_of(dsgen.profile("a100-40g").layers), usable_memory_bytes=memory)
    root = ElementTree.fromstring(timeline.svg(found(tmp_path, hardware=card)).partition("\n")[2])

    first = root.findall(f"{SVG}path[@class='limit']")
    words = " ".join(str(text.text) for text in root.iter(f"{SVG}text"))
    assert (f"limit {memory // GIB}" in words, "far above" in words.partition("one node")[0]) == (True, not drawn)
    assert len(first) == int(drawn)


def test_the_web_page_stands_alone_and_tells_the_parts(tmp_path: Path) -> None:
    page = simulation_page.html(found(tmp_path))

    assert page.startswith("<!DOCTYPE html>")
    assert not re.findall(r"(?:src|href)=|url\(|<script", page)
    assert "4,294,967,296" in page
    assert page.count("<title") > 5
    assert "prefers-color-scheme:dark" in page


def test_names_are_escaped_in_drawing_and_page(tmp_path: Path) -> None:
    odd = found(tmp_path, title="<b>&ds.json")

    ElementTree.fromstring(timeline.svg(odd).partition("\n")[2])
    assert "&lt;b&gt;&amp;ds.json" in simulation_page.html(odd)
    assert "<b>&ds" not in simulation_page.html(odd)


@pytest.mark.parametrize("form", ["text", "json", "svg", "html"])
def test_every_format_goes_to_a_file(here: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert by_config(here, "--format", form, "-o", "out") == 0
    assert by_config(here, "--format", form) == 0

    written = (here / "out").read_text(encoding="utf-8")
    assert written == capsys.readouterr().out
    assert len(written) > 500


@pytest.mark.parametrize(
    ("more", "checkpoints", "words"),
    [
        (("--hw", "a100-80g"), True, "with checkpointing, as dsgen memory chooses it where nobody says it"),
        (("--hw", "b300-288g"), False, "without checkpointing, as dsgen memory chooses it where nobody says it"),
        ((), False, "without checkpointing: nobody says it"),
        (("--hw", "a100-80g", "--checkpointing", "none"), False, None),
        (("--hw", "b300-288g", "--checkpointing", "full"), True, None),
        (
            ("--hw", "a100-80g", "--gpus-per-node", "4", "--network", "ib-hdr-200g", "--attention", "math"),
            True,
            "with ch",
        ),
    ],
)
def test_a_config_checkpoints_where_memory_says_that_it_does(
    here: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], checkpoints: bool, words: str | None
) -> None:
    """It ran without, silently, where memory of the same config and options chose to checkpoint."""
    config = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    (here / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    basis = ("--config", "ds.json", "--model", "llama-3.1-8b", "--world-size", "8")

    run(*basis, *more, "--python", answering(here))
    shown = " ".join(capsys.readouterr().out.split())
    assert asked(here)["checkpointing"] is checkpoints
    if words is None:
        assert "nobody says it" not in shown
    else:
        assert words in shown
    if more and "math" not in more:
        with pytest.raises(SystemExit):
            main(["memory", *basis, *more, "--format", "json"])
        assert json.loads(capsys.readouterr().out)["question"]["checkpointing"] is checkpoints


def test_kept_logits_are_asked_of_the_engine_and_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_config(here, "--eval-batch", "2", "--eval-keep", "3") == 0
    assert (asked(here)["evaluation"], asked(here)["kept"]) == (2, 3)
    assert "evaluation of 2 sequences, logits of 3 batches of it kept" in " ".join(capsys.readouterr().out.split())

    assert by_config(here, "--eval-keep", "3") == 2
    assert "--eval-batch 8" in capsys.readouterr().err


def test_what_is_generated_is_counted_by_memory_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hw", "a100-80g", "--model", "7b", "--generate", "512") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "No such option '--generate': dsgen memory --generate TOKENS counts it" in said
