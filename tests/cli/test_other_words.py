"""What people type who come from other programs is answered with what it is called here, and never with a guess."""

from __future__ import annotations

import re

import click
import pytest
from command_line import MAIN, refused

from dsgen.cli import COMMANDS, cli, other_words


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--batch-size", "--micro-batch N or --global-batch N"),
        ("--zero_stage", "--zero-stage"),
        ("--gradient_accumulation_steps", "--accumulation N"),
        ("--max-length", "--seq-len N"),
        ("--learning-rate", "--set training.lr=1e-5"),
        ("--num-gpus", "--gpus N"),
        ("--lora", "--method lora"),
        ("--json", "--format json"),
        ("--html", "--format html"),
        ("--vram", "--gpu-memory SIZE"),
        ("--deepspeed-config", "--config FILE"),
    ],
)
def test_an_option_of_another_program_is_answered_with_ours(option: str, told: str) -> None:
    assert f"No such option '{option}': here it is {told}." in refused("plan", *MAIN, option, "4")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("estimate", "here it is dsgen memory"),
        ("check", "here it is dsgen lint"),
        ("init", "here it is dsgen render"),
        ("lnt", "did you mean lint?"),
    ],
)
def test_a_command_of_another_program_is_answered_with_ours(name: str, told: str) -> None:
    assert f"no command {name!r}\n  {told}" in refused(name)


def test_every_command_that_is_offered_is_there() -> None:
    offered = {ours.split()[0] for ours in other_words._COMMANDS.values()}

    assert offered <= {*COMMANDS}
    assert not {*COMMANDS} & {*other_words._COMMANDS}


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--sp", "sequences are not cut among GPUs"),
        ("--context_parallel_size", "sequences are not cut among GPUs"),
        ("--pp", "layers are not cut into a pipeline"),
        ("--expert-parallel-size", "experts are not spread"),
    ],
)
def test_a_parallelism_that_no_plan_has_is_named(option: str, told: str) -> None:
    answer = refused("plan", *MAIN, option, "8")
    assert f"No such option '{option}': {told}" in answer
    assert "Did you mean" not in answer


@pytest.mark.parametrize("option", ["-o", "--output", "--out"])
@pytest.mark.parametrize("command", ["plan", "memory", "needs"])
def test_a_command_that_writes_no_file_is_kept_by_the_shell(command: str, option: str) -> None:
    told = refused(command, *MAIN, option, "plan.html")

    assert f"No such option '{option}': it prints, and > FILE keeps what it prints.\n" in told
    assert "keeps what it prints" not in refused("simulate", *MAIN, "--out", "run.html")


@pytest.mark.parametrize(
    ("option", "told"),
    [("--args", "dsgen adopt ds_config.json --args FILE -o scenario.yaml"), ("--observed", "dsgen memory --observed")],
)
def test_an_option_of_another_command_is_answered_with_the_way_round(option: str, told: str) -> None:
    answer = refused("simulate", *MAIN, option, "train.py")
    assert f"No such option '{option}': {told}" in answer
    assert "Did you mean" not in answer


def test_gpus_of_a_command_that_has_none_are_its_world_size() -> None:
    assert "here it is --world-size N." in refused("lint", "ds_config.json", "--gpus", "8")


def test_options_of_slurm_are_directives_of_a_launch() -> None:
    told = refused("launch", *MAIN, "--with", "slurm", "--partition", "gpu")

    assert "here it is --directive=--partition=gpu." in told


def test_what_nobody_says_is_left_to_click() -> None:
    assert "here it is" not in refused("plan", "--xyzzy")


def test_every_word_that_is_offered_is_an_option_of_some_command() -> None:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in COMMANDS]
    known = {option for command in commands if command for parameter in command.params for option in parameter.opts}

    offered = {re.split(r"[ =]", words)[0] for many in other_words._OTHERS.values() for words in many}

    assert offered <= known


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("launch", "Missing option '--with deepspeed|torchrun|accelerate|slurm|kubernetes|skypilot'. Who starts"),
        ("calibrate", "Missing option '--step-seconds S'. One optimizer step, measured."),
    ],
)
def test_what_must_be_said_is_shown_with_its_values(command: str, told: str) -> None:
    assert told in refused(command, *MAIN)


@pytest.mark.parametrize(
    ("name", "known"), [("trl", "hf-trainer"), ("LLaMA_Factory", "llama-factory"), ("swift", "ms-swift")]
)
def test_a_framework_by_another_name_is_answered_with_ours(name: str, known: str) -> None:
    assert f"Here it is {known}." in refused("render", *MAIN, "--target", name)
    assert f"did you mean {known}?" in refused("memory", *MAIN, "--target", name)
    assert "Here it is" not in refused("render", *MAIN, "--target", "keras")


def test_help_is_not_offered_for_a_short_option_that_a_command_lacks() -> None:
    assert "Did you mean" not in refused("diff", "a.json", "b.json", "--hw", "4090")
    assert "Did you mean one of: '--output'" in refused("render", *MAIN, "--outptu", "x.json")
