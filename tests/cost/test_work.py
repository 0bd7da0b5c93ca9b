"""The work of a model's parts: against what real classes dispatched (work.json), and against arithmetic by hand."""

from __future__ import annotations

import functools
import json
import runpy
from pathlib import Path

import attrs
import pytest

from dsgen.cost.model_work import work
from dsgen.families.hf_config import model_from_hf
from dsgen.families.parameters import model_types
from dsgen.families.tape.graph import DEQUANTIZATION, EMBEDDING
from dsgen.families.tape.work import NO_WORK, Work
from dsgen.shapes.profiles import Model, yaml_name

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "tests" / "cost" / "work.json").read_text(encoding="utf-8"))
TOKENS = 256

# Shares by which bytes of kernels bound by memory, operators and views may be off.
CLOSE = (0.005, 0.03, 0.08)
# A chunked loss is one kernel a chunk on a GPU, of which the simulation's stand-in runs none.
CHUNKED = (0.005, 0.09, 0.04)
# Where the tape leaves out small steps, of a router, of positions or of views of heads.
WIDER = {
    "mixtral": (0.005, 0.035, 0.08),  # of adapters: the sum that peft makes of a router's weight to look at it
    "bloom": (0.015, 0.08, 0.15),  # one kernel for the scores' scale and bias, and tables of biases made as one
    "cohere": (0.005, 0.03, 0.12),  # views of rope
    "deepseek_v2": (0.045, 0.10, 0.26),  # groups of experts; parts of heads put together
    "deepseek_v3": (0.04, 0.11, 0.18),
    "falcon": (0.005, 0.03, 0.17),  # the three parts of its fused product
    "falcon-new": (0.02, 0.07, 0.28),
    "glm4": (0.005, 0.03, 0.23),  # rope of neighbours
    "glm4_moe": (0.005, 0.07, 0.08),
    "gpt_oss": (0.04, 0.055, 0.11),  # biases of experts
    "gptj": (0.02, 0.17, 0.41),  # rope tables that every block makes
    "ministral3": (0.005, 0.11, 0.10),  # its scale of queries
    "mt5": (0.015, 0.09, 0.05),  # buckets of distances
    "phi3": (0.005, 0.03, 0.10),
    "t5": (0.015, 0.10, 0.06),
    "t5-gated": (0.015, 0.08, 0.05),
}


@functools.cache
def benchmark():
    """The benchmark's own functions: cases, and what the model says of one."""
    return runpy.run_path(str(ROOT / "benchmarks" / "work.py"))


@functools.cache
def model(name):
    facts = model_from_hf(benchmark()["configs"]()[name], name)
    return Model(**{field.name: facts[yaml_name(field.name)] for field in attrs.fields(Model) if field.name in facts})


def worked(name="llama", **options):
    return work(model(name), **{"precision": "bf16", "attention": "flash", "seq_len": TOKENS, **options})


def flops(found, micro_batch=1):
    """Of products: two for a multiply and an add."""

    def at(size):
        return size[0] + micro_batch * size[1]

    return sum(2 * count * at(one.m) * at(one.n) * at(one.k) * at(one.batch) for one, count in found.products)


def block_elements(one):
    """Elements of the matrices of a block like Llama's."""
    heads = 2 * one.attention_heads * one.head_size + 2 * one.kv_heads * one.head_size
    return one.hidden_size * (heads + 3 * one.ffn_size)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_work_is_that_of_the_real_class(name):
    """Products and attention to the last one; bytes, operators and views as closely as is said above."""
    case = benchmark()["cases"]()[name]
    within = CHUNKED if case["chunked_loss"] else WIDER.get(case["model"], CLOSE)
    found = benchmark()["told"](benchmark()["predicted"](case))

    for phase in benchmark()["PHASES"]:
        off = benchmark()["differences"](found[phase], TABLE[name][phase])

        assert found[phase]["products"] == TABLE[name][phase]["products"], phase
        assert found[phase]["attentions"] == TABLE[name][phase]["attentions"], phase
        for kind, share in zip(("bytes", "operators", "views"), within, strict=True):
            assert abs(off[kind]) <= share, (phase, kind)


def test_every_model_type_was_measured():
    assert {name.partition("/")[0].partition("-")[0] for name in TABLE} == set(model_types())


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_products_take_two_flops_an_element_and_token(name):
    """Of matrices, the head's among them; twice that backward."""
    found, one = worked(name), model(name)
    elements = one.layers * block_elements(one) + one.vocab_size * one.hidden_size

    assert flops(found.forward) == 2 * elements * TOKENS
    assert flops(found.backward) == 2 * flops(found.forward)


def test_fp32_products_of_adapters_are_in_16_bits_where_they_have_the_type_of_the_base():
    """As many products, of as many elements: only bytes and the speed of a product differ."""
    at = {"method": "lora", "zero3": True, "chunked_loss": True}
    wide, narrow = worked(**at), worked(**at, narrow=True)

    assert {one.item for one, _ in wide.forward.products} == {2, 4}
    assert {one.item for one, _ in narrow.forward.products} == {2}
    assert flops(narrow.forward) == flops(wide.forward)
    assert worked(method="lora", chunked_loss=True, narrow=True) == worked(method="lora", chunked_loss=True)


def test_work_grows_with_the_micro_batch():
    found = worked()

    assert flops(found.forward, 8) == 8 * flops(found.forward, 1)
    fixed, each = found.backward.moved()
    assert each > fixed > 0  # gradients of weights do not grow


def test_frozen_weights_have_no_gradient():
    """Of a LoRA the products of the base run forward and backward once; the first block asks for no gradient below."""
    found = worked(method="lora")
    first, others = found.parts[1], found.parts[2]

    assert flops(found.backward) < 1.2 * flops(found.forward)
    assert (first.repeats, others.repeats) == (1, 2)
    assert flops(first.backward) < flops(others.backward)
    assert first.forward == others.forward


def test_checkpointing_runs_blocks_again_but_for_their_end():
    plain, again = worked(), worked(checkpointing=True)
    last = 2 * TOKENS * model("llama").ffn_size * model("llama").hidden_size  # the last product keeps its input only

    assert plain.again == NO_WORK
    assert (again.forward, again.backward) == (plain.forward, plain.backward)
    block = again.parts[1]
    assert flops(block.forward) - flops(block.again) == last
    assert again.parts[0].again == again.parts[-1].again == NO_WORK


def test_4_bit_weights_are_made_anew_in_every_pass():
    found = worked(method="qlora", checkpointing=True)
    one = model("llama")
    moved = one.layers * block_elements(one) * (0.5 + 2 + 4 / 64)  # packed, in 16 bits, and a scale of 64

    for passed in (found.forward, found.again, found.backward):
        assert passed.moved(DEQUANTIZATION)[0] == pytest.approx(moved, rel=0.2 if passed is found.again else 1e-6)


def test_experts_divide_the_rows():
    one = model("mixtral")
    grouped = [product for product, _ in worked("mixtral").forward.products if product.groups > 1]

    assert {product.groups for product in grouped} == {one.experts}
    assert {product.m for product in grouped} == {(0, TOKENS * one.experts_per_token)}


@pytest.mark.parametrize(
    ("name", "narrow", "wide"), [("mistral", 3, 0), ("gemma2", 2, 1), ("gemma3_text", 5, 1), ("llama", 0, 3)]
)
def test_a_window_is_that_of_the_blocks_that_have_one(name, narrow, wide):
    found = worked(name, seq_len=8192)
    counts = {True: 0, False: 0}
    for part in found.parts:
        for call, count in part.forward.attentions:
            counts[call.window > 0] += count * part.repeats

    assert (counts[True], counts[False]) == (narrow, wide)
    assert all(not call.window for call, _ in worked(name).forward.attentions)  # shorter than any window


def test_modules_are_those_that_run_and_hold_parameters():
    assert [(part.name, part.repeats, part.modules) for part in worked().parts] == [
        ("before", 1, 1),
        ("dense", 3, 9),
        ("head", 1, 2),
    ]


def test_kernels_are_operators_and_the_parts_of_some():
    found = worked()

    assert found.forward.kernels == found.forward.operators
    assert found.backward.kernels > found.backward.operators  # attention; zeros and a copy where a slice was


def test_an_encoder_works_on_its_own_length():
    short, long = (worked("t5", target_len=length) for length in (64, 128))
    encoder = [part for part in short.parts if part.name.startswith("encoder")]

    assert encoder == [part for part in long.parts if part.name.startswith("encoder")]
    assert flops(short.forward) < flops(long.forward)


def test_a_tied_weight_gets_the_sum_of_two_gradients():
    tied, untied = model("llama"), attrs.evolve(model("llama"), tied_embeddings=True)
    both = [work(one, precision="bf16", attention="flash", seq_len=TOKENS).backward for one in (tied, untied)]
    table = 2 * tied.vocab_size * tied.hidden_size

    assert both[1].moved()[0] - both[0].moved()[0] == 3 * table
    assert both[1].moved(EMBEDDING) == both[0].moved(EMBEDDING)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("profile", ["7b", "qwen2.5-7b", "mixtral-8x7b", "gemma-2-9b"])
def test_at_stage_3_a_second_forward_is_a_whole_one(make_job, profile, method):
    """Its linear layers save what backward needs when they have multiplied, so that nothing ends early."""
    given = {"precision": "bf16", "attention": "flash", "seq_len": TOKENS, "method": method, "checkpointing": True}
    model = make_job(model=profile).model
    early, whole = (work(model, **given, zero3=zero3).parts[1] for zero3 in (False, True))

    assert whole.again.products == whole.forward.products
    assert (early.again.products == early.forward.products) == (profile in ("mixtral-8x7b", "gemma-2-9b"))
    assert method != "full" or whole.forward == early.forward
    # zero.Init's linear layer makes the gradient of its input first.
    assert method != "full" or _in_no_order(whole.backward) == _in_no_order(early.backward)


def _in_no_order(done: Work) -> Work:
    return done._replace(products=tuple(sorted(done.products)))
