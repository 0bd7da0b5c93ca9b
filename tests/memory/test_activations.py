"""Activations by arithmetic against the simulation of the real DeepSpeed: a committed table of simulated numbers."""

from __future__ import annotations

import functools
import gc
import inspect
import json
import runpy
import sys
from pathlib import Path

import attrs
import pytest

from dsgen.families.hf_config import model_from_hf
from dsgen.families.parameters import model_types
from dsgen.memory.activations import activations, whole
from dsgen.memory.modules import LENDING, modules
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model, Training, yaml_name

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "tests" / "memory" / "activations.json").read_text(encoding="utf-8"))
WITHIN = 0.01  # of the simulated number
# Eager attention on a single sequence: what lies token by token is not copied there, and a slice keeps its whole.
SINGLE = {"gpt_neox": 0.045, "falcon": 0.045}


@functools.cache
def benchmark():
    """The benchmark's own functions: cases, and what the model says of one."""
    return runpy.run_path(str(ROOT / "benchmarks" / "activations.py"))


def model(name):
    facts = model_from_hf(benchmark()["MODELS"][name], name)
    return Model(**{field.name: facts[yaml_name(field.name)] for field in attrs.fields(Model) if field.name in facts})


@pytest.mark.parametrize("name", sorted(TABLE["cases"]))
def test_every_number_is_that_of_the_simulation(name):
    """End of forward, and the highest moments of forward, of backward, and of backward after the loss."""
    case = benchmark()["cases"]()[name]
    single = case["attention"] == "eager" and case["micro_batch"] == 1
    within = SINGLE.get(case["model"], WITHIN) if single else WITHIN

    told = benchmark()["predicted"](case)

    # Liger's last norm gives on a gradient that its loss has made: what is above the blocks is not told from it there.
    apart = {"backward_blocks"} if case["chunked_loss"] and "liger_kernels" in case else set()
    for number, simulated in zip(benchmark()["NUMBERS"], TABLE["cases"][name], strict=True):
        if number in apart:
            continue
        assert told[number] == pytest.approx(simulated, rel=within), number


def test_every_model_type_was_measured():
    """With checkpointing and without."""
    measured = {(name.partition("/")[0].partition("-")[0], name.split("/")[5]) for name in TABLE["cases"]}

    missing = {(kind, again) for kind in model_types() for again in ("True", "False")} - measured

    assert missing == {("falcon", "True")}  # torch's engine itself crashes there on a device without memory


def test_a_call_leaves_nothing_behind():
    """A record closes no circle: its objects go with it, and the garbage collector is left out of it."""
    gc.collect()
    gc.disable()
    try:
        for name in benchmark()["MODELS"]:
            whole._activations.__wrapped__(
                model(name),
                "bf16",
                "eager",
                64,
                1,
                "full",
                True,
                False,
                16,
                ("all-linear",),
                False,
                True,
                False,
                False,
                False,
                64,
                False,
                False,
                False,
            )
        assert gc.collect() == 0
    finally:
        gc.enable()


def lived(shape, checkpointing, method):
    """What a model's run holds, not from the cache; at stage 3, where moments tell their places."""
    whole._head.cache_clear()
    whole._recorded_head.cache_clear()
    whole._recorded.cache_clear()
    settings = ("bf16", "eager", 64, 1, method, checkpointing, False, 8, ("all-linear",), method != "full", True)
    return whole._activations.__wrapped__(shape, *settings, False, False, False, 64, False, False, False)


@pytest.mark.parametrize(
    ("name", "checkpointing", "method"),
    [
        ("deepseek_v2", True, "lora"),
        ("gpt2", False, "lora"),
        ("llama", False, "full"),
        ("mixtral", True, "full"),
        ("t5-gated", True, "full"),
    ],
)
def test_it_does_not_depend_on_when_python_frees_an_object(name, checkpointing, method):
    """Every frame is kept, and whatever its locals were at each of its lines."""
    kept = []

    def keep(frame, *_):
        kept.append((frame, list(frame.f_locals.values())))
        return keep

    plain = lived(model(name), checkpointing, method)
    before = sys.gettrace()
    sys.settrace(keep)
    try:
        traced = lived(model(name), checkpointing, method)
    finally:
        sys.settrace(before)

    assert len(kept) > 10_000
    assert traced == plain


def test_kept_grows_with_blocks_and_not_with_checkpoints_beyond_their_inputs():
    """A block under checkpointing keeps its input: hidden size, 2 bytes."""
    small = attrs.evolve(model("llama"), layers=4)
    large = attrs.evolve(small, layers=5)

    def kept(shape):
        return activations(shape, precision="bf16", attention="flash", seq_len=100, checkpointing=True).kept[1]

    assert kept(large) - kept(small) == 100 * small.hidden_size * 2


def test_weight_gradients_of_all_blocks_are_those_of_all_weights():
    """16-bit: two bytes for every parameter; at the end of backward all of them have been handed over or are fresh."""
    from dsgen.families.parameters import parameter_count

    shape = model("llama")
    found = activations(shape, precision="bf16", attention="flash", seq_len=64)

    assert max(moment.gradients + moment.fresh for moment in found.backward) == 2 * parameter_count(shape)


