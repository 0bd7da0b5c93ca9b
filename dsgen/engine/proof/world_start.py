"""One rank of a world of twins: a tiny sibling of a model under the real engine at a config's declared world size."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsgen.engine.proof import forced_overflows, observing, tensor_parallel
from dsgen.engine.proof.handed_on import handed_on
from dsgen.engine.witness import Witness

__all__ = ["parse", "run"]

_SEED = 20  # any fixed number: the same model and data on every run
_TOKENS = 4  # per sample: starts differ in the number of samples; numbers of tokens say nothing more
_EXPERT = 0.01  # of every weight that nobody sets: near the deviation of those that are set, 0.02
# Keys of a config.json that say what a class is, or how its weights are stored, not what it is made of.
_LEFT_OUT = ("model_type", "torch_dtype", "dtype")


def parse(config: dict[str, Any], world: int, target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What DeepSpeed's own parser makes of a config in a world of this size.

    Args:
        config: As the target's file has it.
        world: Ranks.
        target: Who hands it on: "deepspeed", "accelerate" or "hf-trainer".
        arguments: The Trainer's.

    Returns:
        `held` (values under the names of a config file, the batch among them) and `given` (what was handed on), or
        `error`, in the words of DeepSpeed or of who did not hand it on.
    """
    from deepspeed.runtime import config as parsing

    joined = parsing.dist
    parsing.dist = _Ranks(world)
    try:
        given = handed_on(config, target, world, arguments)
        return {"held": observing.held_config(parsing.DeepSpeedConfig(copy.deepcopy(given))), "given": given}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    finally:
        parsing.dist = joined


class _Ranks:
    """All that DeepSpeed's parser asks of its ranks: how many there are, and which one this is."""

    def __init__(self, world: int) -> None:
        self._world = world

    def get_rank(self) -> int:
        """The first."""
        return 0

    def get_world_size(self, group: Any = None) -> int:
        """All of them."""
        return self._world


def run(job: dict[str, Any], report: Path) -> bool:
    """Start one config as one rank of its declared world and step.

    Args:
        job: config, model (a config.json), world, rank, local_ranks, tp, steps, folder.
        report: JSON file to write: `phase`, `observed`, `imported` (modules that were not there yet), and `error` with
            DeepSpeed's own words and the last site, None where it came through.
    """
    told: dict[str, Any] = {"phase": "load", "observed": {}, "error": None}
    known = len(sys.modules)
    try:
        _phases(job, told)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if f"{os.sep}deepspeed{os.sep}" in frame.filename] or list(frames)
        words = " ".join(str(error).split())[:300]
        site = f"{inside[-1].filename.rpartition('site-packages/')[2]}:{inside[-1].lineno} in {inside[-1].name}"
        told["error"] = f"{type(error).__name__}: {words} ({site})"
    # Of those that the fork inherited no name is touched: each would copy a page of its parent.
    told["imported"] = [*itertools.islice(reversed(sys.modules), len(sys.modules) - known)][::-1]
    report.write_text(json.dumps(told, default=str), encoding="utf-8")
    return told["error"] is None


