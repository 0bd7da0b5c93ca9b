"""What the files that start a training say of its DeepSpeed config: arguments of the Trainer, as keys of DeepSpeed's.

Read in transformers 5.23.0: integrations/deepspeed.py (`HfTrainerDeepSpeedConfig.trainer_config_process`), which
compares these and refuses a difference; axolotl has the same arguments and one of its own name. And in accelerate
1.15.0: utils/dataclasses.py (`DeepSpeedPlugin.set_mixed_precision`), which compares the launcher's dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import attrs

from dsgen.documents.document import Document
from dsgen.linting.launch_files import Passed, Started
from dsgen.shapes.findings import Span

__all__ = [
    "EVALUATION",
    "FILLED_FROM",
    "LAUNCHED_DTYPE",
    "OPTIMIZER",
    "WORLD",
    "ZERO_INIT",
    "Statement",
    "beside",
    "differs",
    "of_accelerate",
    "of_program",
    "of_training_file",
    "settles",
    "settles_all",
]

WORLD = "GPUs"  # what a launcher says; no key of DeepSpeed's
ZERO_INIT = "zero.Init"  # likewise: whether a model is made under it, which Accelerate calls so
EVALUATION = "Evaluation"  # likewise: sequences of an evaluation's batch on one GPU
OPTIMIZER = "Optimizer"  # likewise: the one that the program makes where the config has none
_ITS_FLAG = "zero3_init_flag"
_OPTIM = "optim"
_MICRO = "train_micro_batch_size_per_gpu"
_STEPS = "gradient_accumulation_steps"
_NUMBERS = (
    ("per_device_train_batch_size", _MICRO),
    ("gradient_accumulation_steps", _STEPS),
    ("max_grad_norm", "gradient_clipping"),
    ("learning_rate", "optimizer.params.lr"),
    ("learning_rate", "scheduler.params.warmup_max_lr"),
    ("weight_decay", "optimizer.params.weight_decay"),
    ("adam_beta1", "optimizer.params.betas[0]"),
    ("adam_beta2", "optimizer.params.betas[1]"),
    ("adam_epsilon", "optimizer.params.eps"),
    ("warmup_steps", "scheduler.params.warmup_num_steps"),
    ("max_steps", "scheduler.params.total_num_steps"),
    ("per_device_eval_batch_size", EVALUATION),
)
_BETAS = "optimizer.params.betas"  # the list that adam_beta1 and adam_beta2 make
_BETA_COUNT = 2  # items of it
_PLAIN = re.compile(r"[a-z0-9_.]+")  # a key, no item of a list, no product, no WORLD
_FINDS_OUT = "auto_find_batch_size"
_AT_LEAST_ONE = ("warmup_steps", "max_steps")  # below it they mean a share of the steps, or nothing
_WARMUPS = ("warmup_steps", "warmup_ratio")  # below 1 a share of the steps; the latter until transformers 5
_DTYPES = ("bf16", "fp16")
FILLED_FROM = frozenset((*dict(_NUMBERS), *_DTYPES))  # the Trainer's arguments that it fills in, or compares
LAUNCHED_DTYPE = "mixed_precision"  # of `accelerate launch`; what its program is told of a dtype comes before it
# What it says -> the dtype that is to be on; "no" says nothing, because the config's dtype is taken then.
_LAUNCHED = {"bf16": "bf16", "fp8": "bf16", "fp16": "fp16"}
_YES, _NO = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
_AXOLOTL = {"micro_batch_size": "per_device_train_batch_size", "eval_batch_size": "per_device_eval_batch_size",
            "optimizer": _OPTIM}  # fmt: skip
_ITS_MARK = "base_model"  # a key that every config of axolotl has


@attrs.frozen(kw_only=True)
class Statement:
    """One thing that a file says of a config.

    Attributes:
        key: DeepSpeed's key, with an index in a list; or WORLD.
        value: What it must be, if the two are to agree.
        said: What the file says itself.
        word: What the file calls it: "--bf16", "per_device_train_batch_size".
        name: The file.
        line: Where in it, 1-based.
        path: Its path in a file with keys; "" in a script.
        span: Where it stands.
        default: The file leaves it out, and the program has it so.
    """

    key: str
    value: Any
    said: Any
    word: str
    name: str
    line: int
    span: Span
    path: str = ""
    default: bool = False


def of_program(start: Started, document: Document) -> tuple[Statement, ...]:
    """What a program that a script starts is told, and its launcher."""
    said = {one.name: one for one in start.arguments}

    def state(key: str, value: Any, said: Any, argument: Passed) -> Statement:
        line = document.position(argument.span.start)[0]
        return Statement(
            key=key, value=value, said=said, word=argument.word, name=document.name, line=line, span=argument.span
        )

    values = {name: _read(argument.value, name in (*_DTYPES, _FINDS_OUT)) for name, argument in said.items()}
    made = [state(key, value, values[name], said[name]) for name, key, value in _keys(values)]
    if _OPTIM in said and (optim := said[_OPTIM].value):
        made.append(state(OPTIMIZER, optim, optim, said[_OPTIM]))
    launched = start.options.get(LAUNCHED_DTYPE) if start.launcher == "accelerate" else None
    if launched is not None and not any(values.get(dtype) for dtype in _DTYPES):
        on = _LAUNCHED.get((launched.value or "").lower())
        made += [state(f"{dtype}.enabled", dtype == on, launched.value, launched) for dtype in _DTYPES if on]
    if start.ranks is not None:
        ranks, option = start.ranks
        made.append(state(WORLD, ranks, ranks, option))
    flag = start.options.get(_ITS_FLAG) if start.launcher == "accelerate" else None
    if flag is not None and (under := _switched(flag.value)) is not None:
        made.append(state(ZERO_INIT, under, under, flag))
    return tuple(made)


def of_training_file(document: Document, path: str) -> tuple[Statement, ...]:
    """What a training file says beside its key `deepspeed`, which stands at a path."""
    before = path.rpartition(".")[0]
    section: Any = document.config
    for part in before.split(".") if before else ():
        section = section.get(part) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping):
        return ()
    names = _AXOLOTL if _ITS_MARK in section else {}
    written = {names.get(name, name): name for name in section if isinstance(name, str)}
    values = {name: _plain(section[own]) for name, own in written.items()}

    def state(name: str, key: str, value: Any, said: Any) -> Statement:
        return _stated(document, f"{before}.{written[name]}" if before else written[name], key, value, said)

    made = [state(name, key, value, values[name]) for name, key, value in _keys(values)]
    optim = section[written[_OPTIM]] if _OPTIM in written else None
    return (*made, state(_OPTIM, OPTIMIZER, optim, optim)) if isinstance(optim, str) else tuple(made)


def of_accelerate(document: Document, ranks: int | None) -> tuple[Statement, ...]:
    """The number of GPUs that Accelerate's file fixes, and whether a model is made under zero.Init."""
    made = [] if ranks is None else [_stated(document, "num_processes", WORLD, ranks, ranks)]
    section = document.config.get("deepspeed_config") if isinstance(document.config, Mapping) else None
    if isinstance(section, Mapping) and (on := _switched(section.get(_ITS_FLAG))) is not None:
        made.append(_stated(document, f"deepspeed_config.{_ITS_FLAG}", ZERO_INIT, on, on))
    return tuple(made)


