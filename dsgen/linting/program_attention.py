"""Which attention a Python program asks for, where its calls do not say one in so many words."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from dsgen.linting.program_calls import OPEN, called, is_of_a_model, is_of_unsloth, keywords, parsed, unpacks, value_of

__all__ = ["ATTENTION", "OF_TRL", "TAKEN", "asks_for_none", "names_a_kernel", "trained_by_name"]

ATTENTION, TAKEN = "attn_implementation", "sdpa"  # which transformers takes where nobody asks for another
OF_TRL = ("SFT", "DPO", "GRPO", "KTO", "ORPO", "CPO", "Reward", "RLOO")  # each has its Config and its Trainer
_ATTENTIONS = (ATTENTION, "flash_att")  # parts of the names by which a program asks for one, in whatever way
_KERNELS = re.compile(r"flash_attention_\d|sdpa|eager|flex_attention|[\w-]+/[\w-]*flash-attn\d?")
_MADE_BY, _CLASS = ("from_pretrained", "from_config"), "ForCausalLM"
_OF_LOADING = "model_init_kwargs"  # TRL's, for a model that it loads by its name
_TRAINER = "Trainer"


def names_a_kernel(text: str, path: str) -> bool:
    """Whether a program has the name of a kernel of attention anywhere, so that its arguments alone do not tell which.

    Raises:
        DsgenError: It is no Python.
    """
    words = (node.value for node in ast.walk(parsed(text, path)) if isinstance(node, ast.Constant))
    return any(isinstance(word, str) and _KERNELS.fullmatch(word) for word in words)


def asks_for_none(tree: ast.Module, constants: Mapping[str, Any]) -> bool:
    """Whether a program makes its model, of several the first, and nowhere names an attention, but for another model's:
    a config of it, arguments, or a patch may."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    loads = sorted((node for node in calls if _makes_a_model(node, constants)), key=_place)
    loads = [*filter(_is_a_trainer_of_trl, loads), *loads]  # what such a one loads is trained
    if not loads or is_of_unsloth(loads[0]) or unpacks(loads[0], constants) or _is_of_an_encoder(loads[0]):
        return False
    if keywords(loads[0], constants).get(ATTENTION) is not None:
        return False
    if any(keywords(node, constants).get(_OF_LOADING) is OPEN for node in calls):
        return False
    words = [word for load in loads for word in load.keywords if word.arg == ATTENTION]
    apart = {id(node) for word in words for node in ast.walk(word)}
    names = (name for node in ast.walk(tree) if id(node) not in apart for _, name in ast.iter_fields(node))
    return not any(part in name for name in names if isinstance(name, str) for part in _ATTENTIONS)


def _makes_a_model(node: ast.Call, constants: Mapping[str, Any]) -> bool:
    """Whether a call loads a model, makes one anew, or trains one by its name, which TRL loads."""
    name = called(node.func)
    if name in _MADE_BY:
        return is_of_a_model(node.func) or is_of_unsloth(node)
    return trained_by_name(node, constants) is not None or name.endswith(_CLASS)


def trained_by_name(node: ast.Call, constants: Mapping[str, Any]) -> str | None:
    """The model that one of TRL's trainers is given by its name, and loads; None of any other call."""
    if not _is_a_trainer_of_trl(node):
        return None
    models = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "model")]
    return next((name for name in (value_of(model, constants) for model in models) if isinstance(name, str)), None)


def _is_a_trainer_of_trl(node: ast.Call) -> bool:
    name = called(node.func)
    return name.endswith(_TRAINER) and name.removesuffix(_TRAINER) in OF_TRL


def _is_of_an_encoder(node: ast.Call) -> bool:
    """Whether the model has an encoder, whose sdpa no plan counts."""
    return isinstance(node.func, ast.Attribute) and "Seq2Seq" in called(node.func.value)


def _place(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset
