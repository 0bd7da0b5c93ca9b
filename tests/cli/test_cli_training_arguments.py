"""`--args` without a config: what a training file wants is the scenario, and everything else wins over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, run

QLORA = """model_name_or_path: Qwen/Qwen3-4B
quantization_bit: 4
finetuning_type: lora
lora_rank: 8
lora_target: all
lora_dropout: 0.05
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
"""
TRAINER = """from transformers import AutoModelForCausalLM, TrainingArguments

args = TrainingArguments(per_device_train_batch_size=1, gradient_checkpointing=True, bf16=True)
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
"""
CARD = ("--hw", "4090", "--gpus", "1")
DEEPSPEED = ("--target", "deepspeed")


@pytest.fixture
def sft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sft.yaml"
    path.write_text(QLORA, encoding="utf-8")
    return path


def planned(*words: str) -> Any:
    done = run("plan", "--args", "sft.yaml", *CARD, *words, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_training_file_is_planned_without_a_config(sft: Path) -> None:
    run("render", "--args", "sft.yaml", *CARD, "-o", "ds.json", "-q")
    config = json.loads(Path("ds.json").read_text(encoding="utf-8"))

    assert config["train_micro_batch_size_per_gpu"] == 1
    assert config["gradient_accumulation_steps"] == 8
    assert config["optimizer"]["params"]["lr"] == 1e-4
    assert config["bf16"] == {"enabled": True}
    told = run("memory", "--args", "sft.yaml", *CARD).out
    assert told.startswith("qwen3-4b on 1 rtx4090-24g: plain data parallel, checkpointing")
    assert "2048 tokens" in told
    assert "changes nothing" not in told  # all-linear is what the profile says too


def test_who_says_it_is_the_file_and_an_option_wins(sft: Path) -> None:
    why = run("why", "training.lr", "--args", "sft.yaml", *CARD).out
    assert why.startswith("training.lr = 0.0001\n  sft.yaml")
    assert "adapters of rank" in " ".join(run("needs", "--args", "sft.yaml", *CARD).out.split())
    above = run("why", "training.seq_len", "--args", "sft.yaml", *CARD, "--seq-len", "512").out
    assert above.startswith("training.seq_len = 512\n")
    assert "lost" in above
    other = run("plan", "--args", "sft.yaml", *CARD, "--model", "llama-3.2-1b").out
    assert other.startswith("llama-3.2-1b on 1 rtx4090-24g")


def test_a_scenario_file_wins_over_the_arguments(sft: Path) -> None:
    Path("s.yaml").write_text("hw: '3090'\ngpus: 2\nseq_len: 1024\n", encoding="utf-8")

    out = run("plan", "s.yaml", "--args", "sft.yaml").out

    assert out.startswith("qwen3-4b on 2 rtx3090-24g, 1024 tokens, 16 sequences a step")


def test_a_config_that_it_names_is_spoken_of(sft: Path) -> None:
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    sft.write_text(f"{QLORA}deepspeed: ds.json\n", encoding="utf-8")

    done = run("plan", "--args", "sft.yaml", *CARD)

    assert done.code == 0
    assert "sft.yaml names ds.json, which is not looked at here: --config sft.yaml is about that one" in done.err


def test_what_is_not_counted_is_said(sft: Path) -> None:
    sft.write_text(f"stage: dpo\n{QLORA}", encoding="utf-8")

    assert "is of DPO: the second answer of each pair is not counted" in run("plan", "--args", "sft.yaml", *CARD).err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("a: 1\n", "it has no argument that a plan follows"),
        ("lora_rank: 8\nuse_unsloth_gc: true\n", "moves activations to the node's RAM"),
        ("model: nobody/knows\nlora_rank: 8\n", "nobody/knows"),
        ("{", ""),
    ],
)
def test_a_file_that_says_nothing_useful_is_an_error(sft: Path, text: str | None, says: str) -> None:
    path = Path("bad.yaml")
    if text is not None:
        path.write_text(text, encoding="utf-8")

    done = run("plan", "--args", "bad.yaml", *CARD)

    assert done.code == 2
    assert says in done.err
    assert "bad.yaml" in done.err
    assert "Traceback" not in done.err


DATA = "template: qwen\ndataset:\n  - mine\n  - yours  # of last year\nlora_alpha: 40\n"


def test_a_file_for_the_program_has_what_the_file_of_arguments_says(sft: Path) -> None:
    """What only a person knows, and the scale of adapters, of which no plan depends."""
    sft.write_text(f"{QLORA}{DATA}", encoding="utf-8")

    run("render", "--args", "sft.yaml", *CARD, "--target", "llama-factory", "-o", "ds.json", "-q")
    told = Path("ds.llama_factory.yaml").read_text(encoding="utf-8")

    lines = ("model_name_or_path: Qwen/Qwen3-4B", "template: qwen", "  - yours  # of last year", "lora_alpha: 40")
    assert [line for line in lines if f"{line}\n" not in told] == []
    assert "FILL_IN" not in told


LEFT = "trust_remote_code: true\nplot_loss: false\nfreeze_vision_tower: true\nflash_attn: fa2\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("render", "--target", "llama-factory", "-o", "ds.json", "-q"), "ds.llama_factory.yaml"),
        (("launch", "--target", "llama-factory", "--with", "torchrun", "-o", "run"), "llama_factory.yaml"),
    ],
)
def test_what_a_file_for_the_same_program_leaves_out_is_said(sft: Path, words: tuple[str, ...], name: str) -> None:
    """Not what a plan follows and writes by another name, nor what is switched off."""
    sft.write_text(f"{QLORA}{DATA}{LEFT}", encoding="utf-8")

    done = run(words[0], "--args", "sft.yaml", *CARD, *words[1:])

    said = "leaves out what sft.yaml also says: trust_remote_code, freeze_vision_tower; copy what your run needs"
    assert f"warning: {name} {said}" in done.err


def test_a_folder_that_is_written_over_is_left_out_by_render_and_said(sft: Path) -> None:
    """LLaMA-Factory goes on from what lies in output_dir without it, or stops; a launch writes it."""
    sft.write_text(f"{QLORA}{DATA}overwrite_output_dir: true\n", encoding="utf-8")
    asked = ("--args", "sft.yaml", *CARD, "--target", "llama-factory")

    rendered = run("render", *asked, "-o", "ds.json", "-q").err
    launched = run("launch", *asked, "--with", "torchrun", "-o", "run").err

    assert "ds.llama_factory.yaml leaves out what sft.yaml also says: overwrite_output_dir; copy" in rendered
    assert "leaves out" not in launched


def test_of_another_program_nothing_is_left_out(sft: Path) -> None:
    sft.write_text(f"{QLORA}{LEFT}", encoding="utf-8")

    assert "leaves out" not in run("render", "--args", "sft.yaml", *CARD, "--target", "axolotl", "-o", "ds.json").err


def test_of_another_program_it_has_the_model_and_what_is_open_says_so(sft: Path) -> None:
    run("render", "--args", "sft.yaml", *CARD, "--target", "axolotl", "-o", "ds.json", "-q")
    told = Path("ds.axolotl.yaml").read_text(encoding="utf-8")

    assert "base_model: Qwen/Qwen3-4B\n" in told
    assert "datasets: [{path: FILL_IN, type: FILL_IN}]" in told
    assert "# Where it says FILL_IN only you know" in told


def test_the_folder_of_a_run_has_it_too(sft: Path) -> None:
    sft.write_text(f"{QLORA}{DATA}", encoding="utf-8")

    launched = ("--with", "torchrun", "--target", "llama-factory", "-o", "run")
    done = run("launch", "--args", "sft.yaml", *CARD, *launched)

    assert done.code == 0, done.err
    assert "template: qwen\n" in Path("run/llama_factory.yaml").read_text(encoding="utf-8")


def test_an_optimizer_that_no_plan_knows_is_named(sft: Path) -> None:
    sft.write_text(f"{QLORA}optim: adafactor\n", encoding="utf-8")

    assert "sft.yaml: adafactor is not known: AdamW is counted" in run("memory", "--args", "sft.yaml", *CARD).err


def test_a_committed_scenario_has_no_arguments(sft: Path) -> None:
    Path("s.yaml").write_text("hw: '3090'\ngpus: 2\nmodel: llama-3.2-1b\n", encoding="utf-8")
    run("render", "s.yaml", "-o", "s.json", "-q")

    assert "--args does nothing" in run("render", "--check", "s.yaml", "-o", "s.json", "--args", "sft.yaml").err


def test_two_files_that_name_one_config_are_both_checked(sft: Path) -> None:
    Path("ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    for name in ("one.yaml", "two.yaml"):
        Path(name).write_text(f"{QLORA}deepspeed: ds.json\n", encoding="utf-8")

    assert "names none" not in run("lint", "one.yaml", "two.yaml", "ds.json").err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("ds.json", '{"train_micro_batch_size_per_gpu": 2}', "dsgen plan --config ds.json and memory take it"),
        (
            "nb.ipynb",
            '{"cells": [{"source": ["TrainingArguments(bf16=True)"]}]}',
            "jupyter nbconvert --to script nb.ipynb",
        ),
        ("parsed.py", "HfArgumentParser((TrainingArguments,))\n", "--args run.sh, the script that starts it"),
    ],
)
def test_a_file_without_arguments_is_answered_with_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)

    assert says in refused("plan", "--args", name, "--hw", "a100-80g", "--model", "7b")


def test_a_program_in_a_scenario_s_place_is_told_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("TrainingArguments(bf16=True)\n")

    assert "--args train.py takes what it tells its trainer" in refused("plan", "train.py")


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("sft.yaml", QLORA, "llama-factory"),
        ("axolotl.yaml", "base_model: Qwen/Qwen3-4B\nsequence_len: 2048\nmicro_batch_size: 1\n", "axolotl"),
        ("train.py", TRAINER, "hf-trainer"),
        ("trl.yaml", "model_name_or_path: Qwen/Qwen3-4B\nuse_peft: true\nlora_r: 8\n", "hf-trainer"),
    ],
)
def test_needs_shows_the_code_of_the_program_whose_arguments_they_are(
    sft: Path, name: str, text: str, target: str
) -> None:
    (sft.parent / name).write_text(text, encoding="utf-8")
    shown, other = (" ".join(run("needs", "--args", name, *CARD, *more).out.split()) for more in ((), DEEPSPEED))

    assert f"dsgen render --target {target} -o ds_config.json" in shown
    assert "dsgen render --target deepspeed -o ds_config.json" in other


def test_a_loss_that_a_newer_trl_makes_in_chunks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = (
        "from trl import SFTConfig, SFTTrainer\n"
        "args = SFTConfig(per_device_train_batch_size=1, max_length=2048, gradient_checkpointing=True{})\n"
        'trainer = SFTTrainer(model="Qwen/Qwen3-0.6B", args=args)\n'
    )

    def told(more: str, *options: str) -> str:
        Path("sft.py").write_text(program.format(more), encoding="utf-8")
        return " ".join(run("memory", "--args", "sft.py", *CARD, *options).err.split())

    assert "as SFTTrainer makes it before TRL 1.7; from there on it goes in chunks, which --chunked-loss" in told("")
    assert "before TRL 1.15" in told(', loss_type="nll"')
    assert "before TRL" not in told("", "--chunked-loss")
    assert "before TRL" not in told("", "--no-chunked-loss")
    assert "before TRL" not in told(", use_liger_kernel=True")
    kernels = ', use_liger_kernel=True, liger_kernel_config={"fused_linear_cross_entropy": False}'
    assert "before TRL 1.15" in told(kernels)
    assert "before TRL" not in told(", label_smoothing_factor=0.1")
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8")
    Path("sft.py").write_text(program.format(""), encoding="utf-8")
    beside = ("memory", "--config", "ds.json", "--args", "sft.py", *CARD)
    assert "before TRL 1.7" in " ".join(run(*beside).out.split())
    assert "before TRL 1.7" not in " ".join(run(*beside, "--no-chunked-loss").out.split())
    Path("sft.py").write_text(program.format("").replace("SFT", "DPO"), encoding="utf-8")
    assert "TRL 1.7" not in run("memory", "--args", "sft.py", *CARD).err


def test_what_stage_3_alone_does_is_not_told_of_another_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = TRAINER.splitlines(keepends=True)
    Path("train.py").write_text("".join([lines[0], lines[3], lines[2]]), encoding="utf-8")

    assert "no zero.Init" in run("memory", "--args", "train.py", *CARD, "--zero-stage", "3").err
    assert "no zero.Init" in run("plan", "--args", "train.py", *CARD).err
    assert "no zero.Init" not in run("memory", "--args", "train.py", *CARD, "--zero-stage", "2").err


@pytest.mark.parametrize("name", ["cutoff_len", "per_device_train_batch_size", "gradient_accumulation_steps"])
@pytest.mark.parametrize("value", ["8k", '"8"'])
def test_a_count_that_is_no_number_is_refused(sft: Path, name: str, value: str) -> None:
    lines = [f"{name}: {value}" if line.startswith(f"{name}:") else line for line in QLORA.splitlines()]
    sft.write_text("\n".join(lines), encoding="utf-8")

    done = run("plan", "--args", "sft.yaml", *CARD)

    assert done.code == 2
    assert f"{name} is {value}; it must be a whole number, in digits alone" in " ".join(done.err.split())


def test_what_is_written_keeps_where_a_run_writes_and_a_smaller_evaluation(sft: Path) -> None:
    own = "output_dir: saves/mine\nlogging_steps: 1\nval_size: 0.1\n"
    files = ("--target", "llama-factory", "-o", "ds_config.json", "-q", "--force")

    def written(batch: str) -> list[str]:
        sft.write_text(f"{QLORA}{own}{batch}", encoding="utf-8")
        run("render", "--args", "sft.yaml", *CARD, *files)
        return Path("llama_factory.yaml").read_text(encoding="utf-8").splitlines()

    assert {"output_dir: saves/mine", "logging_steps: 1"} <= {*written("")}
    fits = next(line for line in written("") if line.startswith("per_device_eval_batch_size: "))
    number = int(fits.split()[1])
    assert number > 1
    assert fits.replace(f": {number}", ": 1", 1) in written("per_device_eval_batch_size: 1\n")
    assert fits in written("per_device_eval_batch_size: 500\n")


def test_a_paged_optimizer_is_told(sft: Path) -> None:
    sft.write_text(f"{QLORA}optim: paged_adamw_8bit\n", encoding="utf-8")
    done = run("plan", "--args", "sft.yaml", *CARD)

    assert "paged_adamw_8bit is counted and written as AdamW8bit, its states on the GPU" in done.err
    sft.write_text(f"{QLORA}optim: adamw_8bit\n", encoding="utf-8")
    assert "paged" not in run("plan", "--args", "sft.yaml", *CARD).err


def test_an_argument_that_transformers_has_no_more_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = 'warmup_ratio=0.03, evaluation_strategy="no", overwrite_output_dir=True, '
    Path("train.py").write_text(TRAINER.replace("bf16=True", f"{old}bf16=True"), encoding="utf-8")

    told = " ".join(run("plan", "--args", "train.py", *CARD).err.split())

    assert "TrainingArguments of transformers 5.23 stops (TypeError) at what it has no more: " in told
    assert "warmup_ratio (now warmup_steps), evaluation_strategy (now eval_strategy), overwrite_output_dir" in told
    assert "no more" not in run("plan", "--args", "train.py", *CARD, "--transformers", "4.57").err
    Path("train.py").write_text(TRAINER, encoding="utf-8")
    assert "no more" not in run("plan", "--args", "train.py", *CARD).err
    Path("train.py").write_text(TRAINER.replace("bf16", 'accelerator_config={"split_batches": True}, bf16'))
    assert "no more" not in run("plan", "--args", "train.py", *CARD).err
    computed = TRAINER.replace("bf16=True", "warmup_ratio=ours.warmup_ratio, bf16=True")
    Path("train.py").write_text(computed, encoding="utf-8")
    assert "no more: warmup_ratio" in " ".join(run("plan", "--args", "train.py", *CARD).err.split())
    Path("sft.yaml").write_text(f"{QLORA}warmup_ratio: 0.1\n", encoding="utf-8")
    assert "no more" not in run("plan", "--args", "sft.yaml", *CARD).err


@pytest.mark.proof
def test_transformers_has_none_of_what_is_told_to_be_gone_and_all_that_is_there_instead() -> None:
    import dataclasses

    from transformers import TrainingArguments

    from dsgen.asking.uncounted_arguments import GONE

    fields = {field.name for field in dataclasses.fields(TrainingArguments)}
    assert not fields & {*GONE}
    assert fields >= {*filter(None, GONE.values())}


def test_a_launch_script_says_how_many_gpus_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINER, encoding="utf-8")
    asked = ("plan", "--args", "run.sh", "--hw", "4090")

    def planned_on(command: str, *more: str) -> str:
        Path("run.sh").write_text(f"{command} train.py\n", encoding="utf-8")
        return run(*asked, *more).out.partition(",")[0]

    assert planned_on("torchrun --nproc_per_node 2") == "qwen3-0.6b on 2 rtx4090-24g"
    assert planned_on("torchrun --nproc_per_node 2", "--gpus", "4") == "qwen3-0.6b on 4 rtx4090-24g"
    assert planned_on("torchrun --nproc_per_node $GPUS") == "qwen3-0.6b on 8 rtx4090-24g"
    assert planned_on("deepspeed --num_gpus 3") == "qwen3-0.6b on 3 rtx4090-24g"
    assert planned_on("torchrun --nnodes 2 --nproc_per_node 4").startswith("qwen3-0.6b on 2 x 4 rtx4090-24g over")
    assert planned_on("torchrun --nnodes 1:4 --nproc_per_node 4") == "qwen3-0.6b on 8 rtx4090-24g"
    fewest = run(*asked, "--gpus", "auto", "--tokens", "1B", "--deadline", "100d")
    assert ": 1 GPU\n" in fewest.out


@pytest.mark.parametrize(
    ("path", "what"), [("gone.py", "no such file"), ("gone.sh", "no such file"), ("runs", "it is a folder")]
)
def test_arguments_that_are_not_there_are_no_profile(sft: Path, path: str, what: str) -> None:
    Path("runs").mkdir()

    told = refused("plan", "--args", path, *CARD)

    assert told.startswith(f"error: {path}: {what}; arguments are a training program's, in YAML, JSON, its Python or")
    assert "profiles list" not in told