def settles(statements: Iterable[Statement]) -> dict[str, Any]:
    """DeepSpeed's key -> the value that an "auto" there becomes; what the files leave open is not in it."""
    values: dict[str, Any] = {}
    twice = set()
    for one in statements:
        if one.key in values and values[one.key] != one.value:
            twice.add(one.key)  # two trainings of one config
        values[one.key] = one.value
    told = {key: value for key, value in values.items() if key not in twice and _PLAIN.fullmatch(key)}
    betas = {key: value for key, value in values.items() if key not in twice and key.startswith(f"{_BETAS}[")}
    if len(betas) == _BETA_COUNT:
        told[_BETAS] = [betas[f"{_BETAS}[{place}]"] for place in range(_BETA_COUNT)]
    return told


def settles_all(trainings: Iterable[Iterable[Statement]]) -> dict[str, Any]:
    """What every one of several trainings settles, and alike: of what one leaves open nothing is known."""
    settled = [settles(said) for said in trainings]
    first, others = (settled[0], settled[1:]) if settled else ({}, [])
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def beside(trainings: Iterable[Iterable[Statement]]) -> dict[str, Statement]:
    """ZERO_INIT, EVALUATION and OPTIMIZER -> what every one of several trainings says of it, and alike."""
    said = [{one.key: one for one in training} for training in trainings]
    first = said[0] if said else {}
    return {
        key: first[key]
        for key in (ZERO_INIT, EVALUATION, OPTIMIZER)
        if key in first and all(key in one and one[key].value == first[key].value for one in said)
    }


