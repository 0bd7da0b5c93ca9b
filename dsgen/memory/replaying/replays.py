"""A strategy's requests, from loading through steps until nothing more is reserved; and of which they are known."""

import functools
from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.jobs.samples import varied_mean
from dsgen.memory.asked import Asked, Plain
from dsgen.memory.buckets import arrivals
from dsgen.memory.replaying.loading import load
from dsgen.memory.replaying.model_passes import ModelPasses, model_requests
from dsgen.memory.replaying.padding import padded
from dsgen.memory.replaying.reducing import Reducing
from dsgen.memory.replaying.requests import Requests
from dsgen.memory.replaying.scattering import Scattering
from dsgen.memory.runs import Run
from dsgen.memory.states import MUON, flattening, states
from dsgen.memory.together import runs_of
from dsgen.strategies.buffers import Buffers

__all__ = ["Replay", "finds_room", "played", "reserved"]

# At most; the second has the optimizer's states. Of the 203 scenarios of docs/reserved.md that are replayed a third
# reserves more in 9, up to 13 %, and a fourth in none.
_STEPS = 3
_PASSES = 2  # of a step at most: those between the first and the last do as the last


class Replay(NamedTuple):
    """What a replay depends on.

    Attributes:
        asked: The model, how it is trained, ranks.
        layout: Stage, offload, tensor parallelism, checkpointing and precision.
        buffers: Those of the layout.
        passes: Forward passes of a step.
        micro_batch: Sequences of one.
        world: Ranks of all replicas.
        memory: Bytes of the GPU, on which stages 1 and 2 flatten weights where there is room.
        expandable: Segments grow.
        varied: Sequences have the mean length that is asked, and the longest of them the length.
        workspace: Bytes of cuBLAS's workspace, one for forward's thread and one for backward's.
        room: What the GPU leaves to torch; None for as much as is asked.
    """

    asked: Asked
    layout: Plain
    buffers: Buffers
    passes: int
    micro_batch: int
    world: int
    memory: int
    expandable: bool
    varied: bool = False
    workspace: int = 0
    room: int | None = None

    @property
    def known(self) -> bool:
        """Whether the order of requests is known.

        It is not with Muon, hpZ or anything on NVMe, of gradients of several passes that wait where they were made at
        stage 2, of AutoTP beside stage 3, of a model with an encoder, and of stages 1 and 2 before 0.18.7 with the
        optimizer on the CPU, whose weights came back otherwise.
        """
        layout, training, gathers = self.layout, self.asked.training, self.layout.stage == 3
        loose = not self.buffers.contiguous and layout.stage == 2 and self.passes > 1
        swaps = "nvme" in (layout.offload_optimizer, layout.offload_param)
        split = gathers and (layout.tp > 1 or self.buffers.secondary > 1)
        encodes = family_of(self.asked.model).encodes
        older = self.asked.in_ram and layout.offload_optimizer != "none"
        return not (training.optimizer == MUON or loose or swaps or split or encodes or older)


def reserved(replay: Replay) -> int:
    """Bytes that are reserved at most, but for segments of small requests; 0 where the requests are not known.

    The workspaces lie among the tensors, and are not in the number.
    """
    return _once(replay)[0]


def finds_room(replay: Replay) -> bool:
    """Whether every request finds a place in the replay's room; so it does where the requests are not known.

    The allocator gives back all that is free before it gives up: a room may be smaller than what is reserved where
    there is enough.
    """
    return not _once(replay)[1]


def played(replay: Replay) -> tuple[int, bool]:
    """What is reserved at most, and whether memory ran out; nothing where the requests are not known."""
    asked, layout, buffers, passes = replay.asked, replay.layout, replay.buffers, min(replay.passes, _PASSES)
    if not replay.known:
        return 0, False
    gathers = layout.stage == 3
    if layout.offload_optimizer != "none" and not gathers:
        buffers = buffers._replace(contiguous=True)  # as DeepSpeed has it there
    ways = layout.precision, layout.tp, layout.checkpointing, gathers, asked.single, asked.lingers and passes > 1
    run = Run(asked.model, asked.training, asked.seq_len, *ways, asked.returns)
    held = states(asked, layout, buffers)
    requests = Requests(replay.expandable, replay.room)
    flat, _ = flattening(held, layout.stage)
    fits = not asked.in_ram and held.weights + flat <= replay.memory
    load(requests, asked.model, asked.training, layout, buffers, held, fits, asked.clones_first)
    order, optimizer = arrivals(held.tensors, runs_of(run)), asked.training.optimizer
    engine: Any
    if gathers:
        reads = held.among == 1 and layout.offload_param == "none"
        engine = Scattering(requests, held, buffers, passes, order, run.step(), reads, optimizer)
    else:
        alone = replay.world == layout.tp
        rest = order, optimizer, alone, asked.early_buckets
        engine = Reducing(requests, held, layout.stage, buffers, passes, *rest)
    ran = ModelPasses(requests, replay.workspace)
    mean = varied_mean(asked.training) if replay.varied else None
    lengths = padded(asked.seq_len, mean, replay.micro_batch) if mean else (asked.seq_len,) * _STEPS
    for step, length in enumerate(lengths):
        before, model = requests.reserved, model_requests(run._replace(seq_len=length), replay.micro_batch)
        if model is None:
            return 0, False
        for number in range(passes):
            last = number + 1 == passes
            engine.begin(last)
            ran.run(model, engine)
            engine.end(last)
        engine.step()
        if step and requests.reserved == before and not mean:
            break
    return requests.reserved, requests.out_of_memory


_once = functools.lru_cache(maxsize=256)(played)
