"""What a Python program tells its trainer: the arguments that stand in its calls as plain values; nothing is run.

Calls as transformers 5.23, TRL 1.10 and peft 0.21 have them: TrainingArguments and TRL's configs, LoraConfig,
BitsAndBytesConfig, from_pretrained of a model, SFTTrainer(model="...").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from dsgen.documents.document import Document, TextPlace
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.findings import Span

__all__ = [
    "CONFIG_OF_TRL",
    "OF_PEFT",
    "UNSLOTH",
    "called",
    "computed_in",
    "document",
    "is_of_a_model",
    "keywords_in",
    "makes_arguments",
    "never_evaluates",
    "parsed",
    "told_by",
]

CONFIG_OF_TRL = "trl_config"  # under which the arguments say whose they are: SFT, DPO ...
OF_PEFT = "peft_config"  # under which they say that a LoraConfig of the program's own makes the adapters

_ARGUMENTS, _CONFIG = "TrainingArguments", "Config"
_OF_TRL = ("SFT", "DPO", "GRPO", "KTO", "ORPO", "CPO", "Reward", "RLOO")  # each has its Config and its Trainer
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
_OPEN = object()  # a value that only running the program would tell
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
_ATTENTION, _TAKEN = "attn_implementation", "sdpa"  # which transformers takes where nobody asks for another
_ATTENTIONS = (_ATTENTION, "flash_att")  # parts of the names by which a program asks for one, in whatever way
_LOADED = (_ATTENTION, "dtype", "torch_dtype")
# Classes of Unsloth (unsloth/models/loader.py, 2026); their from_pretrained and get_peft_model take all themselves.
UNSLOTH, _UNSLOTHS_RANK = ("FastLanguageModel", "FastModel", "FastVisionModel"), 16
_PATH = "pretrained_model_name_or_path"
_MARK, _LINE_ENDS = "\ufeff", re.compile(r"\r\n?|\n")  # a byte order mark, which Python skips; and where its lines end


def told_by(text: str, path: str) -> dict[str, Any]:
    """The arguments by the names that a file of them has; those that are computed are left out.

    Args:
        text: The program.
        path: What to call it in errors.

    Raises:
        DsgenError: No Python, or several trainings that are told different things.
    """
    tree = parsed(text, path)
    constants = dict(_constants(tree))
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    trained = [(name, _keywords(node, constants)) for name, node in calls if makes_arguments(name)]
    if any(values != trained[0][1] for _, values in trained):
        raise _several(path, len(trained))
    said = _known(trained[0][1]) if trained else {}
    for name, node in calls:  # of two models the first is trained, and the other its reference or teacher
        said = {**_known(_of_call(name, node, constants)), **said}
    if _asks_for_no_attention(tree, constants):
        said[_ATTENTION] = _TAKEN
    if trained and (own := trained[0][0].removesuffix(_CONFIG)) in _OF_TRL:
        said[CONFIG_OF_TRL] = own
        said.setdefault("use_peft", OF_PEFT in said)
        if any(name == "from_pretrained" for name, _ in calls):  # transformers takes the type of the checkpoint
            said.setdefault("dtype", "auto")
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
    starts = [len(text) - len(text.removeprefix(_MARK)), *(end.end() for end in _LINE_ENDS.finditer(text))]
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
    constants = dict(_constants(tree))
    for call in calls:
        for word in call.keywords:
            unpacked = _value(word.value, constants) if word.arg is None else None
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
    """The arguments of the trainer, and of adapters and their base, that only running the program would tell.

    Raises:
        DsgenError: As `told_by`, where it is no Python.
    """
    tree = parsed(text, path)
    constants = dict(_constants(tree))
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    told: list[tuple[str, Any]] = []
    for name, node in calls:
        if makes_arguments(name):
            left = dict.fromkeys(_FOLLOWED, _OPEN) if _unpacks(node, constants) else {}
            told += {**left, **_keywords(node, constants)}.items()
    others = (pair for name, node in calls if name in _OF_BASE for pair in _of_call(name, node, constants).items())
    return tuple(dict.fromkeys(name for name, value in (*told, *others) if value is _OPEN))


def keywords_in(text: str, path: str) -> tuple[str, ...]:
    """The keywords that classes of transformers and TRL are given as the Trainer's arguments, whatever their values; of
    a class that the program derives of them those that it does not declare itself. What it imports may have any.

    Raises:
        DsgenError: As `told_by`, where it is no Python.
    """
    tree = parsed(text, path)
    constants, own = dict(_constants(tree)), _classes(tree)
    calls = [(called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    known = (*_OF_TRANSFORMERS, *(f"{name}{_CONFIG}" for name in _OF_TRL))
    told = (
        (word, _declared(name, own))
        for name, node in calls
        if makes_arguments(name) and (name in own or name in known)
        for word in _keywords(node, constants)
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


def parsed(text: str, path: str) -> ast.Module:
    """A program as Python reads it.

    Raises:
        DsgenError: It is none.
    """
    try:
        return ast.parse(text.removeprefix(_MARK))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise mistake("it is no Python", where=f"{path}:{line}" if line else path, code="unreadable") from None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are told without the program being run."""
    return {name: value for name, value in values.items() if value is not _OPEN}


