"""What a card measured, beside what dsgen says of it now: a record keeps what was said when it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from gpu_speed_cases import predicted, speed_cases  # benchmarks/, beside this module
from gpu_speed_kernels import law_seconds, node_of
from gpu_speed_table import case_row, kernel_row

__all__ = ["now", "said_of"]

TIED = "tie_word_embeddings"  # in the request of a run that the harness gave a head of its own


def said_of(records: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What dsgen says of a recorded run as it ran, on the machine that ran it: see `gpu_speed_cases.predicted`."""
    case = next(one for one in speed_cases() if one.name == name)
    if records["cases"][name]["request"].get("model", {}).get(TIED) is False:
        case = attrs.evolve(case, facts={"tied_embeddings": False})
    torch = records["versions"]["torch"]
    return predicted(case, records["profile"], {"cpu_cores": records["card"]["cores"]}, torch)


def now(records: Mapping[str, Any]) -> dict[str, Any]:
    """The record with each run and kernel said anew."""
    node = node_of(records["profile"], {"cpu_cores": records["card"]["cores"]})
    cases = {
        name: {**case_row(row["request"], row["measured"], said_of(records, name)), "request": row["request"]}
        for name, row in records["cases"].items()
    }
    kernels = {name: kernel_row(row["kernel"], _measured(row), law_seconds(node, row["kernel"]))
               for name, row in records["kernels"].items()}  # fmt: skip
    return {**records, "cases": cases, "kernels": kernels}


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's answer without what was said of it; an error that the kernel had is no number."""
    told = ("kernel", "predicted_seconds")
    return {name: value for name, value in row.items()
            if name not in told and not (name == "error" and isinstance(value, float))}  # fmt: skip
