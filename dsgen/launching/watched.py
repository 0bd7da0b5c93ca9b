"""What to watch while a run trains, how, what is expected, and the threshold at which to act."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.launching.expected import Expectation
from dsgen.launching.launches import JobLaunch
from dsgen.memory.card_numbers import card
from dsgen.report.bars import rounded
from dsgen.shapes.makers import maker_of
from dsgen.shapes.units import gib

__all__ = ["watched"]

# Of the time a GPU runs any kernel at all; below it the ranks wait for data or for the host.
_BUSY_PERCENT = 85
# Points of a step that ranks may wait for the network beyond what is expected.
_WAITING_POINTS = 10
_WHOLE = 100  # percent
_FULL = 0.95  # share of a limit at which the next longer batch may not fit
_RISE = 3  # times the median of the last 100 steps: a loss or a gradient norm above it is no noise
_SLOW_PERCENT = 25  # by which one rank's steps may be longer than the others'


def watched(launch: JobLaunch, expected: Expectation) -> Iterator[tuple[str, str, str, str]]:
    """Rows of the table: what, how, expected, act when."""
    job, training = launch.job, launch.job.training
    maker = maker_of(job.hardware.vendor)
    slowest = expected.tokens_per_second_per_gpu * expected.seconds / expected.high_seconds
    print_every = f"DeepSpeed's line every {training.steps_per_print} steps, or the program's own"
    yield (
        "speed after 10 steps",
        print_every,
        f"{rounded(expected.tokens_per_second_per_gpu)} tokens/s/GPU",
        f"below {rounded(slowest)}: something the plan does not know of; `dsgen calibrate` tells it",
    )
    if launch.has_gpus:
        shown = card(expected.gpu).shown
        yield (
            "memory of the fullest GPU",
            f"`{maker.watched}`",
            f"{gib(shown.bytes)} GiB, up to {gib(shown.high)}",
            _short(shown.high, expected.gpu.limit_bytes),
        )
        yield (
            "GPUs at work",
            f"`{maker.worked}`",
            "near 100 % between saves",
            f"below {_BUSY_PERCENT} % for a minute: data loading, or a rank that waits",
        )
    if expected.host.peak_bytes:
        yield (
            "RAM of each node",
            "`free -g`",
            f"{gib(expected.host.needed_bytes)} GiB",
            f"above {gib(int(_FULL * expected.host.limit_bytes))} GiB: the kernel kills a rank without a word",
        )
    if expected.nvme.peak_bytes:
        yield ("NVMe", f"`df -h {training.nvme_path}`", f"{gib(expected.nvme.needed_bytes)} GiB", "less is free")
    if job.world > 1:
        share = expected.communication_share
        most = max(20, round(100 * share) + _WAITING_POINTS)
        # Where a step is mostly that already, its length alone tells: the first row.
        over = f"above {most} %" if most < _WHOLE else "a step takes longer than expected"
        yield (
            "waiting for the network",
            "`comms_logger` in the config, for some steps only: it slows each call",
            f"{share:.0%} of a step",
            f"{over}: `ib_write_bw` or `iperf3` between two hosts" if job.nodes > 1 else over,
        )
        yield (
            "ranks alike",
            "step times by rank",
            "the same",
            f"one is {_SLOW_PERCENT} % slower: its GPU is hot or shared (`{maker.slowed}`); drain it",
        )
    yield ("loss", "the program's log", "falls after the warm-up", f"NaN, or {_RISE} times the median of 100 steps")
    if training.gradient_clipping:
        yield (
            "gradient norm",
            "`engine.get_global_grad_norm()`, or `grad_norm` of the Trainer",
            f"mostly below {training.gradient_clipping:g} after the warm-up",
            f"{_RISE} times the median of 100 steps, several times: lower the learning rate",
        )
    if launch.plan.chosen.strategy.precision == "fp16":
        yield ("loss scale", "DeepSpeed's OVERFLOW lines", "a few at the start", "more than 1 in 100 steps after 1,000")


def _short(high: int, limit: int) -> str:
    """From where on a GPU has too little, in bytes: torch may hold all of it, and gives back what no tensor uses."""
    if high <= _FULL * limit:
        return f"above {gib(int(_FULL * limit))} GiB ({_FULL:.0%} of {gib(limit)})"
    return '`torch.cuda.memory_stats()["num_alloc_retries"]` above 0: it gives memory back to go on, and is slow'
