"""The command line as a person uses it: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import json
import re

import pytest

from dsgen.cli import COMMANDS, main
from dsgen.documents.hjson import reader as hjson

MAIN = ["--hw", "a100-40g", "--model", "7b"]


@pytest.fixture
def run(capsys):
    """Run the command line; gives the exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def test_render_prints_the_config_and_nothing_else_on_stdout(run):
    code, out, err = run("render", *MAIN)

    assert code == 0
    assert json.loads(out)["train_batch_size"] == 256
    assert out.endswith("}\n")
    assert err.splitlines()[0].endswith("= 256, bf16")
    assert "Next: -o ds_config.json, dsgen prove ds_config.json" in err


def test_the_summary_keeps_to_80_columns(run):
    _, _, err = run("render", *MAIN)

    assert max(map(len, err.splitlines())) <= 80


@pytest.mark.parametrize("more", [(), ("--gpus", "64", "--all")])
def test_a_plan_and_its_warnings_keep_to_80_columns(run, monkeypatch, more):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = run("plan", *MAIN, *more)

    assert re.search(r"^GPU .*\n      peak in \w+$", out, re.MULTILINE)
    assert max(map(len, [*out.splitlines(), *err.splitlines()])) <= 80


def test_quiet_says_nothing(run):
    code, _, err = run("render", *MAIN, "-q")

    assert (code, err) == (0, "")


def test_output_goes_to_a_file_whole(run, tmp_path):
    target = tmp_path / "ds_config.json"
    code, out, err = run("render", *MAIN, "-o", str(target))

    assert (code, out) == (0, "")
    assert json.loads(target.read_text())["train_batch_size"] == 256
    assert f"wrote {target}" in err
    assert [path.name for path in tmp_path.iterdir()] == ["ds_config.json"]


def test_a_written_file_keeps_its_mode_and_its_link(run, tmp_path):
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)

    run("render", *MAIN, "-o", str(link))

    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert json.loads(target.read_text())


def test_hjson_carries_the_reasons_and_says_what_json_says(run):
    code, out, _ = run("render", *MAIN, "--format", "hjson")
    document = hjson.read(out, "ds.hjson")

    assert code == 0
    assert {rule for rule, _ in document.faults} == {"not-strict-json"}  # only for its comments
    assert document.config == json.loads(run("render", *MAIN)[1])
    leaves = [line for line in out.splitlines() if line.strip(" {},") and not line.rstrip(" ").endswith("{")]
    assert all("  // " in line for line in leaves)


def test_no_yaml_is_offered(run):
    assert "Invalid value for '--format': 'yaml'" in run("render", *MAIN, "--format", "yaml")[2]


