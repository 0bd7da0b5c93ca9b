"""One optimizer step: its named parts, what hides behind compute, and the speed that makes.

A step is what its kernels, collectives and copies take (dsgen.kernels), in DeepSpeed's order: the host launches ahead
of the GPU, parameters arrive ahead of their use, gradients leave behind it.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from dsgen.cost.activation_copies import copied_seconds
from dsgen.cost.communication import NO_COLLECTIVES, Collectives, collectives
from dsgen.cost.handling import GATHERS, NO_HANDLING, beyond, handling
from dsgen.cost.layout_work import CostKey, layout_work
from dsgen.cost.micro_batches import Pass, node_rates, passes
from dsgen.cost.offload import NO_OFFLOAD, offload
from dsgen.cost.queued_passes import Queues, hidden_copies, with_sums
from dsgen.cost.sample_lengths import FEW_TOKENS, LEAST_SPREAD, MOST_SPREAD, computed_length
from dsgen.cost.tensor_parallel import tensor_parallel_calls, tensor_parallel_seconds
from dsgen.jobs.job import Job
from dsgen.jobs.samples import SPREAD, tokens_of_sequence, varied_mean
from dsgen.kernels.measured_facts import DERIVED, STANDS_IN, TCP
from dsgen.kernels.rates import over_tcp
from dsgen.strategies.strategies import Strategy, best_precision

__all__ = ["StepCost", "cost", "derived", "run_name", "speed_interval", "stand_in"]

# Measured speeds by this model's, of which nine in ten lie between: 92 % of the published runs on which it was chosen,
# 91 % of those held back (docs/speed.md).
LOW, HIGH = 0.80, 1.25
# The same where one run of a machine was measured and another is asked for: what the card, its kernels and its host
# have in common is out of it, what differs between runs stays. Where both are of one model on as many GPUs, and so
# differ in strategy, batch or length alone, nine in ten pairs of published runs of one source lie between, of those
# held back too (docs/speed.md). Of other models or numbers of GPUs the middle is nearer, and the interval no narrower.
LOW_MEASURED, HIGH_MEASURED = LOW, HIGH
LOW_ALIKE, HIGH_ALIKE = 0.83, 1.20
# What the host of a node may take of what is said, for no profile says which one stands beside a GPU, or what else it
# does. Fast: a layer of Hugging Face's Llama takes 0.51 ms forward beside a B200 (38 kernels, 17 views; stas00/
# ml-engineering, 1B, eager), which HOST of dsgen.kernels makes 0.91 with nine modules. Slow: adapters of an 8B took
# 0.43 s a step on one day and 0.32 on another, on machines of one kind, and steps of one run differed as much.
FAST_HOST, SLOW_HOST = 0.56, 1.34
ROUNDING = 1e-9  # share by which sums of seconds differ that are the same: floats keep 16 digits, sums here lose 3


class StepCost(NamedTuple):
    """Time of one optimizer step.

    Attributes:
        parts: Part -> seconds; they add up to the step. Host, communication, tensor parallelism and offload count only
            what nothing hides.
        hidden_seconds: Communication between replicas that runs behind compute.
        tokens: Tokens that step trains on, all GPUs.
        gpus: GPUs.
    """

    parts: Mapping[str, float]
    hidden_seconds: float
    tokens: int
    gpus: int

    @property
    def seconds(self) -> float:
        """The whole step."""
        total = 0.0
        for part in self.parts.values():  # not sum(): from Python 3.12 on it rounds differently
            total += part
        return total

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Speed as people compare it."""
        return self.tokens / self.seconds / self.gpus

    @property
    def communication_share(self) -> float:
        """Exposed communication, of the step."""
        return (self.parts["communication"] + self.parts["tensor parallelism"]) / self.seconds

    def less_than(self, other: "StepCost") -> dict[str, float]:
        """Seconds by which each part takes less than another step's for these tokens; negative where it takes more."""
        share = self.tokens / other.tokens
        return {name: share * other.parts.get(name, 0.0) - seconds for name, seconds in self.parts.items()}


