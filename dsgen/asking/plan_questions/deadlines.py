"""How long training takes on some GPUs, and the fewest GPUs that train so many tokens before a deadline."""

import bisect
import math
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from dsgen.asking.memory_questions import for_program
from dsgen.asking.plan_questions.amounts import tokens_of, tokens_text
from dsgen.asking.plan_questions.variations import varied
from dsgen.cost.steps import speed_interval
from dsgen.jobs.assembly import SPREAD, assemble
from dsgen.jobs.fabrics import NO_NETWORK, counted_anew
from dsgen.jobs.job import Job
from dsgen.jobs.samples import tokens_of_sequence
from dsgen.jobs.scenarios import Scenario, ScenarioValue, layers
from dsgen.planning.planner import WAITING, Plan, contenders, decide, plan
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import Origin
from dsgen.shapes.limits import MOST_NODES
from dsgen.strategies.wishes import check_wishes

__all__ = [
    "FASTER",
    "Budget",
    "Fleet",
    "MetBy",
    "fewest_gpus",
    "said_tokens",
    "training_time",
    "what_meets",
]

# How much faster a GPU may be among more of its kind, by a larger micro-batch or less offload: sizes that are too few
# even then are passed by.
RISE = 2.0
# The network with which another answer is given where GPUs wait for a slower one more than for anything else: one port
# of the slowest InfiniBand that is still sold for training (our choice).
FASTER = "ib-hdr-200g"
_SOURCE = "--gpus auto"
_HOUR = 3600
_UNITS = ((86_400, "days"), (_HOUR, "h"), (60, "min"))


@attrs.frozen(kw_only=True)
class Fleet:
    """Some GPUs, their plan, and how long they train.

    Attributes:
        plan: What they run.
        tokens: Tokens that are trained on.
    """

    plan: Plan
    tokens: int

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.plan.job.world

    @property
    def seconds(self) -> float:
        """Time of training alone: nothing is restarted, evaluated or saved."""
        return self.tokens / (self.plan.chosen.speed * self.gpus)

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most seconds that it plausibly takes."""
        low, high = speed_interval(self.plan.job, self.plan.chosen.strategy)
        return self.seconds / high, self.seconds / low

    @property
    def gpu_hours(self) -> float:
        """Hours of all GPUs together."""
        return self.seconds * self.gpus / _HOUR

    @property
    def price(self) -> float | None:
        """What those hours cost, in the currency of the hardware's price; None where it has none."""
        price = self.plan.job.hardware.price_per_gpu_hour
        return self.gpu_hours * price if price is not None else None


@attrs.frozen(kw_only=True)
class Budget:
    """The fewest GPUs that meet a deadline, with other numbers of them.

    Attributes:
        tokens: Tokens to train on.
        deadline_seconds: The time there is.
        fewest: The fewest that meet it.
        sure: The fewest that meet it even at the slow end of the interval; None where no number does.
        fleets: These and some others, the smallest first; one whole node is among them where the fewest are more.
        faster: The fewest over FASTER, where these wait for a slower network more than for anything else.
    """

    tokens: int
    deadline_seconds: float
    fewest: Fleet
    sure: Fleet | None
    fleets: tuple[Fleet, ...]
    faster: Fleet | None = None


class MetBy(NamedTuple):
    """What would meet a deadline: the fewest GPUs, or why no number of them does; and the fewest over FASTER."""

    fleet: Fleet | None
    refused: str
    faster: Fleet | None = None


def said_tokens(job: Job, step: int | None = None) -> int | None:
    """The tokens of a whole run, as a scenario says them or its steps make them; None where neither is said.

    Args:
        job: What the scenario says.
        step: Tokens that one step trains on; None where other GPUs are sought, which may share another batch.

    Raises:
        DsgenError: Steps are said, of which nobody knows how many tokens each has.
    """
    wishes = job.training
    if wishes.total_tokens is not None:
        return tokens_of(wishes.total_tokens)
    if wishes.total_steps is None:
        return None
    if step is None:
        if wishes.global_batch is None:
            raise mistake(
                f"total_steps is {wishes.total_steps:,}, and no batch is said",
                must="on other GPUs a step may have another batch, and so many steps other tokens",
                todo="Say the batch too (--global-batch 256), or tokens instead of steps (--tokens 300B).",
                code="missing",
            )
        step = wishes.global_batch * tokens_of_sequence(job)
    return wishes.total_steps * step


