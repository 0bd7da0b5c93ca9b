"""What a mixture costs where its experts run in a loop (transformers 4), beside grouped products (transformers 5)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import dsgen
from dsgen.cost.expert_loop import looped, tensors_apart
from dsgen.cost.handling import trained_tensors
from dsgen.cost.micro_batches import passes
from dsgen.cost.model_work import PartWork, work
from dsgen.families.tape.graph import DEQUANTIZATION
from dsgen.families.tape.work import Work
from dsgen.memory.modules import modules
from dsgen.shapes.profiles import Model

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GRANITE = "granitemoe"  # a type of model without a profile
HALF = 2
TOKENS = 512
JOB = {"hw": "a100-80g", "nodes": 2, "network": "ib-hdr-1600g", "model": "qwen3-30b-a3b", "seq_len": 8192}


def job(**said: Any) -> Any:
    return dsgen.job({**JOB, **said})


def block(experts: int, method: str = "full", model: str = "qwen3-30b-a3b") -> tuple[Model, PartWork]:
    """A block of a small mixture, with grouped products."""
    named = dsgen.job({**JOB, "model": "mixtral-8x7b" if model == GRANITE else model}).model
    small = attrs.evolve(named, experts=experts, layers=1, hidden_size=64, expert_ffn_size=32, experts_per_token=2)
    if model == GRANITE:
        small = attrs.evolve(small, architecture=GRANITE)
    said: dict[str, Any] = {
        "precision": "bf16",
        "attention": "sdpa",
        "method": method,
        "lora_targets": tuple(ATTENTION),
    }
    parts = work(small, seq_len=TOKENS, checkpointing=True, **said).parts
    return small, next(part for part in parts if any(product.groups > 1 for product, _ in part.forward.products))


def further(phase: str, method: str, model: str) -> tuple[float, float]:
    """Operators and views that one more expert is worth."""
    few, many = (looped(part, small, TOKENS, HALF, packed=False) for small, part in
                 (block(experts, method, model) for experts in (8, 16)))  # fmt: skip
    one, other = getattr(few, phase), getattr(many, phase)
    return (other.operators - one.operators) / 8, (other.views - one.views) / 8


def multiplied(done: Work) -> int:
    """Multiplications and additions of one sequence."""
    return sum(count * 2 * sum(one.m) * sum(one.n) * sum(one.k) for one, count in done.products)


@pytest.mark.parametrize(
    ("model", "forward", "trained", "frozen"),
    [
        ("qwen3-30b-a3b", (12 + 2, 8), (20, 19), (17, 7)),
        ("mixtral-8x7b", (12 + 2, 8), (20, 19), (17, 7)),
        ("gpt-oss-20b", (24 + 8, 12), (43, 9), (31, 5)),
        (GRANITE, (2, 4), (8, 10), (2, 4)),
    ],
)
def test_an_expert_dispatches_what_the_real_class_does(
    model: str, forward: tuple[int, int], trained: tuple[int, int], frozen: tuple[int, int]
) -> None:
    """MixtralSparseMoeBlock and its likes of transformers 4.57.1, under a dispatch mode of torch 2.13.

    Operators and views that each of eight more experts adds. What the host waits for counts as two: where an expert's
    tokens are looked for, and each number that Python asks for.
    """
    assert further("forward", "full", model) == forward
    assert further("backward", "full", model) == trained
    assert further("backward", "lora", model) == frozen


def test_the_products_are_the_same_work_in_as_many_kernels() -> None:
    small, grouped = block(8)
    apart = looped(grouped, small, TOKENS, HALF, packed=False)

    for phase, layers in (("forward", 3), ("again", 3), ("backward", 6)):
        one, other = getattr(grouped, phase), getattr(apart, phase)
        assert multiplied(one) == multiplied(other)
        launched = sum(count * product.groups for product, count in other.products if product.apart)
        assert launched == layers * 8
        assert other.kernels > one.kernels + launched - 4
    assert apart.called == 3 * 8
    assert not any(product.apart for product, _ in grouped.forward.products)


def test_the_gradient_of_one_expert_is_made_of_all_where_they_are_one_tensor() -> None:
    """gpt-oss: `self.gate_up_proj[expert]`, whose backward fills a tensor of all with zeros and adds it."""
    small, grouped = block(8, model="gpt-oss-20b")
    frozen = block(8, "lora", model="gpt-oss-20b")[1]
    weights = 8 * 64 * (2 * 32 + 32) * HALF
    more = [looped(one, small, TOKENS, HALF, packed=False).backward.moved()[0] - one.backward.moved()[0]
            for one in (grouped, frozen)]  # fmt: skip
    assert more == [8 * (1 + 3) * weights, 0]


def test_a_layer_in_4_bits_is_made_anew_in_every_pass() -> None:
    small, grouped = block(8, "lora")
    packed = looped(grouped, small, TOKENS, HALF, packed=True)

    for phase in ("forward", "again", "backward"):
        made = [count for moved, count in getattr(packed, phase).traffic if moved.sort == DEQUANTIZATION]
        assert made == [3 * 8]


def test_what_has_no_experts_is_as_it_was() -> None:
    small, _ = block(8)
    parts = work(small, precision="bf16", attention="sdpa", seq_len=TOKENS).parts
    assert looped(parts[0], small, TOKENS, HALF, packed=False) is parts[0]


def test_each_expert_has_tensors_of_its_own() -> None:
    """As many elements, in as many tensors as Qwen3MoeForCausalLM of transformers 4.57.1 has."""
    old, new = job(transformers="4.57"), job()
    assert trained_tensors(old) - trained_tensors(new) == 48 * (128 * 3 - 2)

    parts = modules(new.model, "full", 16, (), 1, False, False, False).parts
    tensors = [(one.numel, 1) for _, part in parts for module in part for one in module.tensors]
    apart = tensors_apart(new.model, tensors)
    assert sum(numel * often for numel, often in apart) == sum(numel for numel, _ in tensors)


def test_the_host_bounds_a_mixture_of_many_small_experts() -> None:
    """ms-swift measured 91.2 s a step where every layer was fetched by itself (its Megatron quick start, 16 A800)."""
    said = {"zero_stage": 3, "micro_batch": 1, "global_batch": 16}
    loop, grouped = (dsgen.plan({**JOB, **said, **more}).chosen for more in ({"transformers": "4.51"}, {}))

    assert grouped.cost.seconds < 5
    assert 2.5 * grouped.cost.seconds < loop.cost.seconds < 91.2
    assert loop.cost.parts["host"] > loop.cost.seconds / 2


def test_few_large_experts_cost_little_more() -> None:
    said = {"model": "mixtral-8x7b", "zero_stage": 3, "micro_batch": 4, "seq_len": 4096}
    loop, grouped = (dsgen.plan({**JOB, **said, **more}).chosen for more in ({"transformers": "4.48"}, {}))
    assert 1.0 < loop.cost.seconds / grouped.cost.seconds < 1.25


def test_more_ranks_cut_more_shares_of_each_tensor() -> None:
    said = {"transformers": "4.57", "zero_stage": 3, "micro_batch": 1, "checkpointing": "full"}
    chosen = dsgen.plan({**JOB, **said}).chosen.strategy
    few, many = (passes(job(**said, nodes=nodes), chosen).host for nodes in (2, 4))
    gathered = 3 * 48 * 128 * 3  # forward, again and backward
    assert many - few == pytest.approx(gathered * 16 * 6e-6)


def test_a_plan_offers_the_release_that_groups_them() -> None:
    for release, offered in (("4.57", True), ("5.23", False)):
        changes = dsgen.program_changes(dsgen.plan({**JOB, "transformers": release, "zero_stage": 3}))
        faster = [one for one in changes if one.change.field == "transformers"]
        assert bool(faster) is offered