def _of_call(name: str, node: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """What one call says, besides the arguments themselves."""
    told = _keywords(node, constants)
    if _is_unsloths(node):
        return _of_unsloth(name, node, told, constants)
    if name == "LoraConfig":
        left = {"r": _RANK, "lora_dropout": 0.0}
        told = {**(dict.fromkeys((*left, "target_modules"), _OPEN) if _unpacks(node, constants) else left), **told}
        return {argument: told[own] for own, argument in _ADAPTERS.items() if own in told} | {OF_PEFT: name}
    if name == "BitsAndBytesConfig":
        return {"bnb_4bit_use_double_quant": False} | {key: told[key] for key in _BASE if key in told}
    if name == "gradient_checkpointing_enable":
        return {"gradient_checkpointing": True}
    if name.removesuffix("Trainer") in _OF_TRL and isinstance(told.get("model"), str):
        return {"model_name_or_path": told["model"]}
    if name == "from_pretrained" and is_of_a_model(node.func):
        first = _value(node.args[0], constants) if node.args else told.get(_PATH, _OPEN)
        return {key: told[key] for key in (*_LOADED, *_BASE) if key in told} | {"model_name_or_path": first}
    return {}


def _asks_for_no_attention(tree: ast.Module, constants: Mapping[str, Any]) -> bool:
    """Whether a program loads its model, of several the first, and nowhere names an attention, but for another model's:
    a config of it, arguments, or a patch may."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node.func) == "from_pretrained")
    loads = sorted((node for node in calls if is_of_a_model(node.func) or _is_unsloths(node)), key=_place)
    if not loads or _is_unsloths(loads[0]) or _unpacks(loads[0], constants):
        return False
    if _keywords(loads[0], constants).get(_ATTENTION) is not None:
        return False
    words = [word for load in loads for word in load.keywords if word.arg == _ATTENTION]
    apart = {id(node) for word in words for node in ast.walk(word)}
    names = (name for node in ast.walk(tree) if id(node) not in apart for _, name in ast.iter_fields(node))
    return not any(part in name for name in names if isinstance(name, str) for part in _ATTENTIONS)


def _place(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _is_unsloths(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and called(node.func.value) in UNSLOTH


def _of_unsloth(name: str, node: ast.Call, told: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """What a call of a class of Unsloth's says: a base in 4 bits, recomputed, with adapters of all matrices, where
    nothing else is."""
    if name == "from_pretrained":
        first = _value(node.args[0], constants) if node.args else told.get("model_name", _OPEN)
        kept = {key: told[key] for key in ("max_seq_length", *_LOADED, *_BASE) if told.get(key) is not None}
        whole = any(told.get(key) is True for key in ("full_finetuning", "load_in_8bit", "load_in_16bit"))
        return {"load_in_4bit": not whole, **kept, "model_name_or_path": first, "use_unsloth": True}
    if name == "get_peft_model":
        said = {argument: told[own] for own, argument in _ADAPTERS.items() if own in told}
        recomputes = told.get("use_gradient_checkpointing", True)
        usual = {"lora_r": _UNSLOTHS_RANK, "lora_target_modules": "all-linear", OF_PEFT: name}
        return {**usual, **said, "gradient_checkpointing": recomputes if recomputes is _OPEN else bool(recomputes)}
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
    return name.endswith(_ARGUMENTS) or (name.endswith(_CONFIG) and name.removesuffix(_CONFIG) in _OF_TRL)


def is_of_a_model(function: ast.expr) -> bool:
    """Whether it is from_pretrained of a model: AutoModelForCausalLM, LlamaForCausalLM; not of a tokenizer."""
    owner = called(function.value) if isinstance(function, ast.Attribute) else ""
    return "Model" in owner or "ForCausalLM" in owner


def called(function: ast.expr) -> str:
    """The last part of what is called: TrainingArguments of transformers.TrainingArguments."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The plain values that names stand for wherever they are assigned once, and at the top."""
    named = [target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name)]  # fmt: skip
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = _value(node.value, {})
            if value is not _OPEN and named.count(name) == 1:
                yield name, value


def _keywords(node: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call, those of a plain map that is unpacked into it too."""
    told: dict[str, Any] = {}
    for word in node.keywords:
        value = _value(word.value, constants)
        told |= {word.arg: value} if word.arg is not None else value if isinstance(value, dict) else {}
    return told


def _unpacks(node: ast.Call, constants: Mapping[str, Any]) -> bool:
    """Whether keywords are unpacked into a call that only running the program would tell."""
    return any(word.arg is None and not isinstance(_value(word.value, constants), dict) for word in node.keywords)


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """The value of an expression, a tuple or set as a list; a type of torch by its name."""
    if isinstance(node, ast.Name):
        return constants.get(node.id, _OPEN)
    if isinstance(node, ast.Attribute):
        return node.attr if called(node.value) == "torch" else _OPEN
    if isinstance(node, ast.Call) and called(node.func) == "dict":
        return _keywords(node, constants)
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return {str(key): _value(value, constants) for key, value in zip(keys, node.values, strict=True)}
    try:
        value = ast.literal_eval(node)
        return [*value] if isinstance(value, (tuple, set)) else value
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _OPEN
