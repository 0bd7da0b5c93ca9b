"""Launch files: what scripts, environment files, Dockerfiles and YAML set, where, and how a fix changes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsgen.deepspeed import environment
from dsgen.linting import launch_files
from dsgen.linting.linter import lint
from dsgen.linting.subjects import Facts
from dsgen.shapes.findings import Assign, Edit, Finding, Move, Remove, Severity

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """#!/bin/bash
# export IN_A_COMMENT=1
export NCCL_DEBUG=INFO NCCL_IB_HCA="mlx5_0, mlx5_1" # which cards
DS_ACCELERATOR=cuda deepspeed --num_gpus=4 --hostfile hosts train.py --not_the_launchers 1
PLAIN=1
env ONE=1 TWO=2 python train.py > log 2>&1 &
export \\
  THREE=3 \\
  FOUR="two
lines"
cat > hostfile <<EOF
export IN_A_DOCUMENT=1
EOF
COMMAND="deepspeed --include localhost:0 train.py"
if [ -n "$NODES" ]; then export RANKS=$(nproc --all); fi
docker run -e HANDED_ON=1 -e HF_TOKEN image deepspeed --no_ssh train.py
LATER=1
export LATER
pip install deepspeed --upgrade
"""


def values(text: str, name: str = "train.sh") -> dict[str, str]:
    return {setting.name: setting.value for setting in launch_files.scan(text, name).settings}


def linted(
    text: str, name: str = "train.sh", facts: Facts | None = None, deepspeed: str | None = None
) -> list[Finding]:
    return list(lint(launch_files.read(text, name), facts=facts, deepspeed=deepspeed))


def said(text: str, name: str = "train.sh", facts: Facts | None = None) -> dict[str, str]:
    """Path -> rule of every finding."""
    return {finding.path: finding.rule for finding in linted(text, name, facts)}


def test_a_script_gives_its_settings() -> None:
    assert values(SCRIPT) == {
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5_0, mlx5_1",
        "DS_ACCELERATOR": "cuda",
        "PLAIN": "1",
        "ONE": "1",
        "TWO": "2",
        "THREE": "3",
        "FOUR": "two\nlines",
        "COMMAND": "deepspeed --include localhost:0 train.py",
        "RANKS": "$(nproc --all)",
        "HANDED_ON": "1",
        "LATER": "1",
    }


def test_what_programs_do_not_see_is_not_exported() -> None:
    unseen = {setting.name for setting in launch_files.scan(SCRIPT, "train.sh").settings if not setting.exported}

    assert unseen == {"PLAIN", "COMMAND"}


@pytest.mark.parametrize("switch", ["set -a", "set -o allexport"])
def test_a_switch_exports_everything_after_it(switch: str) -> None:
    settings = launch_files.scan(f"BEFORE=1\n{switch}\nAFTER=1\n", "env.sh").settings

    assert [(setting.name, setting.exported) for setting in settings] == [("BEFORE", False), ("AFTER", True)]


def test_the_launchers_options_end_at_the_script() -> None:
    options = launch_files.scan(SCRIPT, "train.sh").options

    assert [(option.name, option.value) for option in options] == [
        ("--num_gpus", "4"),
        ("--hostfile", "hosts"),
        ("--include", "localhost:0"),
        ("--no_ssh", None),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "pip install deepspeed --upgrade",
        "python -m deepspeed --help",
        "which deepspeed --all",
        "accelerate launch --use_deepspeed train.py",
        "echo deepspeed --profile",
        "python train.py --deepspeed --bogus",
    ],
)
def test_another_command_that_names_deepspeed_is_not_the_launcher(line: str) -> None:
    assert launch_files.scan(line, "run.sh").options == ()


@pytest.mark.parametrize("name", ["run.slurm", "a/b.sbatch", "x.bash", "start"])
def test_the_places_are_those_of_name_and_value(name: str) -> None:
    document = launch_files.read(SCRIPT, name)

    assert document.kind == "launch"
    for path, place in document.places.items():
        assert place.key is not None
        assert document.text[place.key.start : place.key.end] == path.rpartition(" ")[2]
    place = document.places["NCCL_IB_HCA"]
    assert document.text[place.value.start : place.value.end] == '"mlx5_0, mlx5_1"'
    assert document.position(document.span("NCCL_DEBUG").start) == (3, 8)


def test_a_dockerfile_gives_its_env_and_what_it_starts() -> None:
    text = 'FROM x\nENV A=1 B="2 3" \\\n    C=4\nENV OLD the rest\nRUN export NOT_KEPT=1\n'
    text += 'CMD ["deepspeed", "--bogus", "t.py"]\n'
    found = launch_files.scan(text, "docker/Dockerfile.train")

    assert values(text, "Dockerfile") == {"A": "1", "B": "2 3", "C": "4", "OLD": "the rest"}
    assert all(setting.exported for setting in found.settings)
    assert [option.name for option in found.options] == ["--bogus"]


def test_an_environment_file_gives_a_setting_a_line() -> None:
    text = '# comment\nA=1\nexport B="2 # 3" # what\n  C = a#b\n\nnothing\n'

    assert values(text, "config/.env") == {"A": "1", "B": "2 # 3", "C": "a#b"}


def test_yaml_gives_the_maps_below_env() -> None:
    text = (
        "env:\n  A: '1'\n  B: 2 # two\nother:\n  C: 3\n"
        'spec:\n  - env:\n    - name: D\n      value: "4"\n    - name: E\n      valueFrom: x\n'
        "environment:\n  - F=5\n"
    )

    assert {name: value for name, value in values(text, "job.yaml").items() if name.isupper()} == {
        "A": "1",
        "B": "2",
        "D": "4",
        "F": "5",
    }


def test_only_names_that_say_so_are_launch_files() -> None:
    launches = ["a.sh", ".env", ".deepspeed_env", "Dockerfile", "prod.env"]
    others = ["ds_config.json", "job.yaml", "README.md", "train.py"]

    assert [name for name in launches + others if launch_files.is_launch_file(name)] == launches


@pytest.mark.parametrize(
    ("text", "edit", "after"),
    [
        ("export A=1\nexport B=2\n", Remove("A"), "export B=2\n"),
        ("export A=1 B=2 # why\n", Remove("A"), "export B=2 # why\n"),
        ("A=1 B=2 run\n", Move("B", "C"), "A=1 C=2 run\n"),
        ("export A='x y'\n", Assign("A", 0), "export A=0\n"),
        ("if x; then export A=1; fi\n", Remove("A"), "if x; then :; fi\n"),
        ("deepspeed --profile train.py\n", Remove("deepspeed --profile"), "deepspeed train.py\n"),
        (
            "deepspeed --num-gpus 4 t.py\n",
            Move("deepspeed --num-gpus", "deepspeed --num_gpus"),
            "deepspeed --num_gpus 4 t.py\n",
        ),
        ("docker run -e A=1 -e B=2 x\n", Remove("A"), "docker run -e B=2 x\n"),
        ("A=1 run\nA=2 run\n", Remove("A"), "run\nrun\n"),
        ("export A=1", Remove("B"), "export A=1"),
        ("if x; then\n  export A=1\nfi\n", Remove("A"), "if x; then\n  :\nfi\n"),
        ("if x; then\n  export A=1\n  run\nfi\n", Remove("A"), "if x; then\n  run\nfi\n"),
        ("f() { export A=1; }\n", Remove("A"), "f() { :; }\n"),
        ("make && export A=1\n", Remove("A"), "make && :\n"),
        ("export A=1; run\n", Remove("A"), "run\n"),
        ("A=1; B=2; run\n", Remove("B"), "A=1; run\n"),
    ],
)
def test_an_edit_changes_its_place_alone(text: str, edit: Edit, after: str) -> None:
    assert launch_files.edited(launch_files.read(text, "a.sh"), [edit]) == after


TEXTS = st.text(alphabet="ABexport=123 \t\n\"'\\#;&|()<>$`{}-", max_size=80)


@example("\\e=", "a.sh")  # an escaped name is no assignment
@example("'e=", "a.sh")  # a quote before the name
@example("export 'A'=1", "a.sh")
@given(TEXTS, st.sampled_from(("a.sh", ".env", "Dockerfile", "a.yaml")))
def test_no_text_breaks_the_reader(text: str, name: str) -> None:
    found = launch_files.scan(text, name)
    document = launch_files.read(text, name)

    for setting in found.settings:
        assert text[setting.key.start : setting.key.end] == setting.name
        assert 0 <= setting.whole.start <= setting.whole.end <= len(text)
    assert lint(document) is not None
    for setting in found.settings:
        launch_files.edited(document, [Remove(setting.name)])


# The rules.


def test_what_nothing_reads_is_found_and_what_is_read_is_not() -> None:
    text = "export DS_REUSE_BUFFERS=1 DS_ACCELERATOR=cuda NCCL_TIMEOUT=1800 NCCL_IB_TIMEOUT=22\ndeepspeed t.py\n"

    assert said(text) == {"DS_REUSE_BUFFERS": "variable-nothing-reads", "NCCL_TIMEOUT": "variable-nothing-reads"}


@pytest.mark.parametrize(
    "text",
    [
        "export DS_CONFIG=ds.json\ndeepspeed train.py --deepspeed $DS_CONFIG\n",
        "export DS_RUN=7\ndeepspeed train.py --run ${DS_RUN:-1}\n",
        "DS_STAGES=3\ndeepspeed train.py\n",  # never leaves the shell
        "export DS_LENGTH=3\nsbatch segment.sh\n",  # not about DeepSpeed
        "export NCCL_GPUDIRECTTCPX_FORCE_ACK=0\ndeepspeed t.py\n",
        "# export DS_REUSE_BUFFERS=1\ndeepspeed train.py\n",
    ],
)
def test_a_persons_own_variable_is_left_alone(text: str) -> None:
    assert said(text) == {}


def test_a_name_like_a_persons_own_is_only_worth_knowing() -> None:
    (found,) = linted("export DS_CONFIG_FILE=ds.json\ndeepspeed train.py\n")

    assert (found.rule, found.severity) == ("variable-nothing-reads", Severity.INFO)


def test_a_variable_of_an_older_release_is_said_with_the_release() -> None:
    (found,) = linted("export NCCL_TREE_THRESHOLD=0\ndeepspeed t.py\n")

    assert found.rule == "variable-nothing-reads"
    assert "any more" in found.message and "2.5" in found.message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("CUDA_VISIABLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("TORCH_DISTRIBUTED_DEBG", "TORCH_DISTRIBUTED_DEBUG"),
        ("DS_SKIP_CUDA_CHEK", "DS_SKIP_CUDA_CHECK"),
    ],
)
def test_a_slip_names_what_was_meant(written: str, meant: str) -> None:
    text = f"export {written}=0\ndeepspeed t.py\n"
    (found,) = linted(text)

    assert (found.rule, found.line, found.column) == ("misspelt-variable", 1, 8)
    assert found.fix is not None and not found.fix.safe  # today it does nothing
    mended = launch_files.edited(launch_files.read(text, "train.sh"), found.fix.edits)
    assert mended == text.replace(written, meant)
    assert linted(mended) == []


@pytest.mark.parametrize(
    ("line", "rule", "severity"),
    [
        ("export CUDA_LAUNCH_BLOCKING=1", "debug-variable-left-on", Severity.WARNING),
        ("export TORCH_DISTRIBUTED_DEBUG=detail", "debug-variable-left-on", Severity.WARNING),
        ("export NCCL_DEBUG=INFO", "debug-variable-left-on", Severity.INFO),
        ("export NCCL_P2P_DISABLE=1", "fast-path-disabled", Severity.WARNING),
        ("export NCCL_SOCKET_IFNAME=lo", "fast-path-disabled", Severity.WARNING),
        ("export NCCL_ASYNC_ERROR_HANDLING=1", "renamed-variable", Severity.WARNING),
        ("export OMP_NUM_THREADS=1", "one-thread-for-the-optimizer", Severity.INFO),
        ("NCCL_SOCKET_IFNAME=eth0", "variable-not-exported", Severity.WARNING),
    ],
)
def test_a_switch_is_said(line: str, rule: str, severity: Severity) -> None:
    (found,) = linted(f"{line}\ndeepspeed train.py\n")

    assert (found.rule, found.severity, found.line) == (rule, severity, 1)


@pytest.mark.parametrize(
    "line",
    [
        "export CUDA_LAUNCH_BLOCKING=0",
        "export NCCL_DEBUG=WARN",
        "export TORCH_DISTRIBUTED_DEBUG=OFF",
        "export NCCL_IB_DISABLE=0",
        "export CUDA_AUTO_BOOST=0",
        "export OMP_NUM_THREADS=8",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "PORT=29500",
    ],
)
def test_a_setting_that_is_right_is_not_said(line: str) -> None:
    assert linted(f"{line}\ndeepspeed --num_gpus 8 --master_port=29500 train.py --anything\n") == []


def test_hardware_without_the_fast_path_makes_the_switch_right() -> None:
    text = "export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1\ndeepspeed t.py\n"

    assert said(text, facts=Facts(hardware="rtx4090-24g", network="ethernet-10g")) == {}
    assert said(text, facts=Facts(hardware="a100-40g", network="ib-hdr-200g")) == {
        "NCCL_P2P_DISABLE": "fast-path-disabled",
        "NCCL_IB_DISABLE": "fast-path-disabled",
    }


@pytest.mark.parametrize("option", ["--profile", "--num-gpus 4", "--nproc_per_node 4", "--autotuning always"])
def test_an_option_that_argparse_refuses_is_an_error(option: str) -> None:
    (found,) = linted(f"deepspeed {option} train.py\n")

    assert (found.rule, found.severity) == ("launcher-option-unknown", Severity.ERROR)


@pytest.mark.parametrize(
    "option", ["--num_gpu 4", "--num_gpus=$N", "-H hosts", "--autotuning run", "--autotuning $MODE"]
)
def test_an_option_that_argparse_takes_is_not_said(option: str) -> None:
    assert linted(f"deepspeed {option} train.py --profile\n") == []


def test_an_option_that_was_removed_is_an_error_from_then_on() -> None:
    text = "deepspeed --elastic_training train.py\n"

    assert [finding.rule for finding in linted(text, deepspeed="0.19")] == ["launcher-option-unknown"]
    assert linted(text, deepspeed="0.18") == []


def test_the_launchers_own_environment_file_takes_no_comment_and_no_empty_line() -> None:
    text = "NCCL_SOCKET_IFNAME=eth0\n\n# NCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0\n"

    found = [finding for finding in linted(text, "home/.deepspeed_env") if finding.rule == "deepspeed-env-line"]

    assert [(finding.line, finding.severity) for finding in found] == [(2, Severity.ERROR), (3, Severity.ERROR)]
    assert linted(text, "home/.env") == []


# The data.


def test_what_is_known_names_its_source() -> None:
    for owner in environment.OWNERS:
        known = environment.variables(owner)
        assert known.source and known.names
        assert not known.names & set(known.older)
    assert {"DS_ACCELERATOR", "DEEPSPEED_TIMEOUT"} <= environment.variables("deepspeed").names
    assert environment.launcher_options()["--num_gpus"].value
    assert not environment.launcher_options()["--module"].value


def test_the_file_is_sorted_and_plain() -> None:
    text = (ROOT / "schema" / "environment.json").read_text("utf-8")

    assert json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n" == text


@pytest.mark.proof
def test_the_file_is_what_the_installed_deepspeed_reads() -> None:
    import sys

    sys.path.insert(0, str(ROOT / "schema"))
    try:
        from environment import deepspeed_part  # type: ignore[attr-defined]
    finally:
        sys.path.pop(0)
    committed = json.loads((ROOT / "schema" / "environment.json").read_text("utf-8"))["deepspeed"]

    assert deepspeed_part((), committed) == committed