def test_a_scenario_file_says_what_the_options_say(run, tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq-len: 2048\nset:\n  gradient_clipping: 0.5\n")

    assert run("render", str(file))[1] == run("render", *MAIN, "--seq-len", "2048", "--set", "gradient_clipping=0.5")[1]


def test_options_win_over_the_scenario(run, tmp_path):
    file = tmp_path / "scenario.yaml"
    file.write_text("hw: a100-40g\nmodel: 7b\nseq_len: 2048\n")

    assert run("render", str(file), "--seq-len", "1024")[1] == run("render", *MAIN, "--seq-len", "1024")[1]


def test_plan_as_text_and_as_json(run):
    code, out, _ = run("plan", *MAIN)
    found = json.loads(run("plan", *MAIN, "--format", "json")[1])

    assert code == 0
    assert " 1 " in out
    assert "chosen: " in out
    assert found["chosen"]["memory"]["verdict"] == "fits"
    assert sum(found["chosen"]["memory"]["gpu"]["parts"].values()) == found["chosen"]["memory"]["gpu"]["peak_bytes"]
    assert all(item["missing_bytes"] > 0 for item in found["rejections"] if item["place"])
    limit = found["chosen"]["memory"]["gpu"]["limit_bytes"]
    short = [item for item in found["rejections"] if item["place"] == "gpu"]
    assert short
    for item in short:  # what it needs at least, or what may need at most, less what it is too much, is what there is
        needs = float(re.search(r"needs (?:[\d.]+ to )?([\d.]+) ", item["why"])[1])
        assert abs(needs - (limit + item["missing_bytes"]) / 2**30) < 1


@pytest.mark.parametrize("more", [(), ("--gpus", "16", "--network", "ib-hdr-200g"), ("--zero-stage", "3")])
def test_one_strategy_takes_one_amount_of_memory_wherever_it_is_said(run, more):
    """The table of the plan, its bars and their parts, its JSON, the summary of render, and the reason of a key."""
    _, plan, _ = run("plan", *MAIN, *more)
    place = json.loads(run("plan", *MAIN, *more, "--format", "json")[1])["chosen"]["memory"]["gpu"]
    summary = run("render", *MAIN, *more)[2]
    why = " ".join(run("why", "train_micro_batch_size_per_gpu", *MAIN, *more)[1].split())

    row = next(line for line in plan.splitlines() if line.startswith(" 1 "))
    bar = re.search(r"^GPU +([\d.]+) of", plan, re.MULTILINE)
    assert bar is not None
    assert f" {bar[1]} " in row
    assert re.search(rf"^GPU +{bar[1]} of", summary, re.MULTILINE)
    assert f"the GPU then takes {bar[1]} GiB" in why
    assert f"{(place['peak_bytes'] + place['overhead_bytes']) / 2**30:.1f}" == bar[1]
    parts = plan.partition("\nGPU ")[2].partition("\nhost ")[0]
    sizes = [float(size) for line in parts.splitlines()[1:] for size in re.findall(r"([\d.]+) GiB  ", line)]
    assert abs(sum(sizes) - float(bar[1])) < 0.05 * len(sizes)


def test_a_micro_batch_stays_with_its_number(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("plan", "--hw", "rtx3090-24g", "--gpus", "1", "--model", "llama-3.1-8b", "--method", "lora")

    head, tail = re.findall(r"^ 1 (ZeRO-3 \+ CPU parameters,.*?)  .*\n     (.*)$", out, re.MULTILINE)[0]
    assert (head, tail) == ("ZeRO-3 + CPU parameters, checkpointing,", "mb 2")


def test_plan_keeps_to_the_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = run("plan", *MAIN)

    table = out.split("\n\n")[1]
    assert max(map(len, table.splitlines())) <= 100


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_what_one_pin_excludes_is_told_once_and_its_path_stays_whole(run, monkeypatch, tmp_path, columns):
    folder = tmp_path / "a-folder-of-a-project" / "configs-of-our-cluster"
    folder.mkdir(parents=True)
    site = folder / "site-overrides.yaml"
    site.write_text("zero_optimization:\n  stage: 1\n")
    monkeypatch.setenv("COLUMNS", str(columns))

    _, out, _ = run("plan", *MAIN, "-f", str(site), "--all")
    told = json.loads(run("plan", *MAIN, "-f", str(site), "--format", "json")[1])["rejections"]

    table = out.split("\n\n")[1]
    excluded = [item["strategy"] for item in told if item["pin"]]
    assert table.count(f"({site}:2)") == 1
    words = " ".join(table.partition(" excludes it")[2].split())
    assert len(excluded) > 15
    assert words == "; ".join(excluded)
    for line in table.splitlines():
        assert len(line) <= columns or str(site) in line


def test_a_strategy_in_another_dtype_is_no_other_row_of_the_same_name(run):
    _, out, _ = run("plan", *MAIN, "--precision", "fp16", "--zero-stage", "1", "--all")
    table = out.split("\n\n")[1]
    told = json.loads(run("plan", *MAIN, "--precision", "fp16", "--zero-stage", "1", "--format", "json")[1])

    assert (
        " - training.precision = fp16 (--precision) excludes it\n     everything in bf16; everything in fp32" in table
    )
    rows = [re.split(r"  +", line[3:])[0] for line in table.splitlines() if re.match(r" [-\d]\d? ", line)]
    assert len(rows) == len(set(rows))
    assert {item["precision"] for item in told["rejections"] if item["pin"]} == {"bf16", "fp16", "fp32"}


@pytest.mark.parametrize(
    ("hw", "theirs"), [("a40-48g", "rtxa6000-48g"), ("generic-80g", "a100-80g"), ("a100-40g", None), ("cpu", None)]
)
def test_a_plan_says_whose_kernels_stand_in_for_those_that_nobody_measured(run, tmp_path, hw, theirs):
    config = tmp_path / "ds.json"
    config.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    )
    asked = ("--hw", hw, "--model", "gpt2", "--gpus", "1")

    for more in ((), ("--config", str(config))):
        _, out, _ = run("plan", *asked, *more)
        told = json.loads(run("plan", *asked, *more, "--format", "json")[1])

        assert told["now" if more else "chosen"]["cost"]["nearest"] == theirs
        said = f"kernels as measured on {theirs}: of this GPU there are no measurements"
        assert (said in " ".join(out.split())) is (theirs is not None)
        assert ("kernels as measured" in out) is (theirs is not None)


def test_a_machine_that_was_measured_stands_for_itself(run):
    timed = ("--set", "hardware.step_time_ratio=1.1")
    told = json.loads(run("plan", "--hw", "a40-48g", "--model", "gpt2", *timed, "--format", "json")[1])

    assert told["chosen"]["cost"]["nearest"] is None


@pytest.mark.parametrize(
    ("key", "more", "refused"),
    [
        ("zero_optimization.stage", (), "If it were 0: 7b at 4096 tokens does not fit on 8 GPUs of 39.4 GiB\n"),
        (
            "zero_optimization.stage",
            ("--set", "training.offload=none"),
            "7b at 4096 tokens does not fit on 8 GPUs of 39.4 GiB with training.offload = none (--set)\n",
        ),
        (
            "tensor_parallel.autotp_size",
            ("--gpus", "6", "--global-batch", "96"),
            "If it were 4: 6 GPUs do not divide into tensor-parallel groups of 4\n",
        ),
        (
            "tensor_parallel.autotp_size",
            ("--gpus", "6", "--global-batch", "96", "--set", "training.offload=none"),
            "If it were 4: 6 GPUs do not divide into tensor-parallel groups of 4\n",
        ),
        (
            "zero_optimization.stage",
            ("--set", "zero_optimization.offload_param.device=cpu"),
            "If it were 2: parameter offload works at stage 3 only\n",
        ),
    ],
)
def test_why_says_what_refuses_another_value_and_not_itself(run, key, more, refused):
    code, out, _ = run("why", key, "--hw", "a100-40g", "--model", "7b", *more)

    assert code == 0
    assert " ".join(refused.split()) in " ".join(out.split())
    assert "(why)" not in out
    assert "()" not in out


def test_why_shows_winner_losers_and_alternatives(run, tmp_path):
    site = tmp_path / "site.yaml"
    site.write_text("zero_optimization:\n  overlap_comm: false  # our switch drops packets\n")
    code, out, _ = run("why", "zero_optimization.overlap_comm", *MAIN, "-f", str(site))

    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "zero_optimization.overlap_comm = false"
    assert f"{site}:2" in out
    assert "our switch" in out
    assert re.search(r"planner +true +lost", out)
    assert "If it were true:" in out


@pytest.mark.parametrize("key", ["hardware.usable_memory", "training.lr", "model.layers", "cluster.gpus"])
def test_why_answers_for_facts_and_wishes(run, key):
    code, out, _ = run("why", key, *MAIN)

    assert code == 0
    assert out.startswith(key)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("stage", "zero_optimization.stage"),
        ("lr", "optimizer.params.lr"),
        ("learning rate", "optimizer.params.lr"),
        ("tokens-per-step", "training.tokens_per_step"),
        ("hw", "hardware"),
    ],
)
def test_why_takes_the_last_name_of_the_one_key_that_has_it(run, word, key):
    assert run("why", word, "--hw", "a100-40g", "--model", "7b")[1].startswith(key)


