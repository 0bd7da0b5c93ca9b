"""The library's face: what the command line does, as typed functions; each loads what it needs when it is called.

A job is said as layers joined with `|`, or as a dict with the fields of a scenario; a DeepSpeed config is a `Config`, a
dict of DeepSpeed's keys or the path of a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dsgen import catalog
from dsgen.jobs import scenarios
from dsgen.jobs.composed import PYTHON, Layers
from dsgen.jobs.composed import overrides as composed_overrides
from dsgen.jobs.job import Job
from dsgen.planning.planner import Plan
from dsgen.rendering import Config
from dsgen.rendering import render as render_plan
from dsgen.rendering.wanted import Path, Values, Wanted, job, plan, scenario
from dsgen.shapes.arguments import names_arguments, path_of, text_of
from dsgen.shapes.errors import mistake
from dsgen.shapes.layers import Rank

if TYPE_CHECKING:
    from dsgen.asking.adopting import Adoption
    from dsgen.asking.calibrating import Calibration
    from dsgen.asking.memory_questions import Footprint
    from dsgen.asking.questions import Answer
    from dsgen.catalog.detected import DetectedMachine
    from dsgen.checking import Checked
    from dsgen.effective import Effective
    from dsgen.shapes.profiles import Hardware, Network
    from dsgen.simulating import Simulation

__all__ = [
    "Layers",
    "adopt",
    "calibrate",
    "check",
    "detect",
    "effective",
    "job",
    "memory",
    "overrides",
    "plan",
    "profile",
    "render",
    "scenario",
    "simulate",
    "site",
    "why",
]


@names_arguments()
def profile(name: str) -> Layers:
    """A built-in or own profile by name, alias or path; a Hugging Face config.json is a model.

    Raises:
        DsgenError: No such profile, with the nearest names, or a broken one.
    """
    return Layers((catalog.profile(text_of(name, "name", "a100-40g")).layer,))


@names_arguments()
def overrides(values: Values) -> Layers:
    """Overrides of the highest rank, as `--set` gives them; a plain dict joined with `|` is the same."""
    return composed_overrides(values, Rank.USER, PYTHON)


@names_arguments()
def site(values: Values) -> Layers:
    """Overrides of a site or a repository: above every profile, below what a person says."""
    return composed_overrides(values, Rank.SITE, f"{PYTHON} (site)")


@names_arguments(scenarios.NAMES)
def render(wanted: Wanted, deepspeed: str | None = None) -> Config:
    """The DeepSpeed config, with a reason for every key.

    Raises:
        DsgenError: As `plan`.
    """
    return render_plan(plan(wanted, deepspeed))


@names_arguments(scenarios.NAMES)
def why(wanted: Wanted, key: str, deepspeed: str | None = None) -> Answer:
    """Who decided a key, what lost, why, and what another value would do.

    Args:
        wanted: At least a hardware and a model.
        key: A DeepSpeed key (zero_optimization.stage), or a fact or wish (hardware.gpu_memory, training.lr).
        deepspeed: As in `job`.

    Raises:
        DsgenError: As `plan`; or no such key, with the nearest ones.
    """
    from dsgen.asking import questions

    return questions.ask(job(wanted, deepspeed), text_of(key, "key", "zero_optimization.stage"))


@names_arguments(scenarios.NAMES)
def memory(
    wanted: Wanted,
    config: Values | Path | None = None,
    deepspeed: str | None = None,
    *,
    every: bool = False,
    observed: Mapping[str, int | str] | None = None,
    target: str | None = None,
) -> Footprint:
    """How much memory a training run takes, whether it fits, what every other stage and offload takes, and what fits.

    Nothing is refused because it does not fit. What is said is taken exactly; what nobody says is chosen as `plan`
    would.

    Args:
        wanted: At least a hardware and a model.
        config: A DeepSpeed config, or the file of one, taken as it is; overrides in `wanted` win over it.
        deepspeed: The DeepSpeed release that runs it; as in `job`.
        every: Alternatives with and without activation checkpointing.
        observed: "allocated", "reserved" or "nvidia-smi" -> bytes that a run of it took on its fullest GPU, "host" ->
            of a node's RAM, or a size such as "61.2GiB"; they are compared in `.observations` and `.differences`.
        target: The program that trains, which decides how it loads and evaluates; None where it is not known.

    Raises:
        DsgenError: A mistake in what was said or in the config, sizes that no run has, or no such program.
    """
    from dsgen.asking import memory_questions  # a script that renders needs none of it

    asked_job = memory_questions.for_program(job(wanted, deepspeed), target)
    asked = memory_questions.evaluating_as_rendered(memory_questions.question(asked_job, config), target)
    return memory_questions.answer(asked, every, observed or {})


@names_arguments(scenarios.NAMES)
def calibrate(
    wanted: Wanted,
    *,
    step_seconds: float,
    peak_gib: float | None = None,
    peak_of: str = "allocated",
    config: Values | Path | None = None,
    deepspeed: str | None = None,
) -> Calibration:
    """What a measured run says of its machine; `.write("my-box.yaml")` makes it a hardware profile for later plans.

    Args:
        wanted: What ran, and on what: at least a hardware and a model.
        step_seconds: One optimizer step, all of its micro-batches.
        peak_gib: The fullest GPU's peak.
        peak_of: What that is of: "allocated" or "reserved" as torch.cuda tells it, or "card" as nvidia-smi does.
        config: The DeepSpeed config that ran, or its file; without one what a plan takes.
        deepspeed: As in `job`.

    Raises:
        DsgenError: As `memory`; nothing fits and no config says what ran; or a number that no such run has.
    """
    from dsgen.asking import calibrating, memory_questions

    made = job(wanted, deepspeed)
    ran = calibrating.run_of(made) if config is None else memory_questions.question(made, config)
    return calibrating.calibrate(ran, step_seconds, peak_gib, peak_of)


@names_arguments(scenarios.NAMES)
def adopt(wanted: Values, config: Values | Path, *, arguments: Path | None = None) -> Adoption:
    """A config that exists, as a scenario that renders back to it; `.write("scenario.yaml")` keeps it.

    Args:
        wanted: The job around it, as the fields of a scenario: {"hw": "a100-40g", "model": "7b"}.
        config: A DeepSpeed config, the file of one, or a training file that names one, whose model and arguments count.
        arguments: The file of the TrainingArguments that fill in its "auto".

    Raises:
        DsgenError: DeepSpeed refuses the config, it does not fit, or it cannot be kept as it is.
    """
    from dsgen.asking import adopting
    from dsgen.asking.memory_questions.config_questions import given
    from dsgen.linting import config_reader

    source = given(config) if isinstance(config, Mapping) else config_reader.read(path_of(config))
    told = adopting.read_arguments(path_of(arguments)) if arguments is not None else adopting.of_naming_file(source.of)
    if told is not None and told.model is not None and isinstance(wanted, Mapping) and "model" not in wanted:
        wanted = {**wanted, "model": told.model}
    return adopting.adopt(scenarios.of(wanted, PYTHON), source, told)


@names_arguments()
def detect(answers: Path | None = None) -> DetectedMachine:
    """The machine at hand as a hardware profile; `.write("my-box.yaml")` keeps it, `dsgen.profile("auto")` takes it.

    Args:
        answers: The file of recorded answers (`dsgen hardware detect --record`) of a machine instead of this one.

    Raises:
        DsgenError: No GPU, no driver that shows it, cards that differ or are split, or one that has no profile.
    """
    from dsgen import detecting
    from dsgen.catalog.detected import detected

    said = detecting.ask() if answers is None else detecting.read(path_of(answers))
    return detected(detecting.node(said))


@names_arguments()
def check(scenario: Path, config: Path | None = None, *, target: str | None = None, resolve: bool = False) -> Checked:
    """Whether a committed config is what its scenario renders, lint is silent about the job's files, and it fits.

    Args:
        scenario: The scenario's file.
        config: The committed config; by default the one beside it, or what `[tool.dsgen.scenarios]` says.
        target: The framework that is given it, as in `dsgen render`; by default what the settings say.
        resolve: Whether the config has numbers where that framework would fill in "auto".

    Raises:
        DsgenError: A mistake in the scenario, in the settings or in the config.
    """
    from dsgen import checking

    committed = None if config is None else path_of(config)
    return checking.check(checking.pair(path_of(scenario), committed, target, resolve))


@names_arguments()
def effective(
    source: Values | Path,
    *,
    world_size: int | None = None,
    target: str | None = None,
    arguments: Path | None = None,
    python: str | None = None,
    timeout_seconds: float = 120,
) -> Effective:
    """Load a config through the installed DeepSpeed, in a child process, and say what survives of every key.

    Args:
        source: A config: a Config, a dict of DeepSpeed's keys or a file.
        world_size: GPUs in all; by default as the batch keys imply. No rank is started.
        target: The program that hands the config over; by default as in `lint`.
        arguments: File of the Trainer's arguments, YAML, JSON or a Python program, which fill in its "auto".
        python: Interpreter that has torch and deepspeed; by default this one.
        timeout_seconds: For everything but the imports.

    Raises:
        DsgenError: No such file, a package is missing, or the child was lost. What is refused is in `.refused`.
    """
    from dsgen.asking import handovers

    return handovers.effective(
        source if isinstance(source, Mapping) else path_of(source),
        world_size=world_size,
        target=target,
        arguments=None if arguments is None else path_of(arguments),
        python=python,
        timeout_seconds=timeout_seconds,
    )


@names_arguments()
def simulate(
    wanted: Config | Plan | Job | Layers | Values,
    *,
    model: str | Values | None = None,
    world_size: int | None = None,
    gpus_per_node: int | None = None,
    hardware: Hardware | str | None = None,
    network: Network | str | None = None,
    target: str | None = None,
    rank: int = 0,
    steps: int = 2,
    seq_len: int | None = None,
    target_len: int | None = None,
    mean_len: int | None = None,
    packing: bool | None = None,
    attention: str | None = None,
    checkpointing: str | None = None,
    method: str | None = None,
    lora_rank: int | None = None,
    lora_targets: Sequence[str] | None = None,
    lora_dropout: float | None = None,
    lora_train_embeddings: bool | None = None,
    chunked_loss: bool | None = None,
    dtype: str | None = None,
    alloc_conf: str = "",
    empty_cache_steps: int | None = None,
    evaluation: int | None = None,
    kept: int | None = None,
    checkpoint: bool = False,
    force: bool = False,
    python: str | None = None,
    timeout_seconds: float | None = None,
) -> Simulation:
    """Run the real DeepSpeed at full size on a virtual GPU, in a child process: bytes by place and phase, and time.

    Args:
        wanted: What `render` makes a config of, or its Config; or a DeepSpeed config as a dict.
        model: For a dict: a model profile's name, a config.json or its folder, or what stands in it.
        world_size, gpus_per_node: For a dict: GPUs in all, and of a node; by default those of the hardware, else 8.
        hardware: For a dict: what there is, or the name of its profile; without it there are no limits and no time.
        network: For a dict: what joins the nodes, or the name of its profile; several nodes without it have no time.
        target: For a dict: the program that loads it, which fills in "auto".
        rank, steps: The rank that is simulated, and its optimizer steps.
        seq_len, target_len: Tokens per sequence, and per target of a model with an encoder.
        mean_len, packing: Tokens of a sample in the mean, where seq_len is the longest; and whether samples are packed.
        attention: flash, sdpa, math or eager.
        checkpointing: none, full or deepspeed.
        method, lora_rank, lora_targets, lora_dropout, lora_train_embeddings: What is trained.
        chunked_loss: The loss never holds all logits.
        dtype: Of the weights before initialize: bf16, fp16 or fp32.
        alloc_conf, empty_cache_steps: PYTORCH_CUDA_ALLOC_CONF, and the Trainer's torch_empty_cache_steps.
        evaluation: Sequences that are evaluated at a time after every step; none by default.
        kept: Batches of it whose logits stay on the GPU; by default the loss alone is kept.
        checkpoint: Behind the last step a checkpoint is saved, and another engine goes on from it.
        force: Run with versions that were not tested.
        python: Interpreter that has torch, deepspeed and transformers; by default this one.
        timeout_seconds: For everything; by default half an hour.

    Raises:
        DsgenError: As `plan`; a package is missing, its version was not tested, or DeepSpeed refuses the config.
    """
    from dsgen import simulating

    run = simulating.Options(
        alloc_conf=alloc_conf, empty_cache_steps=empty_cache_steps, evaluation=evaluation, kept=kept,
        checkpoint=checkpoint,
        rank=rank, steps=steps, seq_len=seq_len, target_len=target_len, attention=attention, dtype=dtype, force=force,
        mean_len=mean_len, packing=packing,
        checkpointing=checkpointing, method=method, lora_rank=lora_rank, lora_dropout=lora_dropout,
        lora_targets=None if lora_targets is None else tuple(lora_targets),
        lora_train_embeddings=lora_train_embeddings, chunked_loss=chunked_loss,
    )  # fmt: skip
    said = {"model": model, "world_size": world_size, "gpus_per_node": gpus_per_node, "hardware": hardware,
            "network": network}  # fmt: skip
    if isinstance(wanted, Mapping) and not isinstance(wanted, Config):
        if model is None or world_size is None:
            absent = "model" if model is None else "world_size"
            raise mistake(
                f"{absent} is missing", must="a config as a dict needs model and world_size", code="missing",
                todo='simulate({...}, model="7b", world_size=8)',
            )  # fmt: skip
        request = simulating.from_config(
            wanted,
            model=model,
            world_size=world_size,
            gpus_per_node=gpus_per_node,
            hardware=simulating.hardware_of(profile(hardware).layers) if isinstance(hardware, str) else hardware,
            network=simulating.network_of(profile(network).layers) if isinstance(network, str) else network,
            target=target or "deepspeed",
            options=run,
        )
    else:
        if extra := [name for name, value in {**said, "target": target}.items() if value is not None]:
            raise mistake(f"{extra[0]} is for a config as a dict", must="a job says it itself", code="contradiction")
        request = simulating.from_rendered(render(wanted), run)
    seconds = simulating.TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    return simulating.simulate(request, python=python, timeout_seconds=seconds)
