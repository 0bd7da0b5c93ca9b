"""The files of a job read together: script, training file, config; what is not there, what disagrees, at each place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dsgen
from dsgen.documents.document import unwritten
from dsgen.linting import disagreements, launch_files, sources, statements
from dsgen.linting.files import Linted, lint_files
from dsgen.linting.settings import Settings
from dsgen.shapes.findings import Severity

DISAGREES, MISSING = "argument-disagrees", "named-config-missing"
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-05, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.1}},
    "zero_optimization": {"stage": 2},
}
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _here(elsewhere: None) -> None:
    write(CONFIG)


def write(config: dict[str, Any], name: str = "ds.json") -> None:
    Path(name).write_text(json.dumps(config, indent=1))


def said(*names: str, rules: tuple[str, ...] = (DISAGREES, MISSING), **settings: Any) -> list[tuple[str, str]]:
    """File and path of every finding of these rules."""
    return [(file, finding.path) for file, finding in findings(*names, rules=rules, **settings)]


def findings(*names: str, rules: tuple[str, ...] = (DISAGREES, MISSING), **settings: Any) -> list[tuple[str, Any]]:
    linted = [item for item in lint_files(names, Settings(**settings)) if isinstance(item, Linted)]
    return [(file.document.name, one) for file in linted for one in file.findings if one.rule in rules]


def script(text: str, name: str = "train.sh") -> str:
    Path(name).write_text(text)
    return name


# What a script starts.


def started(text: str) -> list[tuple[str, dict[str, str | None], int | None]]:
    """Launcher, arguments and ranks of every start."""
    return [
        (one.launcher, {item.name: item.value for item in one.arguments}, one.ranks[0] if one.ranks else None)
        for one in launch_files.starts(text, "train.sh")
    ]


@pytest.mark.parametrize(
    ("line", "launcher", "arguments", "ranks"),
    [
        ("deepspeed train.py --a 1 --b", "deepspeed", {"a": "1", "b": None}, None),
        ("deepspeed --num_gpus 4 train.py --a=1", "deepspeed", {"a": "1"}, 4),
        ("deepspeed --num_gpus=4 --num_nodes 2 train.py", "deepspeed", {}, 8),
        ("deepspeed --num_gpus 4 --hostfile hosts train.py", "deepspeed", {}, None),
        ("deepspeed --include localhost:0,1 train.py -x -1", "deepspeed", {"x": "-1"}, None),
        ("deepspeed --module my.train --lr 1e-5", "deepspeed", {"lr": "1e-5"}, None),
        ("accelerate launch --num_processes 8 --multi_gpu train.py --a 1", "accelerate", {"a": "1"}, 8),
        ("accelerate launch -m axolotl.cli.train --a 1", "accelerate", {"a": "1"}, None),
        ("torchrun --standalone --nproc_per_node=8 train.py --a b", "torchrun", {"a": "b"}, 8),
        ("torchrun --nnodes 2 --nproc-per-node 4 train.py", "torchrun", {}, 8),
        ("torchrun --nproc_per_node=gpu train.py", "torchrun", {}, None),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py --a 1", "torchrun", {"a": "1"}, 2),
        ("python3 -m accelerate.commands.launch --num_processes 2 train.py", "accelerate", {}, 2),
        ("CUDA_VISIBLE_DEVICES=0 python -u train.py --a 1", "python", {"a": "1"}, None),
        ("srun torchrun --nproc_per_node 8 train.py --some-name x", "torchrun", {"some_name": "x"}, 8),
        ("llamafactory-cli train x.yaml max_steps=5", "llamafactory-cli", {"max_steps": "5"}, None),
        ("swift sft --model m --deepspeed zero2", "swift", {"model": "m", "deepspeed": "zero2"}, None),
        ("N=4\ndeepspeed --num_gpus $N train.py", "deepspeed", {}, 4),
        ("N=4\nN=8\ndeepspeed --num_gpus $N train.py", "deepspeed", {}, None),
        ('ARGS="--a 1 \\\n --b 2"\ndeepspeed train.py $ARGS --c 3', "deepspeed", {"a": "1", "b": "2", "c": "3"}, None),
        ("D=conf\ndeepspeed train.py --deepspeed ${D}/ds.json", "deepspeed", {"deepspeed": "conf/ds.json"}, None),
    ],
)
def test_a_start_is_understood(line: str, launcher: str, arguments: dict[str, str | None], ranks: int | None) -> None:
    assert started(line) == [(launcher, arguments, ranks)]


@pytest.mark.parametrize(
    "line",
    ["pip install deepspeed", "echo deepspeed train.py", "python -c 'import deepspeed'", "accelerate config",
     "llamafactory-cli export x.yaml", "pkill -f deepspeed", "deepspeed", "ls train.py"],
)  # fmt: skip
def test_what_starts_no_training_is_none(line: str) -> None:
    assert started(line) == []


# What is not there.


def test_a_config_that_a_script_names_and_that_is_not_there_is_said_at_its_name() -> None:
    name = script("\n  deepspeed train.py --deepspeed missing.json --per_device_train_batch_size 2\n")

    [(file, finding)] = findings(name)

    assert (file, finding.rule, finding.line, finding.column) == ("train.sh", MISSING, 2, 22)
    assert finding.message.startswith("missing.json is not there")


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed train.py --deepspeed ds.json",
        "deepspeed train.py --deepspeed $CONFIG",
        "deepspeed train.py --deepspeed /opt/ml/ds.json",
        "deepspeed train.py --deepspeed",
        "deepspeed train.py --deepspeed zero2",
        "cat > made.json <<EOF\n{}\nEOF\ndeepspeed train.py --deepspeed made.json",
        "cp ../other/made.json .\ndeepspeed train.py --deepspeed made.json",
        "cd $WORK\ndeepspeed train.py --deepspeed made.json",
        "cd sub\ndeepspeed train.py --deepspeed there.json",
        'cd "$(dirname "$0")"\ndeepspeed train.py --deepspeed ds.json',
        "python train.py --config nowhere.json",
        "accelerate launch --config_file $FILE train.py",
    ],
)
def test_what_is_there_or_cannot_be_known_is_not_missing(text: str) -> None:
    Path("sub").mkdir()
    write(CONFIG, "sub/there.json")

    assert said(script(text), rules=(MISSING,)) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("accelerate launch --config_file acc.yaml train.py", "--config_file"),
        ("accelerate launch --use_deepspeed --deepspeed_config_file no.json train.py", "--deepspeed_config_file"),
        ("deepspeed train.py --deepspeed --deepspeed_config no.json", "--deepspeed_config"),
        ("llamafactory-cli train no.yaml", "no.yaml"),
    ],
)
def test_every_file_that_is_named_must_be_there(text: str, path: str) -> None:
    assert said(script(text)) == [("train.sh", path)]


# What disagrees.


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("--per_device_train_batch_size 2", "train_micro_batch_size_per_gpu"),
        ("--gradient_accumulation_steps=8", "gradient_accumulation_steps"),
        ("--max_grad_norm 0.3", "gradient_clipping"),
        ("--learning_rate 2e-5", "optimizer.params.lr"),
        ("--weight_decay 0", "optimizer.params.weight_decay"),
        ("--adam_beta2 0.999", "optimizer.params.betas[1]"),
        ("--adam_epsilon 1e-6", "optimizer.params.eps"),
        ("--bf16 False", "bf16.enabled"),
        ("--fp16", "bf16.enabled"),
    ],
)
def test_a_difference_is_said_at_both_places(arguments: str, key: str) -> None:
    name = script(f"deepspeed train.py --deepspeed ds.json {arguments}\n")

    at_script, at_config = findings(name)

    word = arguments.replace("=", " ").split()[0]
    assert (at_script[0], at_script[1].path, at_script[1].column) == ("train.sh", word, 40)
    assert (at_config[0], at_config[1].path) == ("ds.json", key)
    assert f"in ds.json:{at_config[1].line}" in at_script[1].message
    assert "in train.sh:1" in at_config[1].message
    assert {at_script[1].severity, at_config[1].severity} == {Severity.ERROR}


@pytest.mark.parametrize(
    "arguments",
    [
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --max_grad_norm 1 --learning_rate 1e-5 --bf16",
        "--per_device_train_batch_size $B",
        "--warmup_steps 0 --max_steps -1",
        "--auto_find_batch_size --per_device_train_batch_size 2",
        "--something_else 2",
    ],
)
def test_what_agrees_or_is_not_known_is_not_said(arguments: str) -> None:
    assert said(script(f"deepspeed train.py --deepspeed ds.json {arguments}\n")) == []


def test_auto_takes_what_the_argument_says() -> None:
    write({**CONFIG, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})

    name = script("deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2\n")

    assert said(name) == []


def test_the_order_of_the_names_and_a_folder_give_the_same() -> None:
    name = script("deepspeed train.py --deepspeed ds.json --max_grad_norm 0.3\n")
    both = {("ds.json", "gradient_clipping"), ("train.sh", "--max_grad_norm")}

    assert set(said(name, "ds.json")) == set(said("ds.json", name)) == set(said(".")) == both
    assert said("ds.json") == []


def test_a_program_that_compares_nothing_is_warned_of() -> None:
    name = script("deepspeed train.py --deepspeed --deepspeed_config ds.json --max_grad_norm 0.3\n")

    both = findings(name)

    assert [one.severity for _, one in both] == [Severity.WARNING] * 2
    assert all("DeepSpeed goes by the config" in one.message for _, one in both)


def test_a_program_that_is_started_may_fill_in_auto_itself() -> None:
    name = script("deepspeed train.py --deepspeed --deepspeed_config ds.json\n")
    write({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}})
    rules = ("auto-outside-hugging-face",)

    [(_, started)] = findings(name, rules=rules)
    [(_, alone)] = findings("ds.json", rules=rules, target="deepspeed")

    assert (started.severity, alone.severity) == (Severity.WARNING, Severity.ERROR)
    assert started.message == f"{alone.message}, unless the program that is started fills it in"
    [(_, told)] = findings(name, rules=rules, target="deepspeed")  # a person knows which program it is
    assert (told.severity, told.message) == (alone.severity, alone.message)


def test_what_a_started_program_may_fill_in_is_not_taken_out_safely() -> None:
    name = script("deepspeed train.py --deepspeed --deepspeed_config ds.json\n")
    write({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})
    rules = ("auto-outside-hugging-face",)

    [(_, started)] = findings(name, rules=rules)
    [(_, told)] = findings(name, rules=rules, target="deepspeed")

    assert started.fix is not None and told.fix is not None
    assert (started.fix.safe, told.fix.safe) == (False, True)
    assert started.message.endswith("unless the program that is started fills it in")


TRAINING = "model_name_or_path: m\noutput_dir: o\ndeepspeed: ds.json\nlearning_rate: 1.0e-4\n"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("llama_factory.yaml", f"{TRAINING}per_device_train_batch_size: 2\n", "per_device_train_batch_size"),
        ("axolotl.yml", f"base_model: m\n{TRAINING}micro_batch_size: 2\nfp16:\n", "micro_batch_size"),
        ("nested.yaml", "training:\n  deepspeed: ds.json\n  learning_rate: '1e-4'\n  per_device_train_batch_size: 2\n",
         "training.per_device_train_batch_size"),
        ("args.json", json.dumps({"output_dir": "o", "deepspeed": "ds.json", "learning_rate": 1e-4,
                                  "per_device_train_batch_size": 2}), "per_device_train_batch_size"),
    ],
)  # fmt: skip
def test_training_files_are_compared(name: str, text: str, word: str) -> None:
    Path(name).write_text(text)
    rate = f"{word.rpartition('.')[0]}.learning_rate".lstrip(".")

    assert set(said(name)) == {
        (name, rate), (name, word), ("ds.json", "optimizer.params.lr"), ("ds.json", "train_micro_batch_size_per_gpu"),
    }  # fmt: skip
    Path("train.sh").write_text(f"llamafactory-cli train {name}\n")
    assert {file for file, _ in said("train.sh")} == {name, "ds.json"}


def test_a_file_of_a_program_that_is_not_known_is_not_compared() -> None:
    Path("mine.yaml").write_text("deepspeed_config: ds.json\nlearning_rate: 5\n")

    assert said("mine.yaml") == []


def test_a_config_inside_a_training_file_is_compared_with_what_stands_around_it() -> None:
    Path("args.yaml").write_text(
        "max_grad_norm: 2.0\ndeepspeed:\n  gradient_clipping: 1.0\n  zero_optimization: {stage: 2}\n"
    )

    assert [(one.path, one.line) for _, one in findings("args.yaml")] == [
        ("max_grad_norm", 1),
        ("gradient_clipping", 3),
    ]


def test_a_word_of_accelerate_leads_to_the_config_too() -> None:
    Path("acc.yaml").write_text(ACCELERATE)
    name = script("accelerate launch --config_file acc.yaml train.py --per_device_train_batch_size 2\n")

    assert set(said(name)) == {
        ("train.sh", "--per_device_train_batch_size"), ("ds.json", "train_micro_batch_size_per_gpu"),
    }  # fmt: skip


# The number of GPUs.


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("train.sh", "deepspeed --num_gpus 4 train.py --deepspeed ds.json\n", "--num_gpus"),
        ("train.sh", "torchrun --nproc_per_node 4 train.py --deepspeed ds.json\n", "--nproc_per_node"),
        ("acc.yaml", ACCELERATE, "num_processes"),
    ],
)
def test_the_batch_of_another_number_of_gpus_is_said_at_both_places(name: str, text: str, word: str) -> None:
    write({**CONFIG, "train_batch_size": 64})
    Path(name).write_text(text)

    assert said(name, rules=(DISAGREES, "batch-mismatches-gpus")) == [(name, word), ("ds.json", "train_batch_size")]


def test_a_batch_that_the_arguments_do_not_make_is_said_with_the_product() -> None:
    write({"train_batch_size": 64, "zero_optimization": {"stage": 2}})
    words = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    name = script(f"torchrun --nproc_per_node 4 train.py --deepspeed ds.json {words}\n")

    both = findings(name)

    assert [(file, one.path) for file, one in both] == [
        ("train.sh", "--per_device_train_batch_size"), ("ds.json", "train_batch_size"),
    ]  # fmt: skip
    assert "x gradient_accumulation_steps x GPUs is 32" in both[0][1].message
    assert said(script(f"torchrun --nproc_per_node 8 train.py --deepspeed ds.json {words}\n")) == []


def test_two_scripts_on_different_gpus_fix_no_number_for_their_config() -> None:
    write({**CONFIG, "train_batch_size": 64})
    script("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n", "eight.sh")
    script("deepspeed --num_gpus 4 train.py --deepspeed ds.json\n", "four.sh")

    assert said("eight.sh", "four.sh", rules=(DISAGREES, "batch-mismatches-gpus")) == [("four.sh", "--num_gpus")]


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [("train.sh", "deepspeed --num_gpus 4 train.py\n", "--num_gpus"), ("acc.yaml", ACCELERATE, "num_processes")],
)
def test_the_gpus_of_the_scenario_are_those_of_the_launcher(name: str, text: str, word: str) -> None:
    Path("x.scenario.yaml").write_text("hw: a100-80g\nmodel: 7b\ngpus: 8\n")
    Path(name).write_text(text)

    assert (name, word) in said(name, scenario="x.scenario.yaml")
    Path(name).write_text(text.replace("4", "8"))
    assert (name, word) not in said(name, scenario="x.scenario.yaml")


# Around it.


def test_a_fix_takes_the_argument_and_the_difference_is_gone(run: Run) -> None:
    name = script("deepspeed train.py --deepspeed ds.json --max_grad_norm 0.3\n")

    run("lint", name, "--fix", "--unsafe-fixes", "--select", DISAGREES)
    assert json.loads(Path("ds.json").read_text())["gradient_clipping"] == "auto"
    assert run("lint", name, "--select", DISAGREES)[0] == 0


def test_a_comment_silences_it() -> None:
    text = "deepspeed train.py --deepspeed ds.json --max_grad_norm 0.3 # dsgen: ignore[argument-disagrees]\n"

    assert said(script(text)) == [("ds.json", "gradient_clipping")]


def test_a_job_is_checked_with_the_script_beside_it() -> None:
    Path("x.scenario.yaml").write_text("hw: a100-80g\nmodel: 7b\ngpus: 8\n")
    dsgen.render(dsgen.scenario("x.scenario.yaml")).write("x.json")
    script("deepspeed --num_gpus 8 train.py --deepspeed_config x.json\n")
    assert dsgen.check("x.scenario.yaml").ok

    script("deepspeed --num_gpus 4 train.py --deepspeed_config x.json\n")
    checked = dsgen.check("x.scenario.yaml")

    assert checked.pair.files == ("train.sh",)
    assert not checked.clean


@pytest.mark.parametrize(
    "text",
    [
        *("deepspeed", "deepspeed --num_gpus", "deepspeed train.py --deepspeed =", "'", "$("),
        *("accelerate launch", "python -m", 'A="$A"\ndeepspeed $A', "llamafactory-cli"),
    ],
)
def test_no_script_breaks_it(text: str) -> None:
    assert said(script(text)) == []


def test_files_that_name_one_another_end() -> None:
    Path("a.yaml").write_text("deepspeed: a.yaml\nlearning_rate: 1\n")
    script("llamafactory-cli train a.yaml --deepspeed train.sh\n")

    assert [Path(one.document.name).name for one in sources.documents(["train.sh", "a.yaml"])] == ["train.sh", "a.yaml"]


# Against the real Trainer.

ASKED = (
    {"per_device_train_batch_size": 2}, {"gradient_accumulation_steps": 8}, {"max_grad_norm": 0.3},
    {"learning_rate": 2e-5}, {"weight_decay": 0.0}, {"adam_beta2": 0.999}, {"adam_epsilon": 1e-6}, {"bf16": False},
)  # fmt: skip
AGREES = {
    "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "learning_rate": 1e-5,
    "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_epsilon": 1e-8, "bf16": True,
}  # fmt: skip
PROGRAM = """
import json, sys
from transformers import TrainingArguments
config, asked = json.load(sys.stdin)
def refused(asked):
    made = TrainingArguments(output_dir="o", deepspeed=config, report_to=[], use_cpu=True, **asked)
    return sorted(line.split()[2].partition("=")[0] for line in made.hf_deepspeed_config.mismatches)