def training_time(planned: Plan, tokens: int) -> Fleet:
    """How long the GPUs of a plan train.

    Raises:
        DsgenError: Fewer tokens than a step trains on.
    """
    each = planned.chosen.cost.tokens
    if tokens < each:
        sequences = planned.chosen.strategy.global_batch
        raise mistake(
            f"tokens is {tokens:,}",
            must=f"it must be at least {each:,}, which one step of this plan trains on: {sequences:,} sequences",
            todo="Take more tokens, or a smaller step: --global-batch N.",
            code="contradiction",
        )
    return Fleet(plan=planned, tokens=tokens)


def what_meets(scenario: Scenario, tokens: int, deadline_seconds: float, target: str | None = None) -> MetBy:
    """The fewest GPUs that meet a deadline which others miss, or why none do; as `fewest_gpus`."""
    try:
        budget = fewest_gpus(scenario, tokens, deadline_seconds, target)
        return MetBy(budget.fewest, "", budget.faster)
    except DsgenError as error:
        said = "; ".join(filter(None, (error.what, error.must)))
        return MetBy(None, " ".join(filter(None, (f"{said}.", error.todo))))


def fewest_gpus(scenario: Scenario, tokens: int | None, deadline_seconds: float, target: str | None = None) -> Budget:
    """The fewest GPUs that train so many tokens in a time: some of one node, or whole nodes.

    Args:
        scenario: What else is said; it must not say nodes.
        tokens: Tokens to train on; None for those that the scenario says, or its steps and batch make.
        deadline_seconds: The time there is.
        target: The program that trains, where it is known.

    Raises:
        DsgenError: Nothing fits on any number of them, or none of them is fast enough, with the best that is possible;
            or nobody says how many tokens.
    """
    job = for_program(_of_two_nodes(scenario), target)
    check_wishes(job)
    tokens = said_tokens(job) if tokens is None else tokens
    if tokens is None:
        raise mistake("--gpus auto", must="it needs --tokens and --deadline", code="missing",
                      todo="Such as --gpus auto --tokens 300B --deadline 7d.")  # fmt: skip
    sizes = _Sizes(job=job, tokens=tokens, sizes=tuple(_shared(job)))
    need = tokens / deadline_seconds
    fewest = sizes.least(need)
    if fewest is None:
        raise sizes.too_slow(deadline_seconds)
    training_time(fewest.plan, tokens)
    sure = sizes.least(need / speed_interval(job)[0])
    chosen = {fewest.gpus: fewest}
    node = min(fewest.gpus, job.hardware.gpus_per_node)
    others = (sizes.smallest(), sizes.near(fewest.gpus / 2), sizes.near(fewest.gpus * 2), sizes.near(node))
    for other in (sure, *others):
        if other is not None:
            chosen[other.gpus] = other
    fleets = tuple(chosen[gpus] for gpus in sorted(chosen))
    faster = _over_faster(scenario, sizes, fewest, need, target)
    return Budget(
        tokens=tokens, deadline_seconds=deadline_seconds, fewest=fewest, sure=sure, fleets=fleets, faster=faster
    )


def _over_faster(scenario: Scenario, sizes: "_Sizes", fewest: Fleet, need: float, target: str | None) -> Fleet | None:
    """The fewest GPUs over FASTER, where so many wait for a slower network."""
    if fewest.plan.job.nodes == 1 or fewest.plan.chosen.cost.communication_share <= WAITING:
        return None
    job = for_program(_of_two_nodes(varied(scenario, "network", FASTER)), target)
    if job.network.bandwidth_bytes_per_second <= fewest.plan.job.network.bandwidth_bytes_per_second:
        return None
    return _Sizes(job=job, tokens=sizes.tokens, sizes=sizes.sizes).least(need)


