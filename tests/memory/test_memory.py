"""Memory: hand counts of the ZeRO papers, parts that add up, and the shapes of the curves."""

from __future__ import annotations

import pytest

import dsgen
from dsgen.families.parameters import parameter_count
from dsgen.memory import Verdict, estimate, parts, verdict
from dsgen.strategies.buffers import Buffers, choose, even, nice
from dsgen.strategies.strategies import Strategy

BUFFERS = Buffers(
    reduce_bucket=2,
    prefetch=2,
    persistence=0,
    max_live=2,
    max_reuse=2,
    sub_group=1_000_000_000,
    swap_buffers=12,
    overlap_comm=False,
)


def strategy(stage=0, **changes):
    made = {
        "stage": stage,
        "offload_optimizer": "none",
        "offload_param": "none",
        "tp": 1,
        "checkpointing": False,
        "precision": "bf16",
        "micro_batch": 1,
        "accumulation": 1,
        "global_batch": 8,
        "buffers": BUFFERS,
    }
    return Strategy(**{**made, **changes})


def highest(job, chosen, phase, buffers=BUFFERS):
    """The parts of a phase's highest moment, in bytes."""
    found = parts(job, chosen, buffers, chosen.accumulation)
    moments = [moment for moment in found.moments if moment.phase == phase]
    best = max(moments, key=lambda moment: moment.total(chosen.micro_batch))
    return {name: fixed + each * chosen.micro_batch for name, (fixed, each) in best.parts.items()}


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "states"),
    [(0, 2, 2, 12), (1, 2, 2, 12 / 64), (2, 2, 2 / 64, 12 / 64), (3, 2 / 64, 2 / 64, 12 / 64)],
)
def test_states_are_those_of_the_zero_paper(make_job, stage, weights, gradients, states):
    """Table 1 of the ZeRO paper (arXiv 1910.02054): bytes per parameter at a data-parallel degree of 64."""
    job = make_job(cluster={"nodes": 8}, training={"seq_len": 128})
    count = parameter_count(job.model)

    found = parts(job, strategy(stage), BUFFERS, 1)
    last = [moment.parts for moment in found.moments if moment.phase == "step"][-1]
    most = max(moment.parts["gradients"][0] for moment in found.moments if moment.phase == "backward")

    assert last["weights"][0] == pytest.approx(weights * count, rel=1e-6)
    assert last["fp32 master weights"][0] + last["optimizer states"][0] == pytest.approx(states * count, rel=1e-6)
    fresh = 2 * 32000 * 4096  # the last one made, the embedding's, waits outside of any share
    whole = 2 * 32000 * 4096 if stage in (1, 2) else 0  # they copy the whole tensors that reach into a rank's share
    assert gradients * count <= most <= gradients * count * (1 + 1e-6) + whole + (fresh if stage > 1 else 0)