def _phases(job: dict[str, Any], told: dict[str, Any]) -> None:
    import deepspeed
    import torch

    from dsgen.engine.proof import twins

    rank, world, config = job["rank"], job["world"], Witness(job["config"])
    observed = told["observed"]
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank % job["local_ranks"]), WORLD_SIZE=str(world),
        LOCAL_SIZE=str(job["local_ranks"]), LOCAL_WORLD_SIZE=str(job["local_ranks"]), MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )  # fmt: skip
    twins.join(rank, world)
    deepspeed.init_distributed(dist_backend=twins.NAME, verbose=False)

    _shards_are_even()

    told["phase"] = "initialize"
    torch.manual_seed(_SEED)
    model = _model(job, config)
    observed.update(observing.model_sizes(model))
    tensor_parallel.split(model, job["config"], job["tp"])
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    observed.update(observing.engine_facts(engine, rank))
    observed["held_config"] = observing.held_config(engine._config)
    observed["groups"] = _groups(engine)
    observed["learning_rate_start"] = float(engine.get_lr()[0])

    told["phase"] = "step"
    before = _fingerprint(engine)
    # Of an embedding that is split by its rows a twin has none for the tokens of other ranks, and backward through a
    # norm of zeros is a thousand times as large: of the tokens each rank draws its own.
    own = model.config.vocab_size // job["tp"]
    tokens = rank % job["tp"] * own + torch.randint(0, own, (int(observed["micro_batch"]), _TOKENS))
    steps, losses = int(job["steps"]), []

    def step() -> None:
        for _ in range(int(observed["accumulation"])):
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        losses.append(float(loss.detach()))

    for _ in range(steps):
        step()
    if forced_overflows.is_fp16(job["config"]):
        steps += forced_overflows.step_until_one_counts(engine, step)
    observed.update(observing.state_facts(engine))
    observed.update(
        loss_finite=math.isfinite(losses[-1]),
        learning_rate=float(engine.get_lr()[0]),
        steps=steps,
        global_steps=int(engine.global_steps),
        skipped_steps=int(engine.skipped_steps),
        moved=_fingerprint(engine) != before,
    )
    observed["unread"] = sorted(observing.unread(job["config"], config.seen))
    told["phase"] = "done"


def _shards_are_even() -> None:
    """AutoTP's loss asks every rank which part of the vocabulary it has, where twins would all name this rank's.

    Releases before 0.19 do not ask, and 0.14 has no such module.
    """
    import deepspeed.comm as dist

    try:
        from deepspeed.sequence import cross_entropy
    except ImportError:
        return

    def validate(size: int, start: int, end: int, group: Any, device: Any) -> int:
        return size * (dist.get_world_size(group) if group is not None else 1)

    cross_entropy._validate_vocab_shard_bounds = validate


def _groups(engine: Any) -> dict[str, int]:
    """Sizes of the groups in which the engine communicates."""
    import deepspeed.comm as dist

    optimizer = engine.optimizer
    group = getattr(optimizer, "dp_process_group", None) or getattr(optimizer, "real_dp_process_group", [None])[0]
    return {
        "world": dist.get_world_size(),
        "tensor_parallel": int(engine.mp_world_size),
        "optimizer": dist.get_world_size(group=group) if group is not None else int(engine.dp_world_size),
    }


def _fingerprint(engine: Any) -> list[float]:
    """A number for each tensor that the optimizer updates on this rank; what is swapped out has none."""
    return [float(one.detach().double().abs().sum()) for one in observing.masters(engine) if one.numel()]


def _model(job: dict[str, Any], config: Witness) -> Any:
    """The real class of the family with random weights, born partitioned at stage 3 as a user's would be."""
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM

    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    facts = {key: value for key, value in job["model"].items() if key not in _LEFT_OUT}
    described = AutoConfig.for_model(job["model"]["model_type"], **{**ids, **facts})
    described.use_cache = False
    _ = AutoModelForCausalLM._model_mapping[type(described)]  # its module must not be loaded inside zero.Init
    zero = job["config"].get("zero_optimization") or {}
    born = zero.get("stage") == 3 and job["tp"] == 1
    with contextlib.ExitStack() as stack:
        if born:
            stack.enter_context(_filled())
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=copy.deepcopy(config)))
        model = AutoModelForCausalLM.from_config(described, attn_implementation="eager")
    return model.train()


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Give a number to what is made empty: experts, which no layer of torch's sets, would keep what lay in memory."""
    import torch
    from deepspeed.runtime.zero import partition_parameters as made

    empty = made._orig_torch_empty

    def filled(*sizes: Any, **said: Any) -> Any:
        tensor = empty(*sizes, **said)
        return tensor.fill_(_EXPERT) if tensor.is_floating_point() and not tensor.is_meta else tensor

    made._orig_torch_empty = filled
    try:
        yield
    finally:
        made._orig_torch_empty = empty
        torch.empty = empty  # zero.Init put the other one there as it ended: the engine's buffers would be filled too