@attrs.frozen(kw_only=True, eq=False)
class _Sizes:
    """The plans of one job on other numbers of GPUs, each made when it is asked for.

    Attributes:
        job: The job on any number of nodes.
        tokens: Tokens to train on.
        sizes: Numbers of GPUs: some of one node, then whole nodes; those that share a batch that was said.
        known: Those that were tried.
    """

    job: Job
    tokens: int
    sizes: tuple[int, ...]
    known: dict[int, Fleet | None] = attrs.field(init=False, factory=dict)

    def at(self, gpus: int) -> Fleet | None:
        """The GPUs with their plan; None where nothing surely fits on them, or they cannot share the batch."""
        if gpus not in self.known:
            nodes = max(1, gpus // self.job.hardware.gpus_per_node)
            result = contenders(job := _at(self.job, nodes, gpus // nodes))
            self.known[gpus] = Fleet(plan=decide(job, result), tokens=self.tokens) if result.fitting else None
        return self.known[gpus]

    def least(self, need: float) -> Fleet | None:
        """The fewest GPUs that train so many tokens a second; None where no number of them does."""
        enough = 0.0  # GPUs below which none can be enough
        for gpus in self.candidates():
            fleet = self.at(gpus) if gpus >= enough else None
            if fleet is None:
                continue
            if _speed(fleet) >= need:
                return fleet
            enough = need / (fleet.plan.chosen.speed * RISE)
        return None

    def candidates(self) -> Iterator[int]:
        """Sizes on which something may fit: what fits on whole nodes fits on more of them."""
        few = [gpus for gpus in self.sizes if gpus <= self.job.hardware.gpus_per_node]
        many = self.sizes[len(few) :]
        yield from few
        if many and self.at(few[-1]) is None:
            if self.at(many[-1]) is None and self.job.training.global_batch is None:
                return
            if self.job.training.global_batch is None:
                many = many[bisect.bisect_left(many, True, key=lambda gpus: self.at(gpus) is not None) :]
        yield from many

    def smallest(self) -> Fleet | None:
        """The smallest number on which something fits, of those that were tried."""
        return next((fleet for _, fleet in sorted(self.known.items()) if fleet is not None), None)

    def near(self, gpus: float) -> Fleet | None:
        """The size that is nearest to a number."""
        return self.at(min(self.sizes, key=lambda size: abs(math.log(size / gpus))))

    def too_slow(self, deadline_seconds: float) -> Exception:
        """The error where none is fast enough: the best of all that were tried."""
        most = self.sizes[-1]
        for power in range(most.bit_length()):
            self.near(2**power)
        known = [fleet for fleet in self.known.values() if fleet is not None]
        if not known:
            plan(_at(self.job, max(1, most // self.job.hardware.gpus_per_node), self.job.hardware.gpus_per_node))
            raise mistake(f"nothing surely fits on any number of GPUs up to {most:,}", code="does-not-fit")
        best = max(known, key=_speed)
        return mistake(
            f"no number of GPUs up to {most:,} trains {tokens_text(self.tokens)} tokens in {_days(deadline_seconds)}",
            must=f"the best that is possible is {_days(best.seconds)}, on {best.gpus:,} GPUs",
            where="deadline",
            todo="Take a later deadline, fewer tokens, a faster network or other hardware.",
            code="does-not-fit",
        )


def _shared(job: Job) -> Iterator[int]:
    """Numbers of GPUs to try, the smallest first."""
    full, total = job.hardware.gpus_per_node, job.training.global_batch
    for gpus in (*range(1, full + 1), *(nodes * full for nodes in range(2, MOST_NODES + 1))):
        if total is None or total % gpus == 0:
            yield gpus


def _speed(fleet: Fleet | None) -> float:
    """Tokens a second of all its GPUs; 0 for none."""
    return fleet.plan.chosen.speed * fleet.gpus if fleet is not None else 0.0


def _days(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds / size:.3g} {unit}"


def _of_two_nodes(scenario: Scenario) -> Job:
    """The job on two nodes, which has a network; whatever a file says of GPUs and nodes."""
    return assemble(layers(_freed(scenario, {"nodes": ScenarioValue(2, Origin(_SOURCE))})), scenario.deepspeed)


def _freed(scenario: Scenario, said: dict[str, ScenarioValue]) -> Scenario:
    kept = {name: value for name, value in scenario.fields.items() if name not in ("gpus", "nodes")}
    sets = tuple(pair for pair in scenario.sets if not pair[0].startswith("cluster."))
    below = _freed(scenario.below, {}) if scenario.below is not None else None
    return attrs.evolve(scenario, fields={**kept, **said}, sets=sets, below=below)


def _at(job: Job, nodes: int, per_node: int) -> Job:
    """The job on another number of GPUs; on one node without a network."""
    network = job.network if nodes > 1 else NO_NETWORK
    names = {kind: name for kind, name in job.names.items() if nodes > 1 or kind != "network"}
    counted = [text for text in job.warnings if f" GPUs {SPREAD} " not in text]  # here they are found
    warnings = counted_anew(counted, job.nodes, nodes)
    return attrs.evolve(job, nodes=nodes, gpus_per_node=per_node, network=network, names=names, warnings=warnings)
