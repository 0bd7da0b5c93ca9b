"""The frameworks themselves, with what was written for them: two ranks of a CPU, two steps of a tiny random model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dsgen
from dsgen.cli import main
from dsgen.frameworks import job_files
from dsgen.frameworks.needs import needs
from dsgen.frameworks.training_arguments import resolved, training_arguments, with_autos

pytestmark = pytest.mark.proof

PROGRAMS = Path(__file__).parent / "programs"
SCENARIO = ["--hw", "a100-40g", "--model", "7b", "--gpus", "2", "--micro-batch", "1", "--total-steps", "2"]
SECONDS = 300
BATCHES = [4, 1, 2]  # sequences of a step, of a micro-batch, and passes


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """A program of PROGRAMS in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{PROGRAMS}{os.pathsep}{Path(dsgen.__file__).parents[1]}",  # `dsgen needs` is the one under test
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ACCELERATE_USE_CPU": "false",
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def heard(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the engine took, as the program's last line says it."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("HEARD ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads(lines[-1].removeprefix("HEARD "))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The folder of a saved model."""
    folder = tmp_path_factory.mktemp("model")
    done = run(folder, [sys.executable, str(PROGRAMS / "tiny.py"), str(folder)])
    assert done.returncode == 0, done.stderr
    return folder


def written(target: str, *options: str) -> None:
    """The files of a target, by the command line."""
    command = ["render", *SCENARIO, "--target", target, *options, "-q"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "-o", "ds_config.json"])
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("target", "program", "launcher", "options"),
    [
        ("hf-trainer", "with_trainer.py training_args.yaml", "torchrun", "--zero-stage 2"),
        ("hf-trainer", "with_trainer.py training_args.py", "torchrun", "--zero-stage 3 --resolve"),
        ("hf-trainer", "with_trainer.py training_args.yaml", "torchrun", "--zero-stage 1 --tp 2 --hw a100-80g"),
        ("hf-trainer", "with_sft.py training_args.py", "torchrun", "--zero-stage 2 --method lora"),
        ("accelerate", "with_accelerate.py", "accelerate", "--zero-stage 3"),
        ("accelerate", "with_accelerate.py", "accelerate", "--zero-stage 1 --tp 2 --hw a100-80g"),
        ("lightning", "with_lightning.py trainer.py", "torchrun", "--zero-stage 2"),
    ],
)
def test_a_framework_trains_with_what_was_written_for_it(
    tmp_path, monkeypatch, model, target, program, launcher, options
):
    monkeypatch.chdir(tmp_path)
    words = options.split()
    written(target, *words, "--global-batch", "2" if "--tp" in words else "4")  # of AutoTP's group it is one replica's
    name, *rest = program.split()
    start = {
        "torchrun": ["torchrun", "--nproc_per_node", "2"],
        "accelerate": ["accelerate", "launch", "--config_file", "accelerate.yaml"],
    }[launcher]

    took = heard(run(tmp_path, [*start, str(PROGRAMS / name), str(model), *rest]))

    scenario = json.loads((tmp_path / "ds_config.json").read_text())
    assert took["batch"] == BATCHES
    assert took["steps"] == 2
    assert took["dtype"] == "torch.bfloat16"
    assert took["clipping"] == (0.3 if "lora" in words else 1.0)
    assert str(took["stage"]) in options
    assert took["config"]["optimizer"]["params"]["lr"] == (2e-4 if "lora" in words else 2e-5)
    assert took["config"]["scheduler"]["params"]["total_num_steps"] == 2
    for key, value in scenario["zero_optimization"].items():
        assert took["config"]["zero_optimization"][key] == value
    if "--tp" in words:
        assert took["config"]["tensor_parallel"]["autotp_size"] == 2


def test_lightning_saves_and_goes_on_from_its_newest_whole_checkpoint(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    written("lightning", "--zero-stage", "2", "--global-batch", "4")
    file = tmp_path / "trainer.py"
    assert "every_n_train_steps=2," in file.read_text()  # the whole run
    file.write_text(file.read_text().replace("every_n_train_steps=2,", "every_n_train_steps=1,"))
    command = ["torchrun", "--nproc_per_node", "2", str(PROGRAMS / "with_lightning.py"), str(model), "trainer.py"]

    first = heard(run(tmp_path, command))
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())

    assert first["last"] is None
    assert kept == ["last.ckpt", "step=1.ckpt", "step=2.ckpt"]
    (tmp_path / "checkpoints" / "step=2.ckpt" / "latest").unlink()  # as a crash while it was written
    again = heard(run(tmp_path, command))
    assert again["last"] == "checkpoints/step=1.ckpt"
    assert (again["seen"], again["steps"]) == ([1, 1], 2)  # the two passes of the second step alone