def test_the_node_s_ram_is_fullest_while_weights_are_cast_on_their_way_to_the_gpu(make_job):
    """At stage 3 torch casts a group of them into a tensor of its own: 2 bytes an element beside the 18 that stay."""
    job = make_job(training={"seq_len": 128})
    own = 8 * -(-parameter_count(job.model) // 8)  # of all ranks of the node
    offloaded = strategy(3, offload_optimizer="cpu")

    near, far = (
        parts(job, one, BUFFERS, 1).host
        for one in (offloaded, strategy(3, offload_optimizer="cpu", offload_param="cpu"))
    )
    groups = parts(job, offloaded, BUFFERS._replace(sub_group=10_000_000), 1).host

    assert (near.phase, far.phase) == ("step", "training")
    assert near.peak - sum(near.phases["training"].values()) == pytest.approx(2 * own, rel=1e-3)
    # The embedding's share is a group by itself, larger than the 10 million; the last is the head's, and a norm's.
    assert groups.phases["step"]["temporaries"] == pytest.approx(8 * 2 * (32000 * 4096 // 8), rel=1e-3)


def test_offload_moves_states_to_the_host(make_job):
    """18 bytes a parameter leave the GPUs: master, two moments, fp32 gradient, 16-bit gradient."""
    job = make_job(training={"seq_len": 128})
    count = parameter_count(job.model)

    found = parts(job, strategy(3, offload_optimizer="cpu"), BUFFERS, 1)

    assert sum(found.host.phases["training"].values()) == pytest.approx(18 * count, rel=1e-4)
    assert all(moment.parts.get("optimizer states", (0, 0)) == (0, 0) for moment in found.moments)
    assert found.host.nvme == {}


def test_nvme_holds_what_the_host_does_not(make_job):
    job = make_job()
    count = parameter_count(job.model)

    found = parts(job, strategy(3, offload_optimizer="nvme", offload_param="nvme"), BUFFERS, 1).host

    assert found.nvme["optimizer states"] == pytest.approx(16 * count, rel=1e-4)
    assert found.nvme["weights"] == pytest.approx(2 * count, rel=1e-4)


@pytest.mark.parametrize("place", ["cpu", "nvme"])
def test_lion_takes_as_much_of_the_host_as_adam(make_job, place):
    """DeepSpeedCPULion has a second moment too, of zeros; on the GPU FusedLion has one."""
    lion, adam = (make_job(training={"optimizer": name}) for name in ("Lion", "AdamW"))

    hosts = [parts(job, strategy(3, offload_optimizer=place), BUFFERS, 1).host for job in (lion, adam)]
    gpus = [highest(job, strategy(3), "step")["optimizer states"] for job in (lion, adam)]

    assert hosts[0] == hosts[1]
    assert 2 * gpus[0] == gpus[1]


def test_tensor_parallelism_shards_blocks_and_head(make_job):
    job = make_job()
    whole = highest(job, strategy(1), "backward")["weights"]
    halved = highest(job, strategy(1, tp=2), "backward")["weights"]

    embedding = 2 * 32000 * 4096  # stays whole, 2 bytes an element; Llama's head is split
    norms = 2 * (2 * 32 + 1) * 4096

    assert halved == (whole - embedding - norms) // 2 + embedding + norms


def test_accumulation_keeps_gradients_below_stage_3(make_job):
    """Every forward pass but the first of a step finds gradients: all of them, or at stage 2 this rank's own."""
    job = make_job(training={"seq_len": 128})
    count = parameter_count(job.model)

    def gradients(stage, steps):
        return highest(job, strategy(stage, accumulation=steps), "forward")["gradients"]

    assert [gradients(stage, 1) for stage in (0, 1, 2)] == [0, 0, 0]
    assert gradients(0, 2) == gradients(1, 2) == 2 * count
    assert gradients(2, 2) == pytest.approx(2 * count / 8, rel=0.1)
    assert gradients(3, 2) == gradients(3, 1) == pytest.approx(2 * count / 8, rel=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_parts_add_up_to_the_peak(make_job, stage, checkpointing):
    job = make_job()
    chosen = strategy(stage, checkpointing=checkpointing, micro_batch=3, buffers=choose(job, stage, 1))

    found = estimate(job, chosen)

    for place in (found.gpu, found.host, found.nvme):
        assert sum(place.parts.values()) == place.peak_bytes
        assert place.low_bytes <= place.peak_bytes <= place.high_bytes


def test_memory_falls_with_the_stage_and_with_checkpointing_and_grows_with_the_batch(make_job):
    job = make_job()

    def peak(stage, **changes):
        chosen = strategy(stage, **changes)
        return parts(job, chosen, BUFFERS, 1).peak(chosen.micro_batch)

    job = make_job(training={"seq_len": 128})
    assert peak(0) > peak(1) > peak(2) > peak(3) > peak(3, offload_optimizer="cpu")
    job = make_job()
    assert peak(2) == peak(1)  # at 4096 tokens both peak before the first gradient is made
    assert peak(2) > peak(2, checkpointing=True)
    assert peak(2, micro_batch=4) - peak(2, micro_batch=3) == peak(2, micro_batch=3) - peak(2, micro_batch=2)


def test_eager_attention_costs_a_square_and_flash_does_not(make_job):
    def activations(kernel, tokens):
        job = make_job(training={"seq_len": tokens, "attention": kernel})
        return highest(job, strategy(2), "forward")["activations"]

    assert activations("flash", 4096) == pytest.approx(2 * activations("flash", 2048), rel=1e-3)
    assert activations("eager", 4096) > 3 * activations("eager", 2048)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1, 9, Verdict.FITS), (9, 11, Verdict.UNCERTAIN), (11, 12, Verdict.DOES_NOT_FIT)]
)
def test_verdicts(low, high, expected):
    assert verdict(low, high, 10) is expected


def test_buffers_are_even_readable_and_within_their_share(make_job):
    for model in ("125m", "7b", "405b"):
        job = make_job(model=model)
        found = choose(job, 3, 1)
        assert found.reduce_bucket % 2 == 0
        assert 2 * found.reduce_bucket <= 0.02 * job.hardware.usable_memory_bytes
        assert found.max_live >= found.prefetch


@pytest.mark.parametrize(("elements", "expected"), [(1, 2), (99, 98), (123456, 120000), (16777216, 16000000)])
def test_nice_sizes(elements, expected):
    assert nice(elements) == expected


def test_even_never_reaches_zero():
    assert [even(n) for n in (0, 1, 2, 3)] == [2, 2, 2, 2]


def test_adagrad_makes_two_fp32_copies_of_all_gradients_in_its_step(make_job):
    """torch's lists of square roots and of updates, beside its one state an element."""
    plain = strategy(0, precision="fp32")
    of = {name: make_job(training={"seq_len": 128, "optimizer": name}) for name in ("SGD", "Adagrad")}
    count = parameter_count(of["SGD"].model)

    taken = {name: sum(highest(job, plain, "step").values()) for name, job in of.items()}

    assert taken["Adagrad"] - taken["SGD"] == 4 * count + 2 * 4 * count


@pytest.mark.parametrize(("optimizer", "phase"), [("AdamW", "training"), ("SGD", "load")])
def test_ram_has_processes_and_what_torch_holds_of_page_locked_memory(make_job, optimizer, phase):
    """2 GiB a rank; torch rounds pinned memory up to a power of two, but nothing is pinned yet while a model loads."""
    job = make_job(training={"optimizer": optimizer})
    chosen = strategy(2, offload_optimizer="cpu")
    counted = parts(job, chosen, BUFFERS, 1)

    found = estimate(job, chosen, counted).host

    assert (found.phase, counted.host.beyond > 0) == (phase, True)
    beyond = counted.host.beyond if phase == "training" else 0
    assert found.high_bytes == found.needed_bytes == found.peak_bytes + beyond + 8 * 2 * 2**30
    assert found.low_bytes == found.peak_bytes


@pytest.mark.parametrize(
    ("wishes", "simulated", "more"),
    [
        ({"zero_stage": 1, "offload": "optimizer", "accumulation": 2}, 1_579_546_880, 0),
        ({"zero_stage": 2, "offload": "optimizer", "accumulation": 2}, 1_722_033_408, 0.012),  # of some norms
        ({"zero_stage": 3, "offload": "optimizer"}, 905_654_016, 0),
        (
            {"zero_stage": 3, "offload": "all"},
            2_312_832_000,
            0,
        ),  # and the shares that were flattened, a tied head's too
        ({"zero_stage": 3, "offload": "all", "method": "lora"}, 401_667_328, 0),
        ({"zero_stage": 3, "offload": "nvme"}, 1_855_309_056, 1e-5),
    ],
    ids=["stage 1", "stage 2", "stage 3", "parameters", "adapters", "nvme"],
)
def test_what_torch_holds_beyond_page_locked_tensors_is_what_the_engine_does(wishes, simulated, more):
    """Simulated, DeepSpeed 0.19.8: a rank's blocks of page-locked memory behind two steps, less the tensors in them."""
    made = dsgen.plan({"hw": "a100-40g", "model": "qwen2.5-1.5b", "gpus": 4, "micro_batch": 1, **wishes})
    chosen = made.chosen.strategy

    found = parts(made.job, chosen, chosen.buffers, chosen.accumulation).host.beyond / 4

    assert simulated - 64 <= found <= simulated * (1 + more) + 64


@pytest.mark.parametrize(("pipelined", "simulated"), [(True, 35_648_428_132), (False, 13_680_309_348)])
def test_the_first_step_of_an_optimizer_on_nvme_makes_its_moments_in_ram(pipelined, simulated):
    """Simulated, 0.19.8: a pipeline keeps all until the second step reads them, else one group's lie there."""
    keys = {f"zero_optimization.offload_optimizer.pipeline_{way}": pipelined for way in ("read", "write")}
    wishes = {"hw": "a100-40g", "model": "qwen2.5-1.5b", "gpus": 4, "micro_batch": 1, "zero_stage": 3}
    made = dsgen.plan({**wishes, "offload": "nvme", "set": keys})
    chosen = made.chosen.strategy

    found = parts(made.job, chosen, chosen.buffers, chosen.accumulation).host

    assert chosen.buffers.pipelined is pipelined
    assert sum(found.stepping.values()) == pytest.approx(simulated, rel=0.005)
    assert found.stepping_phase == "step"


@pytest.mark.parametrize(("memory", "pipelined"), [("2304 GiB", True), ("1 TiB", False)])
def test_nothing_is_pipelined_where_ram_has_no_room_for_the_moments(memory, pipelined):
    """70B on a node of 8: 526 GiB of moments."""
    made = dsgen.plan({"hw": "a100-40g", "model": "llama-3.1-70b", "gpus": 8, "zero_stage": 3, "offload": "nvme",
                       "set": {"hardware.host_memory": memory}})  # fmt: skip
    config = dsgen.render(made)["zero_optimization"]["offload_optimizer"]

    assert made.chosen.strategy.offload_optimizer == "nvme"
    assert made.chosen.sure
    assert {config["pipeline_read"], config["pipeline_write"]} == {pipelined}
    assert config["buffer_count"] == (12 if pipelined else 4)


def test_memory_that_is_not_page_locked_is_not_rounded_up(make_job):
    job = make_job()
    chosen = strategy(3, offload_optimizer="cpu", buffers=BUFFERS._replace(locked=False))

    assert parts(job, chosen, chosen.buffers, 1).host.beyond == 0


@pytest.mark.parametrize(("model", "full"), [("7b", False), ("70b", True)])
def test_of_parameters_on_nvme_no_rank_keeps_more_than_max_in_cpu_in_ram(make_job, model, full):
    """A billion elements of 2 bytes."""
    job = make_job(model=model)
    ram = parts(job, strategy(3, offload_optimizer="cpu", offload_param="nvme"), BUFFERS, 1).host.phases["training"]

    share = 2 * parameter_count(job.model)
    assert ram["weights"] == pytest.approx(8 * 2 * 10**9 if full else share, rel=1e-3)
    assert ram["weights"] <= share


def test_with_the_optimizer_in_ram_the_last_norm_of_stage_1_is_taken_beside_all_large_gradients(make_job):
    """In float64, of the largest tensor of a rank's share: the embedding."""
    buffers = BUFFERS._replace(overlap_comm=True)
    job = make_job(training={"seq_len": 128})

    found = highest(job, strategy(1, offload_optimizer="cpu", checkpointing=True, buffers=buffers), "backward", buffers)

    assert found["temporaries"] == 8 * 32000 * 4096
    assert found["gradients"] > 2 * 0.8 * parameter_count(job.model)