def test_why_of_a_section_tells_every_key_below_it(run):
    code, out, _ = run("why", "zero_optimization", *MAIN)
    config = json.loads(run("render", *MAIN)[1])["zero_optimization"]

    keys = [line.partition(" = ")[0] for line in out.splitlines() if line.startswith("zero_optimization.")]
    assert (code, out.splitlines()[0]) == (0, "zero_optimization")
    assert sorted(keys) == sorted(f"zero_optimization.{key}" for key in config)


def test_why_as_json_names_the_winner(run):
    found = json.loads(run("why", "optimizer.params.lr", *MAIN, "--set", "training.lr=1e-4", "--format", "json")[1])

    assert found["value"] == 1e-4
    assert [item["won"] for item in found["overrides"]][-1] is True


def test_diff_of_two_scenarios_gives_reasons_and_code_1(run, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("hw: a100-40g\nmodel: 7b\n")
    second.write_text("hw: a100-40g\nmodel: 7b\nset:\n  training.lr: 1e-4  # found by a sweep\n")
    code, out, _ = run("diff", str(first), str(second))

    assert code == 1
    assert "optimizer.params.lr\n  - 2e-05\n" in out
    assert "found by a sweep" in out


def test_diff_of_two_scenarios_says_what_their_programs_must_do(run, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("hw: a100-80g\nmodel: 8b\nmicro_batch: 1\nzero_stage: 2\n")
    second.write_text(f"{first.read_text()}chunked_loss: true\n")
    code, out, _ = run("diff", str(first), str(second))
    data = json.loads(run("diff", str(second), str(first), "--format", "json")[1])

    assert code == 1
    assert out.endswith("what the program must do\n  + a chunked loss\nno keys differ\n")
    assert (data["differences"], data["programs"]) == ([], {"first": ["a chunked loss"], "second": []})


def test_diff_of_a_config_with_itself_is_code_0(run, tmp_path):
    target = tmp_path / "a.json"
    run("render", *MAIN, "-o", str(target))
    code, out, _ = run("diff", str(target), str(target))

    assert code == 0
    assert out.endswith("no difference\n")


def test_a_default_that_is_written_out_is_no_difference(run, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('{"train_batch_size": 8, "gradient_clipping": 1, "zero_optimization": {"stage": 0}}')
    second.write_text('{"train_batch_size": 8}')

    code, out, _ = run("diff", str(first), str(second))
    data = json.loads(run("diff", str(second), str(first), "--format", "json")[1])

    assert (code, out.splitlines()[-1]) == (0, "no difference")
    assert "same: zero_optimization.stage is 0, DeepSpeed's default, which only" in out
    assert data["differences"] == []
    assert [item["path"] for item in data["written_out_defaults"]] == ["gradient_clipping", "zero_optimization.stage"]


def test_a_whole_number_is_one_however_it_is_written(run, tmp_path):
    for name, text in (("a", "{gradient_clipping: 1.0, a: [2.0]}"), ("b", '{"gradient_clipping": 1, "a": [2]}')):
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "c.json").write_text('{"gradient_clipping": true, "a": [2]}')
    a, b, c = (str(tmp_path / f"{name}.json") for name in "abc")

    assert run("diff", a, b)[0] == 0
    assert run("diff", b, c)[0] == 1


def test_diff_says_what_a_missing_key_means(run, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text('{"gradient_clipping": 0.0}')
    second.write_text("{}")
    code, out, _ = run("diff", str(first), str(second))

    assert code == 1
    assert "+ not written; DeepSpeed's default is 1.0" in out


def test_profiles_list_and_show(run):
    assert "a100-40g " in run("profiles", "list", "hardware")[1]
    assert set(json.loads(run("profiles", "list", "--format", "json")[1])) == {
        "hardware",
        "model",
        "network",
        "training",
    }
    out = run("profiles", "show", "a100-40g")[1]
    assert "hardware.gpu_memory" in out
    assert "usable_memory" in out.partition("sources")[2]


@pytest.mark.parametrize("kind", ["hardware", "model", "network", "training"])
def test_a_new_profile_is_read_back(run, tmp_path, kind):
    target = tmp_path / "mine.yaml"
    code, _, err = run("profiles", "new", kind, "mine", "-o", str(target))

    assert code == 0
    assert f"wrote {target}" in err
    assert run("profiles", "show", str(target))[0] == 0


def test_a_new_profile_that_extends_changes_nothing_until_it_is_edited(run, tmp_path):
    target = tmp_path / "mine.yaml"
    run("profiles", "new", "hardware", "mine", "--extends", "a100-40g", "-o", str(target))

    assert run("render", "--hw", str(target), "--model", "7b")[1] == run("render", *MAIN)[1]


@pytest.mark.parametrize("command", [*COMMANDS])
def test_every_command_has_help(run, command):
    code, out, _ = run(command, "--help")

    assert code == 0
    assert out.startswith(f"Usage: dsgen {command}")


def test_a_command_misspelt_suggests(run):
    code, out, err = run("rendr")

    assert (code, out) == (2, "")
    assert "did you mean render?" in err
