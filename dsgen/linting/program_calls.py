"""The calls that stand in a Python program, and the plain values that they are given; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.shapes.errors import mistake

__all__ = ["BYTE_ORDER_MARK", "OPEN", "UNSLOTH", "called", "constants_in", "is_of_a_model", "is_of_unsloth", "keywords",
           "parsed", "unpacks", "value_of"]  # fmt: skip

BYTE_ORDER_MARK = "\ufeff"  # which Python skips
OPEN = object()  # a value that only running the program would tell
# Classes of Unsloth (unsloth/models/loader.py, 2026); their from_pretrained and get_peft_model take all themselves.
UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")


def parsed(text: str, path: str) -> ast.Module:
    """A program as Python reads it.

    Raises:
        DsgenError: It is none.
    """
    try:
        return ast.parse(text.removeprefix(BYTE_ORDER_MARK))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise mistake("it is no Python", where=f"{path}:{line}" if line else path, code="unreadable") from None


def is_of_a_model(function: ast.expr) -> bool:
    """Whether it is from_pretrained of a model: AutoModelForCausalLM, LlamaForCausalLM; not of a tokenizer."""
    owner = called(function.value) if isinstance(function, ast.Attribute) else ""
    return "Model" in owner or "ForCausalLM" in owner


def is_of_unsloth(node: ast.Call) -> bool:
    """Whether it is a method of one of Unsloth's classes."""
    return isinstance(node.func, ast.Attribute) and called(node.func.value) in UNSLOTH


def called(function: ast.expr) -> str:
    """The last part of what is called: TrainingArguments of transformers.TrainingArguments."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def constants_in(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The plain values that names stand for wherever they are assigned once, and at the top."""
    named = [target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name)]  # fmt: skip
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = value_of(node.value, {})
            if value is not OPEN and named.count(name) == 1:
                yield name, value


def keywords(node: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call, those of a plain map that is unpacked into it too."""
    told: dict[str, Any] = {}
    for word in node.keywords:
        value = value_of(word.value, constants)
        told |= {word.arg: value} if word.arg is not None else value if isinstance(value, dict) else {}
    return told


def unpacks(node: ast.Call, constants: Mapping[str, Any]) -> bool:
    """Whether keywords are unpacked into a call that only running the program would tell."""
    return any(word.arg is None and not isinstance(value_of(word.value, constants), dict) for word in node.keywords)


def value_of(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """The value of an expression, a tuple or set as a list; a type of torch by its name."""
    if isinstance(node, ast.Name):
        return constants.get(node.id, OPEN)
    if isinstance(node, ast.Attribute):
        return node.attr if called(node.value) == "torch" else OPEN
    if isinstance(node, ast.Call) and called(node.func) == "dict":
        return keywords(node, constants)
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return {str(key): value_of(value, constants) for key, value in zip(keys, node.values, strict=True)}
    try:
        value = ast.literal_eval(node)
        return [*value] if isinstance(value, (tuple, set)) else value
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return OPEN