print("answers", json.dumps([refused(one) for one in asked]))
"""


@pytest.mark.proof
def test_the_trainer_refuses_the_same_keys() -> None:
    asked = [{**AGREES, **one} for one in ASKED]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps([CONFIG, asked]), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout.rpartition("answers ")[2])

    assert [ours(one) for one in asked] == refused
    assert ours(AGREES) == []


def ours(arguments: dict[str, Any]) -> list[str]:
    """The keys that lint speaks of for the arguments of a file."""
    document = unwritten({**arguments, "deepspeed": "ds.json"}, "args.json")
    stated = statements.of_training_file(document, "deepspeed")
    paths = {fault.path for _, fault in disagreements.in_config(unwritten(CONFIG, "ds.json"), stated, "hf-trainer")}
    return sorted({path.partition("[")[0] for path in paths})


# Arrays, and scripts inside of scripts.

ARRAYS = (
    'ARGS=(--deepspeed ds.json --per_device_train_batch_size 2)\ndeepspeed train.py "${ARGS[@]}"\n',
    "ARGS=(\n  --deepspeed ds.json  # ours\n  --bf16 True\n)\n"
    'ARGS+=(--per_device_train_batch_size 2)\ntorchrun --nproc_per_node 8 train.py "${ARGS[@]}"\n',
    "BATCH=2\nONE=(--per_device_train_batch_size $BATCH)\n"
    'ALL=("${ONE[@]}" --deepspeed ds.json)\npython train.py ${ALL[@]+"${ALL[@]}"}\n',
    'CMD=(deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2)\n"${CMD[@]}"\n',
    "declare -a ARGS=(--deepspeed ds.json --per_device_train_batch_size=2)\naccelerate launch train.py ${ARGS[*]}\n",
)
INSIDE = (
    "srun bash -c 'torchrun --nproc_per_node 8 train.py --deepspeed ds.json --per_device_train_batch_size 2'\n",
    'srun bash -lc "cd . && deepspeed train.py \\\n  --deepspeed \\"ds.json\\" --per_device_train_batch_size 2"\n',
    "sbatch <<EOF\n#!/bin/bash\ndeepspeed train.py --deepspeed ds.json \\\\\n  --per_device_train_batch_size 2\nEOF\n",
    "sbatch --nodes 2 <<'EOF'\nsrun bash -c 'deepspeed train.py --deepspeed ds.json "
    "--per_device_train_batch_size 2'\nEOF\n",
    "cat > job.sbatch <<EOF\ndeepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2\nEOF\n"
    "sbatch job.sbatch\n",
    "cat <<EOF | sbatch\ndeepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2\nEOF\n",
)


@pytest.mark.parametrize("text", (*ARRAYS, *INSIDE))
def test_what_stands_in_an_array_or_in_a_script_inside_is_compared(text: str) -> None:
    name = script(text)

    assert said("ds.json", name) == [
        ("ds.json", "train_micro_batch_size_per_gpu"),
        (name, "--per_device_train_batch_size"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        # a branch says it otherwise
        'ARGS=(--deepspeed ds.json --per_device_train_batch_size 2)\nif [ "$BIG" ]; then\n'
        '  ARGS+=(--per_device_train_batch_size 4)\nfi\ndeepspeed train.py "${ARGS[@]}"\n',
        'ARGS=(--deepspeed ds.json --per_device_train_batch_size 2)\n[ "$BIG" ] && '
        'ARGS+=(--per_device_train_batch_size 4)\ndeepspeed train.py "${ARGS[@]}"\n',
        # a branch makes it
        "if [ $BIG ]; then\n  B=(--per_device_train_batch_size 4)\nelse\n  B=(--per_device_train_batch_size 2)\nfi\n"
        'deepspeed train.py --deepspeed ds.json "${B[@]}"\n',
        # it is never used, or made again
        "ARGS=(--deepspeed ds.json --per_device_train_batch_size 2)\ndeepspeed train.py --deepspeed ds.json\n",
        "ARGS=(--per_device_train_batch_size 2)\nARGS=(--per_device_train_batch_size 4)\n"
        'deepspeed train.py --deepspeed ds.json "${ARGS[@]}"\n',
        # text that nobody runs
        "cat <<EOF\ndeepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2\nEOF\n",
        "cat > notes.txt <<EOF\ndeepspeed train.py --deepspeed nowhere.json --per_device_train_batch_size 2\nEOF\n",
        "python -c 'deepspeed train.py --deepspeed nowhere.json'\n",
        "echo bash -c 'x'\n",
    ],
)
def test_what_a_branch_decides_and_what_nobody_runs_is_not_said(text: str) -> None:
    assert said("ds.json", script(text)) == []


def test_a_setting_inside_of_a_script_inside_stands_where_it_is_written() -> None:
    text = "sbatch <<EOF\nexport OMP_NUM_THREADS=8\nEOF\nsrun bash -c 'NCCL_DEBUG=INFO deepspeed train.py'\n"

    launch = launch_files.scan(text, "x.sh")

    assert [(one.name, one.exported, text[one.at.start : one.at.end]) for one in launch.settings] == [
        ("OMP_NUM_THREADS", True, "8"),
        ("NCCL_DEBUG", True, "INFO"),
    ]


# The dtype of `accelerate launch`.


@pytest.mark.parametrize(
    ("option", "config", "expected"),
    [
        ("--mixed_precision fp16", {"bf16": {"enabled": True}}, [("bf16.enabled", Severity.ERROR)]),
        ("--mixed_precision=bf16", {"fp16": {"enabled": True}}, [("fp16.enabled", Severity.ERROR)]),
        ("--mixed-precision bf16", {"bf16": {"enabled": False}}, [("bf16.enabled", Severity.WARNING)]),
        ("--mixed_precision bf16", {"bf16": {"enabled": True}}, []),
        ("--mixed_precision bf16", {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, []),
        ("--mixed_precision bf16", {}, []),  # Accelerate writes it into the config
        ("--mixed_precision no", {"bf16": {"enabled": True}}, []),  # the config's is taken
        ("--mixed_precision $DTYPE", {"bf16": {"enabled": True}}, []),
    ],
)
def test_the_dtype_of_accelerate_s_launcher_is_compared(
    option: str, config: dict[str, Any], expected: list[tuple[str, Severity]]
) -> None:
    write({"train_micro_batch_size_per_gpu": 4, **config})
    name = script(f"accelerate launch --use_deepspeed --deepspeed_config_file ds.json {option} train.py\n")

    in_config = [(finding.path, finding.severity) for file, finding in findings("ds.json", name) if file == "ds.json"]
    in_script = [finding.severity for file, finding in findings("ds.json", name) if file == name]
    assert in_config == expected
    assert in_script == [severity for _, severity in expected]


def test_what_the_program_is_told_of_a_dtype_comes_before_its_launcher() -> None:
    start = "accelerate launch --mixed_precision fp16 train.py --deepspeed ds.json"

    assert said("ds.json", script(f"{start}\n")) == [("ds.json", "bf16.enabled"), ("train.sh", "--mixed_precision")]
    assert said("ds.json", script(f"{start} --bf16\n")) == []
