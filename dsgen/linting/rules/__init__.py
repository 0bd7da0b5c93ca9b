"""Every rule, in the order of its code; those that can speak of some keys are found without loading the others."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dsgen.deepspeed.keys import lookup
from dsgen.linting.rules.rule import Rule, Rules

__all__ = ["READS", "RULES", "Rule", "about"]

RULES = Rules(
    __name__,
    "text",
    "keys",
    "batch",
    "zero",
    "parallel",
    "optimizer",
    "scheduler",
    "precision",
    "sections",
    "hardware",
    "program",
    "launch",
)
# File of a rule -> what it reads of a config, recorded by golden/rule_reads.py: a dotted key; "section.*" where it
# looks at all there is in a section, "*" where at the whole config.
READS = Path(__file__).with_name("reads.json")


def about(keys: Collection[str], config: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules whose answer can change with some keys, in the order of their codes.

    A rule that reads none of them says of the config what it says of the config without them.

    Args:
        keys: Dotted keys that were written, changed or taken out.
        config: The config as it is now.
    """
    touched = frozenset(_touched(keys, config))
    return tuple(_rule(file) for file, reads in _reads().items() if not touched.isdisjoint(reads))


def _touched(keys: Collection[str], config: Mapping[str, Any]) -> Iterator[str]:
    """What a rule that could notice the keys has read: the key, all of a section around it, or a section it makes."""
    for key in keys:
        yield from (key, "*")
        section = key.rpartition(".")[0]
        while section:
            yield f"{section}.*"
            if _keys_below(lookup(config, section)[1], section) <= frozenset(keys):
                yield section  # it is there, or is gone, because of these keys alone
            section = section.rpartition(".")[0]


def _keys_below(section: Any, path: str) -> frozenset[str]:
    """The dotted keys in a section that are no sections themselves; the path alone where it is none."""
    if not isinstance(section, Mapping):
        return frozenset() if section is None else frozenset((path,))
    return frozenset().union(*(_keys_below(value, f"{path}.{name}") for name, value in section.items()))


def _rule(file: str) -> Rule:
    rule: Rule = import_module(f"{__name__}.{file}").RULE
    return rule


@functools.cache
def _reads() -> Mapping[str, list[str]]:
    reads: Mapping[str, list[str]] = json.loads(READS.read_text("utf-8"))
    return reads
