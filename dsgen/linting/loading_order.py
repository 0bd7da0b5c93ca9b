"""In which order a Python program makes its arguments and loads its model, read off its text; nothing is run.

from_pretrained asks whether a config of ZeRO-3 is known, which TrainingArguments make, and an HfDeepSpeedConfig for as
long as somebody keeps it (transformers 5.23: modeling_utils.py, integrations/deepspeed.py, training_args.py).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from dsgen.linting.model_loads import ModelLoad
from dsgen.linting.program_calls import UNSLOTH, called, is_of_a_model, parsed
from dsgen.linting.python_programs import makes_arguments

__all__ = ["loads"]

# What makes a config known before the arguments do, or calls zero.Init itself: transformers' integrations/deepspeed.py,
# Accelerator (its plugin's set_deepspeed_weakref, under a launcher), deepspeed.zero.Init.
_HELD = ("HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig")  # known for as long as their object is kept
_EARLIER = (*_HELD, "Accelerator", "Init")
# Methods of HfArgumentParser and TRL's TrlParser that make the arguments of a command line, or of a file.
_PARSING = ("parse_args_into_dataclasses", "parse_yaml_file", "parse_json_file", "parse_dict", "parse_args_and_config")
_LOADING, _MAP = "from_pretrained", "device_map"
_ADAPTERS = "PeftModel"  # its from_pretrained puts adapters on a model that is there
_QUANTIZED, _BITS = "quantization_config", ("load_in_4bit", "load_in_8bit")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.Lambda)
_BRANCHES = (ast.If, ast.IfExp, ast.BoolOp, ast.While, ast.Try, ast.Match)  # what stands in them may not run
_MAIN = "__name__"  # of the condition that holds where a program is started
_MAKERS = ("dict", "device")  # dict(...), torch.device(...): calls that give no None
_CHANGING = ("pop", "update", "setdefault", "clear")  # methods of a map
_SHOWN = 40  # characters of a device_map that a message repeats


@attrs.frozen
class _Event:
    """A call that loads, or that makes a config known; whether it runs in any case."""

    call: ast.Call
    sure: bool


@attrs.frozen
class _Program:
    """A program: its functions by name, those of one name left out; and the values of the names that are bound once."""

    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    values: Mapping[str, ast.expr]


def loads(text: str, path: str) -> tuple[ModelLoad, ...]:
    """Every load of a model in a program, in the order in which it runs them; of one that runs twice, the first.

    Functions are followed where they are called; one that nothing here calls is read by itself.

    Raises:
        DsgenError: It is no Python.
    """
    tree = parsed(text, path)
    program = _Program(_functions(tree), _values(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    within = {name for node in calls if (name := _local(node, program)) is not None}
    earlier = any(called(node.func) in _EARLIER for node in calls)
    roots = (tree, *(one for name, one in program.functions.items() if name not in within))
    unread: dict[int, ModelLoad] = {}
    for root in roots:
        events = [*_events(root, program, True, set())]
        for place, event in enumerate(events):
            if _is_load(event.call) and event.call.lineno not in unread:
                load = _load(event, events[:place], events[place + 1 :], program, path)
                unread[event.call.lineno] = attrs.evolve(load, after=None) if earlier else load
    return tuple(unread.values())


def _load(event: _Event, before: list[_Event], behind: list[_Event], program: _Program, path: str) -> ModelLoad:
    """One load, by what has run before it and what runs behind it."""
    made, later = ([one for one in events if not _is_load(one.call)] for events in (before, behind))
    surest = next((one for one in made if one.sure), made[0] if made else None)
    call = event.call
    return ModelLoad(
        file=path,
        line=call.lineno,
        known=surest.call.lineno if surest is not None else None,
        after=later[0].call.lineno if later and surest is None else None,
        device_map=_device_map(call, program),
        sure=event.sure and (surest is None or surest.sure),
        quantized=any(
            word.arg in _BITS or (word.arg == _QUANTIZED and not _is_none(word.value)) for word in call.keywords
        ),
    )


def _events(scope: ast.AST, program: _Program, sure: bool, seen: set[str]) -> Iterator[_Event]:
    """The calls that count in what a scope runs itself, and in the functions of the program that it calls, in order.

    Args:
        scope: A node of the program.
        program: The program.
        sure: Whether the scope runs in any case.
        seen: The functions that have been followed, each where it is called first.
    """
    inner = sure and not (isinstance(scope, _BRANCHES) and not _is_main(scope))
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, _SCOPES):
            continue
        yield from _events(node, program, inner, seen)
        if not isinstance(node, ast.Call) or (isinstance(scope, ast.Expr) and called(node.func) in _HELD):
            continue
        if _is_load(node) or _makes_known(node):
            yield _Event(node, inner)
        elif (name := _local(node, program)) is not None and name not in seen:
            seen.add(name)
            for event in _events(program.functions[name], program, inner, seen):
                kept = called(event.call.func) not in _HELD  # whose object may go where the function ends
                yield attrs.evolve(event, sure=event.sure and kept)


def _is_main(node: ast.AST) -> bool:
    """Whether it is the condition under which a program runs that is started."""
    return isinstance(node, ast.If) and any(
        isinstance(one, ast.Name) and one.id == _MAIN for one in ast.walk(node.test)
    )


def _is_load(call: ast.Call) -> bool:
    if called(call.func) != _LOADING or not isinstance(call.func, ast.Attribute):
        return False
    return is_of_a_model(call.func) and called(call.func.value) != _ADAPTERS


def _makes_known(call: ast.Call) -> bool:
    name = called(call.func)
    return makes_arguments(name) or name in (*_HELD, *_PARSING)


def _local(call: ast.Call, program: _Program) -> str | None:
    """The function of the program that is called: load(), self.load()."""
    function = call.func
    own = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    name = called(function) if own or isinstance(function, ast.Name) else ""
    return name if name in program.functions else None


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    written = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    names = Counter(node.name for node in written)
    return {node.name: node for node in written if names[node.name] == 1}


def _values(tree: ast.Module) -> dict[str, ast.expr]:
    """What names stand for that are bound once, and whose value nothing changes."""
    nodes = [*ast.walk(tree)]
    bound = Counter(node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    bound.update(node.arg for node in nodes if isinstance(node, ast.arg))
    changed = {called(node.func.value) for node in nodes if isinstance(node, ast.Call)
               and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING}  # fmt: skip
    changed |= {
        called(node.value) for node in nodes if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
    }
    return {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1
        and bound[node.targets[0].id] == 1 and node.targets[0].id not in changed
    }  # fmt: skip


def _device_map(call: ast.Call, program: _Program) -> str | None:
    """What a load is told as device_map, as it is written, where that is surely not None; Unsloth takes its own way."""
    if isinstance(call.func, ast.Attribute) and called(call.func.value) in UNSLOTH:
        return None
    told = [word.value for word in call.keywords if word.arg == _MAP]
    for word in call.keywords if not told else ():
        if word.arg is None:
            told += _unpacked(word.value, program)
    if len(told) != 1 or not _is_given(value := _resolved(told[0], program)):
        return None
    written = ast.unparse(value).replace("'", '"')
    return written if len(written) <= _SHOWN else "{...}"


def _unpacked(node: ast.expr, program: _Program) -> Iterator[ast.expr]:
    """The device_map in a map that is unpacked."""
    value = _resolved(node, program)
    if isinstance(value, ast.Dict):
        yield from (
            item
            for key, item in zip(value.keys, value.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == _MAP
        )
    elif isinstance(value, ast.Call) and called(value.func) == "dict":
        yield from (word.value for word in value.keywords if word.arg == _MAP)


def _resolved(node: ast.expr, program: _Program) -> ast.expr:
    return program.values.get(node.id, node) if isinstance(node, ast.Name) else node


def _is_given(node: ast.expr) -> bool:
    """Whether a value is surely not None."""
    if isinstance(node, ast.Call):
        return called(node.func) in _MAKERS
    plain = isinstance(node, ast.Constant) and node.value is not None
    return plain or isinstance(node, (ast.Dict, ast.DictComp, ast.JoinedStr))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
