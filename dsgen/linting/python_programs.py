"""What a Python program tells its trainer: the arguments that stand in its calls as plain values; nothing is run.

Calls as transformers 5.23, TRL 1.10 and peft 0.21 have them: TrainingArguments and TRL's configs, LoraConfig,
BitsAndBytesConfig, from_pretrained of a model, SFTTrainer(model="..."), a tokenizer that cuts samples.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from dsgen.documents.document import Document, TextPlace
from dsgen.linting.program_attention import ATTENTION, OF_TRL, TAKEN, asks_for_none, trained_by_name
from dsgen.linting.program_calls import (
    BYTE_ORDER_MARK,
    OPEN,
    called,
    constants_in,
    is_of_a_model,
    is_of_unsloth,
    keywords,
    parsed,
    unpacks,
    value_of,
)
from dsgen.linting.tokenized_lengths import cut_at
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Span

__all__ = [
    "CONFIG_OF_TRL",
    "OF_PEFT",
    "computed_in",
    "document",
    "keywords_in",
    "makes_arguments",
    "never_evaluates",
    "told_by",
]

CONFIG_OF_TRL = "trl_config"  # under which the arguments say whose they are: SFT, DPO ...
OF_PEFT = "peft_config"  # under which they say that a LoraConfig of the program's own makes the adapters

_ARGUMENTS, _CONFIG = "TrainingArguments", "Config"
_OF_TRANSFORMERS = ("TrainingArguments", "Seq2SeqTrainingArguments")
# Defaults of transformers 5.23 (training_args.py), and of 4.x, which the Trainer compares with a config.
_DEFAULTS = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "learning_rate": 5e-5, "weight_decay": 0.0,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0,
}  # fmt: skip
_DTYPES = ("bf16", "fp16")
# Arguments of the Trainer that say whether it evaluates, and its methods that do.
_EVALUATION, _EVALUATING = ("eval_strategy", "evaluation_strategy", "do_eval"), ("evaluate", "predict")
# Arguments that a plan follows and a program may unpack into a call.
_FOLLOWED = (*_DEFAULTS, *_DTYPES, "gradient_checkpointing", "max_length", "max_steps", "num_train_epochs",
             "lr_scheduler_type", "warmup_steps", "warmup_ratio", "optim")  # fmt: skip
# Keyword of LoraConfig -> the argument that programs have for it.
_ADAPTERS = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "target_modules": "lora_target_modules",
    "lora_dropout": "lora_dropout",
    "modules_to_save": "lora_modules_to_save",
    "use_dora": "use_dora",
}
_RANK = 8  # of a LoraConfig that says none
_OF_BASE = ("LoraConfig", "BitsAndBytesConfig")
_BASE = ("load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant")
_LOADED = (ATTENTION, "dtype", "torch_dtype")
_UNSLOTHS_RANK = 16
_PATH = "pretrained_model_name_or_path"
_LINE_ENDS = re.compile(r"\r\n?|\n")


def told_by(text: str, path: str) -> dict[str, Any]:
    """The arguments by the names that a file of them has; those that are computed are left out.

    Args:
        text: The program.
        path: What to call it in errors.

    Raises:
        DsgenError: No Python, or several trainings that are told different things.
    """
    tree = parsed(text, path)
    constants = dict(constants_in(tree))
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    trained = [(name, keywords(node, constants)) for name, node in calls if makes_arguments(name)]
    if any(values != trained[0][1] for _, values in trained):
        raise _several(path, len(trained))
    said = _known(trained[0][1]) if trained else {}
    for name, node in calls:  # of two models the first is trained, and the other its reference or teacher
        said = {**_known(_of_call(name, node, constants)), **said}
    if asks_for_none(tree, constants):
        said[ATTENTION] = TAKEN
    if trained and (own := trained[0][0].removesuffix(_CONFIG)) in OF_TRL:
        said[CONFIG_OF_TRL] = own
        said.setdefault("use_peft", OF_PEFT in said)
        if any(name == "from_pretrained" for name, _ in calls):  # transformers takes the type of the checkpoint
            said.setdefault("dtype", "auto")
    if trained and trained[0][0] == _ARGUMENTS and (length := cut_at(keywords(node, constants) for _, node in calls)):
        said.setdefault("max_length", length)  # the Trainer cuts nothing itself
    inner = [value for value in said.values() if isinstance(value, dict)]  # as those of a file, whatever their section
    flat = {key: value for values in (*inner, said) for key, value in values.items()}
    return {name: value for name, value in _known(flat).items() if not isinstance(value, dict)}


def document(text: str, path: str) -> Document:
    """A program as a file of arguments: what `told_by` has of it, and where each keyword of its trainer stands.

    What a call of TrainingArguments leaves out has its default, and stands where the call does.

    Raises:
        DsgenError: As `told_by`.
    """
    tree = parsed(text, path)
    every = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    calls = [node for node in every if makes_arguments(called(node.func))]
    starts = [len(text) - len(text.removeprefix(BYTE_ORDER_MARK)), *(end.end() for end in _LINE_ENDS.finditer(text))]
    lines = [text[start:] if end is None else text[start:end] for start, end in zip_longest(starts, starts[1:])]

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node: ast.keyword | ast.expr) -> Span:
        end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return Span(offset(node.lineno, node.col_offset), offset(*end))

    places = {
        word.arg: TextPlace(span(word), span(word.value))
        for call in calls
        for word in call.keywords
        if word.arg is not None
    }
    constants = dict(constants_in(tree))
    for call in calls:
        for word in call.keywords:
            unpacked = value_of(word.value, constants) if word.arg is None else None
            if isinstance(unpacked, dict):
                places |= dict.fromkeys(unpacked, TextPlace(span(word), span(word.value)))
    own = _classes(tree)  # which may have other defaults
    plain = all(called(call.func) not in own for call in calls)
    told, left = told_by(text, path), dict(_left_out(calls)) if plain else {}
    places |= {name: TextPlace(None, span(calls[0].func)) for name in left}
    return Document(name=path, text=text, kind="python", config={**left, **told}, places=places)


def _left_out(calls: Sequence[ast.Call]) -> Iterator[tuple[str, Any]]:
    """Arguments of the Trainer that no call of it says, and their defaults; nothing where a call unpacks some."""
    words = [word.arg for call in calls for word in call.keywords]
    if not calls or None in words or any(called(call.func) not in _OF_TRANSFORMERS for call in calls):
        return
    dtype = any(name in words for name in _DTYPES)  # of the two one may follow from the other
    yield from ((name, value) for name, value in _DEFAULTS.items() if name not in words)
    yield from ((name, False) for name in _DTYPES if not dtype)


def computed_in(text: str, path: str) -> tuple[str, ...]:
    """The arguments of the trainer, and of adapters and their base, that only running the program would tell; so may
    the attention be, where it asks for one in any way.

    Raises:
        DsgenError: As `told_by`, where it is no Python.
    """
    tree = parsed(text, path)
    constants = dict(constants_in(tree))
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    told: list[tuple[str, Any]] = []
    for name, node in calls:
        if makes_arguments(name):
            left = dict.fromkeys(_FOLLOWED, OPEN) if unpacks(node, constants) else {}
            told += {**left, **keywords(node, constants)}.items()
    others = (pair for name, node in calls if name in _OF_BASE for pair in _of_call(name, node, constants).items())
    attention = [] if asks_for_none(tree, constants) else [ATTENTION]
    return (*dict.fromkeys(name for name, value in (*told, *others) if value is OPEN), *attention)


def keywords_in(text: str, path: str) -> tuple[str, ...]:
    """The keywords that classes of transformers and TRL are given as the Trainer's arguments, whatever their values; of
    a class that the program derives of them those that it does not declare itself. What it imports may have any.

    Raises:
        DsgenError: As `told_by`, where it is no Python.
    """
    tree = parsed(text, path)
    constants, own = dict(constants_in(tree)), _classes(tree)
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    known = (*_OF_TRANSFORMERS, *(f"{name}{_CONFIG}" for name in OF_TRL))
    told = (
        (word, _declared(name, own))
        for name, node in calls
        if makes_arguments(name) and (name in own or name in known)
        for word in keywords(node, constants)
    )
    return tuple(dict.fromkeys(word for word, declared in told if word not in declared))


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _declared(name: str, own: Mapping[str, ast.ClassDef]) -> frozenset[str]:
    """The fields that a class of the program's own declares, and those of its bases in the program."""
    waiting, seen = [name], dict[str, ast.ClassDef]()
    while waiting:
        name = waiting.pop()
        if name in own and name not in seen:
            seen[name] = own[name]
            waiting += map(called, own[name].bases)
    fields = (one.target for node in seen.values() for one in node.body if isinstance(one, ast.AnnAssign))
    return frozenset(target.id for target in fields if isinstance(target, ast.Name))


def never_evaluates(text: str, path: str) -> bool:
    """Whether a program makes the Trainer's arguments, which evaluate nothing by default, and nothing of it evaluates:
    its arguments do not say when, none are unpacked into them, and it calls no evaluation itself.

    Raises:
        DsgenError: As `told_by`, where it is no Python.
    """
    calls = [node for node in ast.walk(parsed(text, path)) if isinstance(node, ast.Call)]
    words = [word.arg for call in calls if makes_arguments(called(call.func)) for word in call.keywords]
    asked = any(word in (None, *_EVALUATION) for word in words)
    return bool(words) and not asked and not any(called(call.func) in _EVALUATING for call in calls)


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are told without the program being run."""
    return {name: value for name, value in values.items() if value is not OPEN}


def _of_call(name: str, node: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """What one call says, besides the arguments themselves."""
    told = keywords(node, constants)
    if is_of_unsloth(node):
        return _of_unsloth(name, node, told, constants)
    if name == "LoraConfig":
        left = {"r": _RANK, "lora_dropout": 0.0}
        told = {**(dict.fromkeys((*left, "target_modules"), OPEN) if unpacks(node, constants) else left), **told}
        return {argument: told[own] for own, argument in _ADAPTERS.items() if own in told} | {OF_PEFT: name}
    if name == "BitsAndBytesConfig":
        return {"bnb_4bit_use_double_quant": False} | {key: told[key] for key in _BASE if key in told}
    if name == "gradient_checkpointing_enable":
        return {"gradient_checkpointing": True}
    if (trained := trained_by_name(node, constants)) is not None:
        return {"model_name_or_path": trained}
    if name == "from_pretrained" and is_of_a_model(node.func):
        first = value_of(node.args[0], constants) if node.args else told.get(_PATH, OPEN)
        return {key: told[key] for key in (*_LOADED, *_BASE) if key in told} | {"model_name_or_path": first}
    return {}


def _of_unsloth(name: str, node: ast.Call, told: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """What a call of a class of Unsloth's says: a base in 4 bits, recomputed, with adapters of all matrices, where
    nothing else is."""
    if name == "from_pretrained":
        first = value_of(node.args[0], constants) if node.args else told.get("model_name", OPEN)
        kept = {key: told[key] for key in ("max_seq_length", *_LOADED, *_BASE) if told.get(key) is not None}
        whole = any(told.get(key) is True for key in ("full_finetuning", "load_in_8bit", "load_in_16bit"))
        return {"load_in_4bit": not whole, **kept, "model_name_or_path": first, "use_unsloth": True}
    if name == "get_peft_model":
        said = {argument: told[own] for own, argument in _ADAPTERS.items() if own in told}
        recomputes = told.get("use_gradient_checkpointing", True)
        usual = {"lora_r": _UNSLOTHS_RANK, "lora_target_modules": "all-linear", OF_PEFT: name}
        return {**usual, **said, "gradient_checkpointing": recomputes if recomputes is OPEN else bool(recomputes)}
    return {}


def _several(path: str, number: int) -> DsgenError:
    return mistake(
        f"it makes {number} trainings that are told different things",
        must="a plan is of one",
        where=path,
        todo="Write the arguments of one into a YAML file.",
        code="refused",
    )


def makes_arguments(name: str) -> bool:
    """Whether what has a name is the Trainer's arguments, or one of TRL's configs."""
    return name.endswith(_ARGUMENTS) or (name.endswith(_CONFIG) and name.removesuffix(_CONFIG) in OF_TRL)
