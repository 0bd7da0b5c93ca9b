"""Small faults that a source can be given, one at a time: each a change of one node of its tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

__all__ = ["Mutation", "mutations"]

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.Pow: ast.Mult,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@attrs.frozen
class Mutation:
    """One fault.

    Attributes:
        path: The source.
        line: Where the node begins, from 1.
        column: From 0.
        statement: Lines of the statement around it, of which a run passes at least one; of `if` and `def` the head.
        before: The node as it is, on one line.
        after: The node with its fault.
        text: The whole source with the fault.
    """

    path: Path
    line: int
    column: int
    statement: range
    before: str
    after: str
    text: str = attrs.field(repr=False)


def mutations(path: Path) -> Iterator[Mutation]:
    """Every fault that a file can be given, in the order of its nodes."""
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    tree = ast.parse(source)
    statements = list(_statements(tree))
    skipped = {id(inner) for node in ast.walk(tree) if _left_alone(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr) or isinstance(node, ast.JoinedStr):
            continue
        for other in _faults(node):
            # Columns of a tree count bytes, and a fault stands in brackets, whatever is around it.
            begin = sum(len(line.encode()) for line in lines[: node.lineno - 1]) + node.col_offset
            end = sum(len(line.encode()) for line in lines[: (node.end_lineno or 0) - 1]) + (node.end_col_offset or 0)
            whole = source.encode()
            text = (whole[:begin] + f"({ast.unparse(other)})".encode() + whole[end:]).decode()
            around = next((lines for lines in statements if node.lineno in lines), range(node.lineno, node.lineno + 1))
            yield Mutation(path, node.lineno, node.col_offset, around, ast.unparse(node), ast.unparse(other), text)


def _statements(tree: ast.AST) -> Iterator[range]:
    """Lines of each statement, the innermost first; those of its body are none of its own."""
    for node in reversed(list(ast.walk(tree))):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            yield range(node.lineno, body[0].lineno if body else (node.end_lineno or node.lineno) + 1)


def _left_alone(node: ast.AST) -> bool:
    """Whether no run can tell a change of a node, or nobody its place: types, and what stands in an f-string."""
    return isinstance(node, (ast.JoinedStr, ast.Assert)) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


def _faults(node: ast.expr) -> Iterator[ast.expr]:
    """What a node can be instead."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
        yield ast.Compare(node.left, [_COMPARED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED and not _is_type(node):
        yield ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        yield node.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1 if node.value + 1 != node.value else node.value * 2)  # 1e18 + 1 is 1e18
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield ast.Call(ast.Name(_CALLED[node.func.id]), node.args, node.keywords)


def _is_type(node: ast.BinOp) -> bool:
    """Whether `|` stands between types: `int | None`."""
    if not isinstance(node.op, ast.BitOr):
        return False
    parts = [node.left, node.right]
    return any(
        (isinstance(part, ast.Constant) and part.value is None)
        or (
            isinstance(part, ast.Name) and (part.id in ("str", "int", "float", "bool", "bytes") or part.id[0].isupper())
        )
        or isinstance(part, ast.Subscript)
        or (isinstance(part, ast.BinOp) and _is_type(part))
        for part in parts
    )