@pytest.mark.parametrize(("zero3", "item"), [(False, 2), (True, 4)])
def test_a_dropout_keeps_what_each_adapter_reads_once_more_and_a_mask(zero3, item):
    """In the adapters' type; without one, those of a norm's readers keep one output, in fp32 each its own copy."""
    shape = model("llama")

    def kept(drops):
        adapted = activations(
            shape, precision="bf16", attention="flash", seq_len=64, method="lora", zero3=zero3, drops=drops
        )
        return adapted.blocks[-1].kept[1]

    read = 6 * shape.hidden_size + shape.ffn_size
    once = read if zero3 else 2 * shape.hidden_size + shape.ffn_size
    assert kept(True) - kept(False) == 64 * (item * (read - once) + read)


def test_whoever_leaves_settings_out_asks_as_a_training_that_says_nothing():
    said = {name: one.default for name, one in inspect.signature(activations).parameters.items()}
    wishes = {field.name: field.default for field in attrs.fields(Training)}

    both = {name: (said[name], wishes[name]) for name in ("method", "chunked_loss", "lora_rank", "lora_targets")}
    assert {name for name, (here, there) in both.items() if here != there} == set()


@pytest.mark.parametrize("wish", ["drops", "embeddings", "lora_rank"])
def test_without_adapters_what_is_said_of_them_changes_nothing(wish):
    asked = {"precision": "bf16", "attention": "flash", "seq_len": 64}

    assert activations(model("llama"), **asked, **{wish: 3}) == activations(model("llama"), **asked)


@pytest.mark.parametrize("name", ["deepseek_v2", "llama"])
def test_when_backward_comes_to_a_block_those_behind_it_keep_nothing(name):
    """Whatever kinds they are of: dense and sparse ones keep different sizes. Its own goes in its course."""
    found = activations(model(name), precision="bf16", attention="eager", seq_len=64)
    kept = [run.kept[1] for run in found.blocks for _ in range(run.repeats)]
    most: dict[int, int] = {}
    for moment in found.backward:
        if moment.where == "block":
            most[moment.blocks] = max(most.get(moment.blocks, 0), moment.activations[1])

    assert {0, len(kept) - 1} <= set(most)
    for behind, size in most.items():
        there = len(kept) - behind
        assert sum(kept[: there - 1]) < size - found.tables[1] <= sum(kept[:there])


@pytest.mark.parametrize(("checkpointing", "again"), [(False, 1), (True, 0)])
def test_forward_counts_the_embedding_s_output_unless_the_first_block_keeps_it(checkpointing, again):
    """Hugging Face's forward refers to it until its end; a checkpoint keeps it, Llama's norm only a copy in fp32."""
    found = activations(
        model("llama"), precision="bf16", attention="flash", seq_len=64, checkpointing=checkpointing, method="full"
    )
    (run,), output = found.blocks, 64 * model("llama").hidden_size * 2

    def most(block):
        return max(
            one.activations[1] + one.temporaries[1]
            for one in found.forward
            if (one.where, one.blocks) == ("block", block)
        )

    assert most(run.repeats - 1) - most(0) == (run.repeats - 1) * run.kept[1] + again * output


def test_t5_s_feed_forward_is_gathered_with_the_weight_whose_type_it_reads():
    """`wo.weight.dtype` is asked for before the layer runs: it stays while the part around it runs."""
    found = modules(model("t5-gated"), "full", 0, (), 1)
    parts = [part for _, part in found.parts]

    around = [one for part in parts for one in part if one.name.endswith(LENDING)]
    inside = [one for part in parts for one in part if one.name.endswith(f"{LENDING}.wo")]
    assert len(around) == len(inside) > 0
    assert [one.tensors for one in around] == [one.tensors[:1] for one in inside]
    assert all(one.tensors[0].read for one in around)


@pytest.mark.parametrize(
    ("name", "last"), [("gpt_bigcode", "mlp.dropout"), ("phi", "resid_dropout"), ("starcoder2", "mlp")]
)
def test_a_dropout_that_ends_a_checkpointed_block_asks_for_its_second_forward_where_it_drops(name, last):
    """Else it hands on what it got, and the last module with a tensor asks."""
    asking = {
        drops: modules(attrs.evolve(model(name), dropout=drops), "full", 0, (), 1).asking for drops in (True, False)
    }

    assert asking == {True: last, False: None}


@pytest.mark.parametrize("targets", [(), ("nothing",), ("embed_tokens",)])
def test_targets_that_name_no_matrix_are_refused_in_words(targets):
    shape = model(next(name for name in benchmark()["MODELS"] if benchmark()["MODELS"][name]["model_type"] == "llama"))
    asked = {"precision": "bf16", "attention": "flash", "seq_len": 64, "method": "lora"}

    with pytest.raises(DsgenError, match="Valid: all-linear, q_proj, k_proj"):
        activations(shape, **asked, lora_targets=targets)
    assert activations(shape, **asked, lora_targets=("q_proj",)).kept[1] > 0


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("mixtral", {"drops": True}, "lora_dropout beside adapters of all-linear; peft has no dropout"),
        ("llama", {"lora_targets": ("lm_head",), "chunked_loss": True}, "chunked_loss beside adapters of lm_head"),
        ("llama", {"lora_targets": ("lm_head",), "embeddings": True}, "lora_train_embeddings beside adapters"),
    ],
)
def test_adapters_that_the_table_of_constraints_refuses_are_refused(name, more, words):
    shape = model(next(one for one in benchmark()["MODELS"] if benchmark()["MODELS"][one]["model_type"] == name))
    shape = attrs.evolve(shape, tied_embeddings=False)
    asked = {"precision": "bf16", "attention": "flash", "seq_len": 64, "method": "lora"}

    with pytest.raises(DsgenError, match=words):
        activations(shape, **asked, **more)
    assert activations(shape, **asked, **{**more, "lora_targets": ("q_proj",)}).kept[1] > 0