@pytest.mark.parametrize("deleted", ["optimizer", "scheduler", "both"])
def test_accelerate_runs_the_code_of_a_config_whose_optimizer_or_schedule_was_deleted(
    tmp_path, monkeypatch, model, deleted
):
    monkeypatch.chdir(tmp_path)
    names = ("optimizer", "scheduler") if deleted == "both" else (deleted,)
    options = ["--zero-stage", "2", "--global-batch", "4", "--offload", "none", "--tp", "1", "--hw", "a100-80g"]
    options += [f"--set={name}=null" for name in names]
    written("accelerate", *options)
    done = run(tmp_path, ["dsgen", "needs", *SCENARIO, *options, "--target", "accelerate", "--format", "json"])
    (tmp_path / "needs.json").write_text(done.stdout)
    start = ["accelerate", "launch", "--config_file", "accelerate.yaml", str(PROGRAMS / "with_accelerate.py")]

    took = heard(run(tmp_path, [*start, str(model), "needs.json"]))

    assert took["batch"] == BATCHES
    assert took["steps"] == 2
    assert took["trained"] > 0
    assert [name for name in ("optimizer", "scheduler") if name not in took["config"]] == list(names)


SMALL = "--global-batch 4 --zero-stage 2 --tp 1 --offload none --model llama-3.2-1b"
RECOMPUTED = "--global-batch 4 --zero-stage 3 --method lora --lora-rank 2 --checkpointing full"
SHARED = ["--hw", "a100-80g", "--model", "7b", "--gpus", "2", "--micro-batch", "1", "--total-steps", "2"]


def with_needs(folder: Path, model: Path, options: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """The program of the needs of a scenario, with its config, but for one of them."""
    for command in (["needs", "--format", "json"], ["render", "-q", "-o", "ds_config.json"]):
        done = run(folder, ["dsgen", *command, *SHARED, "--attention", "sdpa", *options.split()])
        assert done.returncode == 0, done.stderr
        (folder / "needs.json").write_text(done.stdout) if command[0] == "needs" else None
    program = [str(PROGRAMS / "with_needs.py"), str(model), "needs.json", without]
    return run(folder, ["torchrun", "--nproc_per_node", "2", *program])


@pytest.mark.parametrize(
    ("options", "trained"),
    [
        ("--global-batch 4 --zero-stage 3 --checkpointing full", 90_432),
        ("--global-batch 4 --zero-stage 2 --method lora --lora-rank 2", 4_096),
        (f"{RECOMPUTED} --deepspeed 0.19", 4_096),
        (f"{RECOMPUTED} --deepspeed 0.18", 4_096),
        ("--global-batch 2 --zero-stage 1 --tp 2", None),
        (f"{SMALL} --set optimizer=null", None),
        (
            f"{SMALL} --set optimizer=null --set scheduler=null",
            None,
        ),
        ("--global-batch 4 --zero-stage 2 --tp 1 --set scheduler=null", None),
    ],
)
def test_a_program_of_the_code_that_needs_shows_trains_saves_and_resumes(tmp_path, model, options, trained):
    took = heard(with_needs(tmp_path, model, options))

    assert took["batch"] == BATCHES
    assert took["steps"] == 2
    assert took["resumed"] is True
    assert took["length"] == 4096
    assert took["checkpointing"] == ("--checkpointing" in options)
    assert took["reentrant"] == (["0.18" in options] if "--checkpointing" in options else [])  # of blocks that it did
    assert trained in (None, took["trained"])
    assert (took["whole"] == 0) == ("--zero-stage 3" in options)  # under zero.Init no rank has a whole tensor


def test_without_its_sampler_autotp_stops_as_the_need_says(tmp_path, model):
    done = with_needs(tmp_path, model, "--global-batch 2 --zero-stage 1 --tp 2", "same-data")

    assert done.returncode != 0
    assert "Data inconsistency within the TP group" in done.stderr


class OfWorld:
    """TrainingArguments as a job of so many ranks has them."""

    def __init__(self, args: Any, world_size: int) -> None:
        self._args, self.world_size = args, world_size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)