def _stated(document: Document, path: str, key: str, value: Any, said: Any) -> Statement:
    """What a file with keys states at a path."""
    span = document.span(path, "value")
    line = document.position(span.start)[0]
    word, place = path.rpartition(".")[2], document.places.get(path)
    left = document.kind == "python" and place is not None and place.key is None
    file = document.name
    return Statement(
        key=key, value=value, said=said, word=word, name=file, line=line, span=span, path=path, default=left
    )


def differs(value: Any, statement: Statement) -> bool:
    """Whether what a config says under a key is not what a file states; what is open or no plain value is not."""
    other = statement.value
    if isinstance(other, bool) or isinstance(value, bool):
        return isinstance(other, bool) and isinstance(value, bool) and value is not other
    if isinstance(value, str):
        value = _number(value)
    if not isinstance(value, (int, float)):
        return False
    return not math.isclose(value, other, rel_tol=1e-9)


def _keys(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Passed, key and value of everything that is stated."""
    for name, key in _NUMBERS:
        value = values.get(name)
        if key == _MICRO and values.get(_FINDS_OUT):
            continue  # then the Trainer looks for a batch size itself
        if _is_number(value) and not (name in _AT_LEAST_ONE and value < 1):
            yield name, key, value
    yield from _shared_warmup(values)
    for dtype, other in (_DTYPES, _DTYPES[::-1]):
        if isinstance(values.get(dtype), bool):
            yield dtype, f"{dtype}.enabled", values[dtype]
            if values[dtype] and other not in values:  # the Trainer takes one of the two
                yield dtype, f"{other}.enabled", False
    micro, steps = values.get("per_device_train_batch_size"), values.get("gradient_accumulation_steps")
    if _is_number(micro) and _is_number(steps) and not values.get(_FINDS_OUT):
        yield "per_device_train_batch_size", f"{_MICRO} x {_STEPS}", micro * steps


def _shared_warmup(values: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """A warm-up that is a share of the steps, where their number is said: `get_warmup_steps` of the Trainer."""
    total, counted = values.get("max_steps"), values.get(_WARMUPS[0])
    if not _is_number(total) or total < 1 or (_is_number(counted) and counted >= 1):
        return
    for name in _WARMUPS:
        if _is_number(share := values.get(name)) and 0 < share < 1:
            yield name, "scheduler.params.warmup_num_steps", math.ceil(total * share)
            return


def _plain(value: Any) -> Any:
    """A value of a file with keys, a number in quotes read as one: PyYAML takes 1e-5 for text."""
    return _number(value) if isinstance(value, str) else value


def _read(text: str | None, switch: bool) -> Any:
    """The text behind an argument, as argparse reads it; a bare switch is on."""
    if text is None:
        return True if switch else None
    if switch:
        return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}.get(text.lower())
    return _number(text)


def _switched(value: Any) -> bool | None:
    """A switch that went through an environment variable (accelerate's str_to_bool); None where it is none."""
    text = str(value).lower()
    return text in _YES if text in (*_YES, *_NO) else None


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value) and text.isascii():
            return value
    return None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
