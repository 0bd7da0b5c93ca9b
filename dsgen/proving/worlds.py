"""Starts of configs at their declared world size: one process is one rank, and every other rank is its twin."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsgen.proving import children, expectations
from dsgen.proving.adaptation import adapt, tensor_parallel_degree
from dsgen.proving.checks import Check, engine_checks, parse_checks
from dsgen.shapes.errors import mistake

__all__ = ["StartVerdict", "World", "WorldStart", "open_world", "start_checks"]

_SERVER = "proof.world_server"
_GREETING_SECONDS = 300.0  # imports of torch and DeepSpeed from a cold network disk
_END_SECONDS = 5.0  # for the child to end a start
_MARGIN_SECONDS = 30.0  # beyond a start's own timeout, which the child watches itself
_STEPS = 2  # a schedule that warms up from zero moves no weight at the first
_AT_ONCE = 100  # configs of one question to the parser


@attrs.frozen(kw_only=True)
class WorldStart:
    """What is started.

    Attributes:
        config: A DeepSpeed config as rendered.
        model: The config.json of a tiny model.
        world: Ranks, as the config was made for.
        local_ranks: Ranks of a node.
        rank: Which of them this process is.
    """

    config: Mapping[str, Any]
    model: Mapping[str, Any]
    world: int
    local_ranks: int
    rank: int


@attrs.frozen(kw_only=True)
class StartVerdict:
    """What came of a start or a parse.

    Attributes:
        error: DeepSpeed's own words and the site; None where it came through.
        checks: What was asserted and observed.
        given: What was handed to DeepSpeed; of a parse alone.
        seconds: Of the start.
    """

    error: str | None
    checks: tuple[Check, ...] = ()
    given: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    seconds: float = 0.0

    @property
    def why(self) -> str:
        """What does not hold, on one line; "" where all does."""
        failed = (f"{one.name}: not {one.expected} but {one.observed}" for one in self.checks if not one.ok)
        return self.error or "; ".join(failed)


class World:
    """A running child process that starts and parses configs."""

    def __init__(self, child: children.Child, greeting: Mapping[str, Any]) -> None:
        self._child = child
        self._count = 0
        self.versions: dict[str, str] = dict(greeting["versions"])

    def start(self, one: WorldStart, timeout_seconds: float = 120.0) -> StartVerdict:
        """Start a config at its declared world size, and compare what the engine holds with what the config says.

        Batch fields shrink as in a proof on real ranks; `parse` looks at the declared ones.

        Raises:
            LostError: The child itself is gone.
        """
        self._count += 1
        folder = self._child.folder / f"start{self._count}"
        folder.mkdir()
        used, _ = adapt(one.config, one.world, str(folder))
        tp = tensor_parallel_degree(used)
        job = {
            "config": used, "model": dict(one.model), "world": one.world, "rank": one.rank, "steps": _STEPS,
            "local_ranks": one.local_ranks, "tp": tp, "folder": str(folder), "timeout_seconds": timeout_seconds,
        }  # fmt: skip
        told = self._child.ask({"start": job}, timeout_seconds + _MARGIN_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
        if told["error"] is not None:
            return StartVerdict(error=f"{told['phase']}: {told['error']}", seconds=told["seconds"])
        judged = start_checks(used, one.world, tp, told["observed"], self.versions["deepspeed"])
        return StartVerdict(error=None, checks=judged, seconds=told["seconds"])

    def parse(
        self,
        asked: Sequence[tuple[Mapping[str, Any], int]],
        target: str = "deepspeed",
        arguments: Sequence[Mapping[str, Any]] = (),
    ) -> Iterator[StartVerdict]:
        """Each config as DeepSpeed's own parser takes it, by its declared numbers.

        Args:
            asked: Configs, and the ranks of their worlds.
            target: "accelerate" hands each through Accelerate's own plugin first, "hf-trainer" through the Trainer's
                class and that plugin.
            arguments: Of the Trainer, for each.
        """
        said = arguments or [{}] * len(asked)
        for place in range(0, len(asked), _AT_ONCE):
            some = asked[place : place + _AT_ONCE]
            questions = [
                {"config": dict(config), "world": world, "target": target, "arguments": dict(mine)}
                for (config, world), mine in zip(some, said[place : place + _AT_ONCE], strict=True)
            ]
            told = self._child.ask({"parse": questions}, _GREETING_SECONDS)
            for (_, world), one in zip(some, told["parsed"], strict=True):
                if "error" in one:
                    yield StartVerdict(error=one["error"])
                else:
                    checks = parse_checks(one["given"], world, one["held"], self.versions["deepspeed"])
                    yield StartVerdict(error=None, checks=checks, given=one["given"])


def start_checks(
    config: Mapping[str, Any], world: int, tp: int, observed: Mapping[str, Any], version: str
) -> tuple[Check, ...]:
    """The checks that one rank can answer for, and those of the groups that it is in.

    Args:
        config: As the rank was given it.
        world: Ranks of the declared world.
        tp: Ranks of a tensor-parallel group.
        observed: What the rank reported.
        version: DeepSpeed's.
    """
    steps = int(observed["steps"])  # more than _STEPS where the loss scaler let none of those through
    said = engine_checks(config, world, tp, steps, [observed], version, plain=False, small=True)
    groups = {"world": world, "tensor_parallel": tp, "optimizer": world // tp}
    held = Check("ranks of each group", groups, observed["groups"], groups == observed["groups"])
    if expectations.stage(config) == 3 or tp > 1:  # gathered weights are one part over and over: no loss means anything
        return (*said, held)
    finite = bool(observed["loss_finite"])
    return (*said, held, Check("loss is finite", True, finite, finite))


@contextlib.contextmanager
def open_world(python: str | None = None) -> Iterator[World]:
    """Start the child process, and end it whatever happens.

    Args:
        python: Its interpreter, which has torch, deepspeed and transformers; by default this one.

    Raises:
        DsgenError: It lacks torch, deepspeed or transformers.
    """
    with children.start(python or sys.executable, _SERVER, "world", _END_SECONDS) as child:
        try:
            greeting = child.ask({"folder": str(child.folder)}, _GREETING_SECONDS)
        except children.LostError as error:
            raise mistake(
                f"the engine did not start: {error}",
                must="it must be able to import torch, deepspeed and transformers",
                todo='pip install "dsgen[proof]"',
                code="lost",
            ) from None
        yield World(child, greeting)