def cost(job: Job, strategy: Strategy, *, deepspeed: bool = True) -> StepCost:
    """The time of one optimizer step under a strategy; on a machine that was measured, in proportion to that.

    Args:
        job: The job.
        strategy: The strategy.
        deepspeed: Whether DeepSpeed runs it; what others measured without it is compared without what is its own.
    """
    if job.unsure.cast and strategy.precision == "fp32":  # torch.autocast: products, gathers and reductions in 16 bits
        strategy = attrs.evolve(strategy, precision=best_precision(job))
    computed, ratio = _cost(CostKey(job, strategy, deepspeed, _facts(job), strategy)), job.hardware.step_time_ratio
    if ratio is None:
        return computed
    parts = {name: seconds * ratio for name, seconds in computed.parts.items()}
    return computed._replace(parts=parts, hidden_seconds=computed.hidden_seconds * ratio)


def _facts(job: Job) -> tuple[object, ...]:
    """What the cost of a strategy depends on, of its job."""
    shapes = (job.model, job.training, job.hardware, job.network)
    lengths, ranks = (job.seq_len, job.target_len), (job.world, job.gpus_per_node)
    return (*shapes, *lengths, *ranks, job.narrow, job.unsure, job.foreach, job.version)


def run_name(job: Job) -> str:
    """What a measured run is known by, beside the machine: "7b on 8 GPUs"."""
    gpus = f"{job.world} GPU{'s' if job.world > 1 else ''}"
    over = f" over {job.names.get('network', 'a network')}" if job.nodes > 1 else ""
    return f"{job.names.get('model', 'a model')} on {gpus}{over}"


def speed_interval(job: Job, strategy: Strategy | None = None, *, deepspeed: bool = True) -> tuple[float, float]:
    """The least and the most that a measured speed plausibly is, by the one that is said.

    Where the host bounds a step it reaches to the speeds with hosts that take SLOW_HOST and FAST_HOST of what is said,
    unless the machine was measured with this run. Over TCP it reaches to the speeds with as little and as much of a
    network as others measured. Where another GPU's kernels stand in for those that nobody measured, it lies around the
    speeds with kernels as slow and as fast as a GPU's are by such: what waits for a network is as sure as ever. Where
    nobody measured a kernel of its whole family but products, so with all of them. Where samples have several lengths
    it reaches to those of the least and most spread that a set of them has; where nobody knows the mean of packed ones,
    to attention that sees next to nothing.
    A single measurement that lies outside of the interval itself has a cause that nobody knows, which other runs may
    not have: then the interval reaches to where they would be without it.

    Args:
        job: The job.
        strategy: What is said to be so fast; None for what hosts have no part in.
        deepspeed: As of `cost`.
    """
    ratio, runs = job.hardware.step_time_ratio, job.hardware.measured_runs or ()
    if ratio is not None and set(runs) == {run_name(job)}:
        low, high = LOW_ALIKE, HIGH_ALIKE
    else:
        low, high = (LOW, HIGH) if ratio is None else (LOW_MEASURED, HIGH_MEASURED)
        if strategy is not None:
            low = min(low, _beside_another_host(job, strategy, deepspeed, SLOW_HOST))
            high = max(high, _beside_another_host(job, strategy, deepspeed, FAST_HOST))
    if strategy is not None and (shares := _with_other_samples(job, strategy, deepspeed)):
        low, high = low * shares[0], high * shares[1]
    if ratio is None:
        if strategy is not None and job.nodes > 1 and over_tcp(job.network):
            slow, fast = _over_another_tcp(job, strategy, deepspeed)
            low, high = min(low, slow), max(high, fast)
        slow, fast = _with_own_kernels(job, strategy, deepspeed)
        return low * slow, high * fast
    if len(runs) > 1 or LOW <= 1 / ratio <= HIGH:
        return low, high
    return low * min(1.0, ratio), high * max(1.0, ratio)