@pytest.mark.parametrize(
    "scenario",
    [
        {"hw": "a100-40g", "model": "7b"},
        {"hw": "a100-40g", "model": "7b", "total_steps": 1000},
        {"hw": "rtx4090-24g", "model": "qwen2.5-7b", "gpus": 1, "method": "lora"},
        {"hw": "h100-80g", "model": "70b", "gpus": 16, "network": "ib-hdr-200g", "zero_stage": 3, "total_steps": 500},
        {"hw": "v100-32g", "model": "1.3b", "gpus": 4, "attention": "sdpa"},
        {"hw": "a100-80g", "model": "7b", "gpus": 4, "tp": 2, "zero_stage": 1},
    ],
)
def test_auto_becomes_what_transformers_makes_of_it_and_resolved_numbers_do_not_disagree(scenario):
    from transformers import LlamaConfig, TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    config = dsgen.render(scenario)
    told = {item.name: item.value for item in training_arguments(config)}
    told.pop("use_liger_kernel", None)
    warnings.simplefilter("ignore", FutureWarning)  # 5.23 has another name for gradient_checkpointing
    args = OfWorld(TrainingArguments(output_dir="output", use_cpu=True, **told), config.plan.job.world)
    total = told.get("max_steps", 1234)

    class Model:
        config = LlamaConfig(hidden_size=4096)

    made = []
    for tree in (with_autos(config), resolved(config)):
        asked = HfTrainerDeepSpeedConfig(tree)
        asked.trainer_config_process(args)
        asked.trainer_config_finalize(args, Model, total)  # it raises where a number disagrees
        made.append(asked.config)

    assert made[0] == made[1] == resolved(config)
    assert job_files(config, "hf-trainer").autos.items() <= _leaves(made[0]).items()


@pytest.mark.parametrize("keeps", [None, True, False])
def test_samples_that_are_packed_as_trl_does_begin_anew_and_fill_sequences(tmp_path, keeps):
    """By the code of `dsgen needs`: positions that start over, and the borders that FlashAttention's kernels take.

    The Trainer takes the borders away unless it is told not to, as that code says.
    """
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    job = {"hw": "a100-80g", "model": "mistral-7b", "method": "lora", "packing": True, "seq_len": 256}
    target = "deepspeed" if keeps is None else "hf-trainer"
    snippet = {item.code: item.snippet for item in needs(dsgen.plan(job), target)}["length"]
    lengths = [200, 50, 100, 6]
    names = {
        "dataset": Dataset.from_dict({"input_ids": [[7] * length for length in lengths]}),
        "tokenizer": SimpleNamespace(pad_token_id=0),
    }
    exec(snippet, names)
    sequences = list(names["dataset"])
    batch = names["collate"](sequences)
    if keeps is not None:
        assert "remove_unused_columns=False" in snippet
        some = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        model = LlamaForCausalLM(LlamaConfig(**some, vocab_size=8))
        args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, remove_unused_columns=not keeps)
        (batch,) = Trainer(model, args, names["collate"], names["dataset"]).get_train_dataloader()

    assert [sum(one["seq_lengths"]) for one in sequences] == [256, 100]
    assert batch["input_ids"].shape == (1, 356)
    borders = [100, 256] if keeps is False else [6, 50, 100, 200]
    assert sorted(batch["cu_seq_lens_q"].diff().tolist()) == borders
    assert batch["position_ids"].eq(0).sum() == len(borders)


def test_trl_takes_the_config_of_samples_end_to_end(tmp_path):
    """As `dsgen needs` says it: TRL stops where max_length is a number, for it cuts nothing without packing."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    job = {"hw": "a100-80g", "model": "mistral-7b", "method": "lora", "padding_free": True}
    snippet = {item.code: item.snippet for item in needs(dsgen.plan(job), "hf-trainer")}["length"]
    (call,) = re.findall(r"SFTConfig\((.*)\)", snippet)
    warnings.simplefilter("ignore", FutureWarning)  # transformers has another name for an argument of TRL's
    where = f"output_dir={str(tmp_path)!r}, use_cpu=True, bf16=False, report_to='none', per_device_train_batch_size=2"
    args = eval(f"SFTConfig({call}, {where})", {"SFTConfig": SFTConfig})
    words = Tokenizer(models.WordLevel({"a": 0, "<pad>": 1}, unk_token="a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<pad>")
    some = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    samples = Dataset.from_dict({"input_ids": [[3] * 9, [3] * 5]})
    trainer = SFTTrainer(
        LlamaForCausalLM(LlamaConfig(**some, vocab_size=8)), args, train_dataset=samples, processing_class=tokenizer
    )
    (batch,) = trainer.get_train_dataloader()

    assert batch["input_ids"].shape == (1, 14)
    assert sorted(batch["cu_seq_lens_q"].diff().tolist()) == [5, 9]


def _leaves(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        here = f"{path}{key}"
        kept.update(_leaves(value, f"{here}.") if isinstance(value, dict) else {here: value})
    return kept
