"""What a training program's arguments say of a run: the fields of a scenario, and what fills in an "auto"."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import attrs

from dsgen.asking import training_programs as programs
from dsgen.asking.told_adapters import FOLLOWED, TARGETS, adapters
from dsgen.asking.told_kernels import attention, liger, loss_of_trl
from dsgen.asking.told_schedules import STEPS, defaults, said_of, schedule
from dsgen.asking.told_values import FILES, SCRIPTS, computed_of, keywords_of, passed, said_of_loading, values_of
from dsgen.asking.uncounted_arguments import said_of_gone, said_of_paging, uncounted
from dsgen.deepspeed.keys import lookup
from dsgen.frameworks.job_files import FILL_IN
from dsgen.jobs.scenarios import Scenario, ScenarioValue
from dsgen.linting import statements
from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.sources import Source
from dsgen.linting.told_arguments import arguments_of, loads_of
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import TOLD, UNTOLD, Origin, Rank, show
from dsgen.shapes.optimizer_names import meant
from dsgen.shapes.value import Value
from dsgen.targets.hf_trainer import HF_TRAINER

__all__ = ["MODELS", "TrainingArguments", "beside", "of_naming_file", "read_arguments"]

# Argument of transformers 5.23 TrainingArguments (training_args.py) -> the field of a scenario.
_COUNTS = {
    "micro_batch_size": "micro_batch",  # Axolotl's
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "max_steps": "total_steps",
}
# What training programs call the length of a sequence: TRL, LLaMA-Factory, Axolotl, Alpaca's train.py.
_LENGTHS = ("max_seq_length", "max_length", "cutoff_len", "sequence_len", "model_max_length")
# The optimizer that the program makes where the config has none: TrainingArguments, Axolotl.
_OPTIMIZERS = ("optim", "optimizer")
_DEFAULT_OPTIMIZER = "AdamW"  # a plan's own
# Arguments that move what is kept for backward in other ways than TRL's, and their values: Axolotl's, Unsloth's own.
_OFFLOADS = {
    "activation_offloading": ("true", "True", "legacy", "disk", "hidden_states"),
    "gradient_checkpointing": ("offload", "offload_disk", "unsloth"),
    "use_gradient_checkpointing": ("unsloth",),
    "use_unsloth_gc": (True,),  # LLaMA-Factory's
}
_OFFLOADED = "activation_offloading"  # TRL's SFTConfig and Axolotl
# Keys of torch's reentrant checkpointing: in gradient_checkpointing_kwargs, and LLaMA-Factory's.
_REENTRANT = ("use_reentrant", "use_reentrant_gc")
_SWITCHES = ("true", "false", "auto")
_LEFT_OPEN = ("auto", None)  # Axolotl's bf16: auto is what the GPU has; null is what the program has by default
# What programs call the base model: transformers' examples and LLaMA-Factory, Axolotl, ms-swift.
MODELS = ("model_name_or_path", "base_model", "model")
# A prompt and an answer of at most so many tokens make a sequence: TRL's trainers that generate.
_ANSWERS = ("max_prompt_length", "max_completion_length")
_FOLLOWED = ("bf16", "fp16", "gradient_checkpointing", *_OPTIMIZERS)
_OF_DEEPSPEED, _NOTEBOOK = ("train_micro_batch_size_per_gpu", "train_batch_size", "zero_optimization"), ".ipynb"
_SHARES = ("warmup_steps",)  # below 1 a share of the run, which no key says so


@attrs.frozen(kw_only=True, repr=False, eq=False)
class TrainingArguments(Value):
    """The arguments of a training program that a scenario has too.

    Attributes:
        file: Where they stand.
        fields: Field of a scenario -> its value.
        values: Every argument as it stands there.
        base: The base model, as whoever asks or the file names it.
    """

    file: str
    fields: Mapping[str, Any]
    values: Mapping[str, Any]
    base: str | None

    @property
    def model(self) -> str | None:
        """The base model as the program names it: a repository of the hub or a folder; None where it does not.

        A file that dsgen wrote says FILL_IN where nobody has named it yet.
        """
        return _model(self.values)

    @property
    def runs(self) -> dict[str, Any]:
        """The fields, and what runs where the file leaves out what a plan would choose; a script may say more."""
        left = programs.left_out(self.values, computed_of(self.file)) if self.file.endswith(FILES) else {}
        return {**left, **self.fields, **({"zero_init": False} if self.loads_first else {})}

    def runs_on(self, architecture: str) -> dict[str, Any]:
        """The same on a model that the file does not name, whose type says which matrices peft gives adapters to."""
        runs = self.runs
        named = (
            "method" not in runs or "lora_targets" in runs or any(name in computed_of(self.file) for name in TARGETS)
        )
        targets = None if named else programs.targets_of(self.values, architecture)
        return {**runs, **({"lora_targets": targets} if targets is not None else {})}

    @property
    def loads_first(self) -> str | None:
        """That the program loads its model before it makes its arguments, and what stage 3 does then; None: it does
        not, or loads a base in 4 bits, which no zero.Init makes.
        """
        return said_of_loading(self.loads) if self.fields.get("method") != "qlora" else None

    @property
    def loss_of_trl(self) -> str | None:
        """That a newer TRL makes its loss in chunks, where all logits are counted; None where that is no matter."""
        return loss_of_trl(self.values, self.file)

    @property
    def loads(self) -> tuple[ModelLoad, ...]:
        """How a Python program loads its model."""
        return loads_of(self.file)

    @property
    def framework(self) -> str | None:
        """The framework whose program has such arguments, by the name of its target; None of any other."""
        return programs.framework_of(self.values)

    def follows(self, name: str) -> bool:
        """Whether a plan follows an argument, so that what is written for the program says it in its own words."""
        others = {key: value for key, value in self.values.items() if key != name}
        computed = computed_of(self.file)
        return dict(_fields(programs.with_defaults(others, computed), self.base, computed)) != self.fields

    @property
    def evaluated(self) -> int | None:
        """Sequences of an evaluation's batch on one GPU; 0 where the program evaluates nothing, None: not known."""
        return programs.evaluates(self.values)

    @property
    def other_optimizer(self) -> str | None:
        """The optimizer that the program makes where the config has none, if it is one that no plan knows."""
        named = _optimizer(self.values)
        return named if named is not None and meant(named) is None else None

    def notes(self, asked: Container[str]) -> tuple[str, ...]:
        """What is to be known of it but for what somebody says besides, by the fields of a scenario."""
        gone = said_of_gone(keywords_of(self.file), self.file) if "transformers" not in asked else None
        loss = self.loss_of_trl if "chunked_loss" not in asked else None
        return tuple(filter(None, (gone, said_of_paging(_optimizer(self.values), self.file), loss)))

    @property
    def uncounted(self) -> tuple[str, ...]:
        """What such a training holds, or does, that no plan counts."""
        return (*uncounted(self.values, self.file, self.fields), *self._refused(), *self._computed())

    def _refused(self) -> Iterator[str]:
        """Adapters of no matrices that anybody names, peft included."""
        if any(name in computed_of(self.file) for name in TARGETS):
            return
        kind = programs.refused_by_peft(self.values, self.base)
        if kind is not None and "method" in self.fields and "lora_targets" not in self.fields:
            yield (
                f"{self.file} names no target_modules, and peft has none for {kind}: it stops there; "
                "all linear layers are counted"
            )

    def _computed(self) -> Iterator[str]:
        """What a plan follows and a Python program computes."""
        names = [
            name for name in computed_of(self.file) if name in (*_COUNTS, *_LENGTHS, *_FOLLOWED, *STEPS, *FOLLOWED)
        ]
        if names:
            yield f"{self.file} computes {', '.join(names)}, which only running it would tell: left to dsgen"

    def scenario(self, running: bool = False, ended: bool = False) -> Scenario:
        """What the training wants, as a scenario file with the same fields would say it.

        Args:
            running: As it runs, and not as a plan may complete it.
            ended: Somebody else says how long it lasts.
        """
        origin = Origin(self.file)
        fields = self.runs if running else self.fields
        return Scenario(
            profiles={"model": (self.model,) if self.model is not None else ()},
            fields={name: ScenarioValue(value, origin, TOLD) for name, value in fields.items()},
            sets=tuple((path, ScenarioValue(value, origin, why)) for path, value, why in self._steps(ended)),
            named={"model": origin},
            rank=Rank.SITE,
        )

    def _steps(self, ended: bool) -> Iterator[tuple[str, Any, str]]:
        """Path of a wish, its value and why it has it, of the optimizer's steps; a script's program may have its own
        defaults."""
        said = {path: self.values[name] for name, path in STEPS.items() if _is_number(self.values.get(name))}
        yield from ((path, value, TOLD) for path, value in said.items())
        computed = computed_of(self.file)
        known = self.file.endswith(FILES)
        if known:
            yield from ((path, value, UNTOLD) for path, value in defaults(self.values, computed) if path not in said)
        for path, value in schedule(self.values, ended, known, computed):
            yield path, value, TOLD if said_of(path, self.values) else UNTOLD

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a config that says otherwise, as the Trainer does.

        Raises:
            DsgenError: A key with another value than its argument.
        """
        for key, argument in HF_TRAINER.matched.items():
            there, value = lookup(config, key)
            if self.values.get(argument) in _LEFT_OPEN:
                continue
            told = not (argument in _SHARES and self.values[argument] < 1)
            if there and value != "auto" and told and value != self.values[argument]:
                raise mistake(
                    f"{argument} is {show(self.values[argument])}, and the config's {key} {show(value)}",
                    must="the Trainer refuses values that differ",
                    where=self.file,
                    todo='Make them equal, or write "auto" into the config.',
                    code="contradiction",
                )


def read_arguments(path: str, model: str | None = None) -> TrainingArguments:
    """The arguments of a YAML or JSON file, of a Python program or of a launch script.

    Args:
        path: The file.
        model: What is trained, where it is not the model that the file names.

    Raises:
        DsgenError: Unreadable, broken, or it has none that dsgen knows.
    """
    values, file = (values_of(path), path) if not path.endswith(SCRIPTS) else passed(path, missing=False)
    return _told(values, file, model)


def of_naming_file(file: str | None) -> TrainingArguments | None:
    """The arguments of the file that names a config; None where it says nothing that a plan follows.

    Of a launch script those of the one program in it that takes the Trainer's; nobody knows what others mean by theirs.

    Raises:
        DsgenError: It moves activations to the node's RAM.
    """
    if file is None:
        return None
    try:
        if file.endswith(FILES):
            return read_arguments(file)
        return _told(*passed(file))
    except DsgenError as error:
        if error.code == "missing":
            return None
        raise


def _told(values: Mapping[str, Any], path: str, model: str | None = None) -> TrainingArguments:
    """What arguments say that a scenario has too.

    Raises:
        DsgenError: None does, or they ask for what is not counted.
    """
    for name, asking in _OFFLOADS.items():
        if any(values.get(name) == value for value in asking):
            raise mistake(
                f"{name} is {show(values[name])}",
                must="of what moves activations to the node's RAM only TRL's is counted",
                where=path,
                todo="Write gradient_checkpointing: true instead to see the run that keeps them on the GPU, and "
                "activation_offloading: true beside it for one that moves them as TRL does.",
                code="refused",
            )
    recomputes, computed = values.get("gradient_checkpointing"), computed_of(path)
    if values.get(_OFFLOADED) is True:
        must = "it is counted beside gradient_checkpointing: true alone"
        if values.get("adapter"):
            must = "not counted: Axolotl recomputes nothing of adapters then, and moves all that blocks keep"
        if values.get("adapter") or programs.with_defaults(values, computed).get("gradient_checkpointing") is not True:
            raise mistake(f"{_OFFLOADED} is true", must=must, where=path, code="refused")
    if isinstance(recomputes, str) and recomputes not in (*_SWITCHES, *_OFFLOADS["gradient_checkpointing"]):
        raise mistake(
            f"gradient_checkpointing is {show(recomputes)}",
            must="it must be true or false: other ways to recompute are not counted",
            where=path,
            code="refused",
        )
    if values.get("bf16") is True and values.get("fp16") is True:
        raise mistake(
            "bf16 and fp16 are both true",
            must="training has one of them: the Trainer refuses both",
            where=path,
            todo="Write false to one: bf16 is for GPUs since Ampere, fp16 for older ones.",
            code="contradiction",
        )
    for name in (*_COUNTS, *_LENGTHS):
        if _is_no_number(values.get(name)):
            raise mistake(
                f"{name} is {show(values[name])}",
                must="it must be a whole number, in digits alone and without quotes",
                where=path,
            )
    fields = dict(_fields(programs.with_defaults(values, computed), model or _model(values), computed))
    if not fields:
        raise mistake(
            "it has no argument that a plan follows",
            must=f"such as {', '.join([*_COUNTS][1:3])}, bf16 or gradient_checkpointing",
            where=path,
            todo=_instead(values, path),
            code="missing",
        )
    return TrainingArguments(file=path, fields=fields, values=values, base=model or _model(values))


def _instead(values: Mapping[str, Any], path: str) -> str | None:
    """What to do with a file that has no arguments; None where nothing tells it."""
    if any(name in values for name in _OF_DEEPSPEED):
        return f"It is a DeepSpeed config: dsgen plan --config {path} and memory take it."
    if path.endswith(_NOTEBOOK):
        return f"jupyter nbconvert --to script {path} writes its Python, which --args reads."
    if path.endswith(FILES[-1]):
        return "Where it reads them from its command line: --args run.sh, the script that starts it, or its YAML."
    return None


def beside(source: Source, path: str | None) -> tuple[Source, TrainingArguments | None]:
    """A config with the arguments of the program that loads it, and those.

    Args:
        source: The config.
        path: The file of the arguments; None where it is at most the one that names the config.

    Raises:
        DsgenError: Unreadable, of another kind, or it says otherwise than the config.
    """
    if path is None:
        return source, of_naming_file(source.of)
    if not path.endswith(FILES):
        raise mistake("its name ends otherwise", must=f"arguments stand in {', '.join(FILES)}", where=path)
    told = read_arguments(path)
    told.check(source.document.config)
    try:
        said = statements.beside([arguments_of(path)])
    except DsgenError:  # none that the Trainer fills in
        said = {}
    return attrs.evolve(source, of=path, beside={**source.beside, **said}), told


def _fields(values: Mapping[str, Any], model: str | None, computed: Container[str] = ()) -> Iterator[tuple[str, Any]]:
    for name, field in _COUNTS.items():
        if _is_count(values.get(name)):
            yield field, values[name]
    for dtype in ("bf16", "fp16"):
        if values.get(dtype) is True:
            yield "precision", dtype
    recomputes = values.get("gradient_checkpointing")
    if isinstance(recomputes, bool):
        yield "checkpointing", "full" if recomputes else "none"
    if kinds := [values[name] for name in _REENTRANT if isinstance(values.get(name), bool)]:
        yield "reentrant", any(kinds)
    if values.get(_OFFLOADED) is True:
        yield _OFFLOADED, True
    optimizer = meant(_optimizer(values))
    if optimizer not in (None, _DEFAULT_OPTIMIZER):
        yield "optimizer", optimizer
    yield from liger(values)
    if (asked := attention(values, model, computed)) is not None:
        yield "attention", asked
    yield from ((name, True) for name in programs.shares_rows(values) if asked in (None, "flash"))
    yield from adapters(values, model, computed)
    if how := programs.loading(values):
        yield "loading", how
    length = next((values[name] for name in _LENGTHS if _is_count(values.get(name))), None)
    if length is None and all(_is_count(values.get(name)) for name in _ANSWERS):
        length = sum(values[name] for name in _ANSWERS)
    if length is not None:
        yield "seq_len", length


def _optimizer(values: Mapping[str, Any]) -> str | None:
    named = (values.get(name) for name in _OPTIMIZERS)
    return next((one for one in named if isinstance(one, str)), None)


def _model(values: Mapping[str, Any]) -> str | None:
    named = (values.get(name) for name in MODELS)
    return next((one for one in named if isinstance(one, str) and one != FILL_IN), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_no_number(value: Any) -> bool:
    """Whether it is a text that begins as a number does, and is none: what a shell or a template fills in is left."""
    return isinstance(value, str) and value[:1].isdigit()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