def _beside_another_host(job: Job, strategy: Strategy, deepspeed: bool, times: float) -> float:
    """The speed with a host that takes so many times as long, by the one that is said."""
    dispatch = times * node_rates(job.hardware, job.network).dispatch_seconds
    other = attrs.evolve(job, hardware=attrs.evolve(job.hardware, dispatch_seconds=dispatch))
    return cost(job, strategy, deepspeed=deepspeed).seconds / cost(other, strategy, deepspeed=deepspeed).seconds


def _over_another_tcp(job: Job, strategy: Strategy, deepspeed: bool) -> tuple[float, float]:
    """The speeds over TCP with the least and the most of the network that was measured, by the one that is said."""
    said = cost(job, strategy, deepspeed=deepspeed).seconds
    speeds = []
    for share in TCP.share_range if job.gpus_per_node > 1 else TCP.alone_range:
        network = attrs.evolve(job.network, bandwidth_bytes_per_second=share * job.network.bandwidth_bytes_per_second)
        speeds.append(said / cost(attrs.evolve(job, network=network), strategy, deepspeed=deepspeed).seconds)
    return speeds[0], speeds[1]


def _with_other_samples(job: Job, strategy: Strategy, deepspeed: bool) -> tuple[float, float] | None:
    """The least and most speed by the one that is said, with samples of other lengths; None where all are alike."""
    training = job.training

    def seconds(**wishes: Any) -> float:
        other = attrs.evolve(job, training=attrs.evolve(training, **wishes))
        return cost(other, strategy, deepspeed=deepspeed).seconds

    if training.packing:
        few = min(FEW_TOKENS, job.seq_len)
        return None if training.mean_len else (1.0, max(1.0, seconds() / seconds(mean_len=few)))
    if varied_mean(training) is None:
        return None
    # Of samples end to end a token sees its own alone, as where sequences of these lengths are packed.
    alike: dict[str, Any] = {"packing": True, "padding_free": False} if training.padding_free else {"mean_len": None}
    lengths = [computed_length(job, strategy, spread) for spread in (SPREAD, MOST_SPREAD, LEAST_SPREAD)]
    said, slow, fast = (seconds(seq_len=length, **alike) for length in lengths)
    return min(1.0, said / slow), max(1.0, said / fast)


def stand_in(job: Job) -> str | None:
    """The profile whose kernels stand in for those of a GPU; None where it has its own, or a step of it was timed."""
    name = node_rates(job.hardware, job.network).nearest
    known = job.hardware.step_time_ratio is not None or name == job.names.get("hardware")
    return None if known else name


def derived(job: Job) -> bool:
    """Whether kernels are counted by a datasheet alone, for nobody measured a GPU of the family, and no step either."""
    family = node_rates(job.hardware, job.network).architecture
    return job.hardware.step_time_ratio is None and family in DERIVED


def _with_own_kernels(job: Job, strategy: Strategy | None, deepspeed: bool) -> tuple[float, float]:
    """The least and most speed that a GPU may have with kernels of its own, by the one with those that stand in."""
    guessed = derived(job)
    if stand_in(job) is None and not guessed:
        return 1.0, 1.0
    if strategy is None:
        return STANDS_IN
    said, lent = cost(job, strategy, deepspeed=deepspeed).seconds, node_rates(job.hardware, job.network)
    speeds = []
    for share in STANDS_IN:
        memory = share * lent.memory_efficiency if guessed else job.hardware.memory_efficiency
        product = share * lent.product_efficiency
        hardware = attrs.evolve(job.hardware, product_efficiency=product, memory_efficiency=memory)
        speeds.append(said / cost(attrs.evolve(job, hardware=hardware), strategy, deepspeed=deepspeed).seconds)
    return speeds[0], speeds[1]


