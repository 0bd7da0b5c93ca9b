"""per_head_muon on a model without a projection it could split by heads."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.arguments import client_wins
from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Fault, Fix, Remove, Severity

__all__ = ["RULE", "check"]

_HEADS = ("q_proj", "query", "wq", "k_proj", "key", "wk", "v_proj", "value", "wv", "q_b_proj", "kv_b_proj")
_MIXED = ("qkv_proj", "query_key_value", "c_attn", "in_proj_qkv", "wqkv", "q_a_proj", "kv_a_proj")


def check(subject: Subject) -> Iterator[Fault]:
    """The option, where the names of the parameters are known and none fits."""
    path = "optimizer.params.per_head_muon"
    names = subject.facts.parameters
    if subject.optimizer != "muon" or subject.raw(path) is not True or names is None or client_wins(subject):
        return
    if not any(_splits(name) for name in names):
        fix = Fix("remove per_head_muon", (Remove(path),), safe=False)
        said = "per_head_muon finds no attention projection in this model, and deepspeed.initialize stops"
        yield Fault(path, said, fix)


def _splits(name: str) -> bool:
    """Whether a parameter is named as a projection whose outputs lie head by head."""
    parts = name.split(".")
    leaf = parts[-2] if len(parts) > 1 else parts[-1]
    return leaf.startswith(_HEADS) and not leaf.startswith(_MIXED)


RULE = Rule(
    code="DSG520",
    name="per-head-muon-without-attention",
    severity=Severity.ERROR,
    what="optimizer.params.per_head_muon is true and no parameter is a query, key or value projection.",
    why=(
        "deepspeed.initialize stops with a ValueError, so that the option is not silently without effect. Fused "
        "projections (qkv_proj, c_attn, query_key_value) do not count."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001, "per_head_muon": true}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "Muon", "params": {"lr": 0.001}},
  "zero_optimization": {"stage": 2},
  "bf16": {"enabled": true}
}""",
    evidence=(
        "deepspeed/__init__.py (0.19.8): _report_per_head_tagging",
        "probe OPT_Muon_perhead",
    ),
    check=check,
    given={"parameters": ["layers.0.weight", "layers.0.bias"]},
    since="0.19.8",
)
