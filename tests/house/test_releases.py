"""Releases: what one of them refuses of a strategy is asked of the table of constraints, and compared nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

from parsed import parsed

PACKAGE = Path(__file__).resolve().parents[2] / "dsgen"
ROOMS = ("linting/rules", "strategies", "memory", "cost", "planning", "rendering", "asking", "simulating")
TABLE = "strategies/constraints/"
NAMES = {"version", "release"}  # as a release is called

# Module that compares releases -> what it asks of them; a strategy is none of it.
COMPARING = {
    "linting/rules/batch_sizes.py": "how many ranks DeepSpeed counts for the batch",
    "linting/rules/launch/launcher_option_unknown.py": "options of the launcher",
    "linting/rules/parallel/sequence_parallel_alone.py": "whether a size of groups is read",
    "linting/rules/parallel/sequence_parallel_size_refused.py": "whether a size of groups is read",
    "linting/rules/scheduler/scheduler_argument_type.py": "an argument of a schedule",
    "linting/rules/zero/optimizer_on_nvme_not_resumed.py": "what a load does with states that were swapped",
    "memory/older_releases.py": "where weights lie while they are made flat, and in which type they come back",
    "linting/rules/scheduler/steps_not_positive.py": "an argument of a schedule",
}


def compares_releases(tree: ast.Module) -> bool:
    """Whether something is said to be earlier or later than a release, or a release stands there as numbers."""

    def orders(node: ast.Compare) -> bool:
        inside = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        names = {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in inside}
        return bool(names & NAMES) and any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)

    def numbered(node: ast.Tuple) -> bool:
        values = [part.value for part in node.elts if isinstance(part, ast.Constant) and type(part.value) is int]
        return len(values) == len(node.elts) == 3 and values[0] == 0 and values[1] >= 10  # DeepSpeed is at 0.x

    nodes = list(ast.walk(tree))
    return any(orders(node) for node in nodes if isinstance(node, ast.Compare)) or any(
        numbered(node) for node in nodes if isinstance(node, ast.Tuple)
    )


def test_only_the_table_of_constraints_compares_releases_of_what_a_strategy_may_be() -> None:
    files = {
        path.relative_to(PACKAGE).as_posix(): path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))
    }
    comparing = {name for name, path in files.items() if compares_releases(parsed(path))}

    assert f"{TABLE}constraint.py" in comparing
    assert {name for name in comparing if not name.startswith(TABLE)} == set(COMPARING)