@functools.lru_cache(maxsize=4096)
def _cost(asked: CostKey) -> StepCost:
    job, strategy = asked.job, asked.strategy
    layout, run = layout_work(asked), passes(job, strategy)
    numbers, node, buckets, overlaps = layout.numbers, layout.rates, layout.buckets, layout.overlaps
    moved = collectives(job, strategy, deepspeed=asked.deepspeed)
    away = offload(job, strategy, node, numbers, layout.host_step)
    copied = copied_seconds(job, strategy, node, run.order)
    own_work = NO_HANDLING
    if asked.deepspeed:
        own_work = handling(job, strategy, node, numbers, moved.copied, moved.together, buckets, layout.host)
        if strategy.stage == GATHERS and strategy.buffers.overlap_comm:
            own_work = own_work._replace(reduced=own_work.reduced * _beside_kernels(run.order, moved.again))
    repeats = strategy.accumulation
    queues = Queues(strategy, layout.shares, own_work, node.collective_dispatch_seconds)
    handled = own_work.reduced * (repeats if strategy.stage >= 2 else 1)
    handled += own_work.gathered * repeats + own_work.summed * (repeats - 1)
    order, summed = run.order, tensor_parallel_seconds(job, strategy) / repeats
    # At stage 3 what is alone is asked of tensor parallelism only.
    together = alone = queues.passed(order, NO_COLLECTIVES) if summed or strategy.stage < GATHERS else 0.0
    if summed:
        order = with_sums(order, summed, node.collective_dispatch_seconds * tensor_parallel_calls(job, strategy))
        together = queues.passed(order, NO_COLLECTIVES)
    nearby = together if moved is NO_COLLECTIVES and together else queues.passed(order, moved)
    fetches = strategy.stage == GATHERS and away is not NO_OFFLOAD  # below, gradients that leave are waited for
    everything = queues.passed(order, moved, away) if fetches else nearby
    work = repeats * (run.products + run.attention + run.memory) + handled
    if strategy.stage == GATHERS:  # collectives and kernels take turns: what is left is the host's
        exposed = min(_communicated(strategy, moved), max(0.0, nearby - work))
        waited = max(0.0, nearby - work - exposed)
    else:
        exposed, waited = max(0.0, nearby - together), max(0.0, alone - work)
    idle = layout.step.idle
    often = repeats if strategy.stage >= 2 else 1  # passes whose buckets leave
    taken = often * away.gradients if strategy.stage < GATHERS else 0.0
    if taken and overlaps and job.world == strategy.tp:
        taken -= often * hidden_copies(run.order, buckets, away.gradients)
    if own_work.emptied:
        idle += beyond(job, often * own_work.emptied, taken + own_work.normed)
    return StepCost(
        parts={
            "matrix products": repeats * run.products,
            "attention": repeats * run.attention,
            "memory traffic": repeats * run.memory + handled + own_work.normed,
            "host": waited + idle,
            "communication": exposed + moved.update,
            "tensor parallelism": together - alone,
            "offload": max(0.0, everything - nearby) + taken + away.step + repeats * copied,
            "optimizer": layout.step.gpu,
        },
        hidden_seconds=_left(_communicated(strategy, moved), exposed),
        tokens=strategy.global_batch * tokens_of_sequence(job),
        gpus=job.world,
    )


def _beside_kernels(order: Sequence[Pass], gathered: float) -> float:
    """Share of what runs on a stream of its own in backward that is beside kernels, and not beside what is gathered."""
    backward = 0.0
    for one in order:
        backward += 0.0 if one.forward else one.repeats * one.device
    return backward / (backward + gathered) if gathered else 1.0


def _communicated(strategy: Strategy, moved: Collectives) -> float:
    """Seconds of collectives between replicas in all micro-batches, hidden or not."""
    reduced = strategy.accumulation if strategy.stage >= 2 else 1
    return strategy.accumulation * (moved.gather + moved.again) + reduced * moved.reduce


def _left(whole: float, taken: float) -> float:
    """What is left of some seconds; nothing where only the rounding of their sums is."""
    left = whole - taken
    return left if left > ROUNDING * whole else 0.0
