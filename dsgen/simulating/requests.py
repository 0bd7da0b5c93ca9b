"""What is to be simulated: from a rendered config with its plan, or from a config file with a model and a world."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.families.hf_config import to_hf_config
from dsgen.jobs import model_configs
from dsgen.jobs.releases import brings_foreach, loops_over_experts, reenters
from dsgen.jobs.said_releases import newer_than_known
from dsgen.jobs.samples import beside_card, pads, varied_mean
from dsgen.kernels import Rates, rates
from dsgen.kernels.host_work import USUAL_LAUNCHER
from dsgen.memory import expandable
from dsgen.memory.conversions import Afterwards, afterwards
from dsgen.memory.overheads import overhead, workspace_bytes
from dsgen.memory.replaying.padding import padded
from dsgen.rendering import Config
from dsgen.shapes.errors import mistake
from dsgen.shapes.limits import check_gpus
from dsgen.shapes.near_misses import NARROWER
from dsgen.shapes.profiles import Hardware, Network, Training
from dsgen.simulating.adopted_autos import filled_in
from dsgen.simulating.run_options import Options
from dsgen.simulating.setups import check_counts, left_out, of_config, older_loss, said
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.strategies.constraints import refusals
from dsgen.strategies.strategies import describe
from dsgen.targets.filling import Filled, fill

__all__ = ["ATTENTION", "CHECKPOINTING", "CHUNKED_AS_LIGER", "DTYPES", "Request", "from_config", "from_rendered"]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
ATTENTION = ("flash", "sdpa", "math", "eager")
CHECKPOINTING: dict[str, bool | str] = {"none": False, "full": True, "deepspeed": "deepspeed"}
_METHODS = ("full", "lora", "qlora")
_MAY_BE_OPEN = ("target_len", "mean_len", "empty_cache_steps", "evaluation", "kept")
_OF_4_BITS = ("double_quantization", "kbit_fp32")
_AS_WISHED = ("lora_dropout", "lora_train_embeddings", "lora_fp32", *_OF_4_BITS, "zero_init", "chunked_loss",
              "activation_offloading", "packing")  # fmt: skip
_SAID = ("target_len", "mean_len", "attention", "method", "lora_rank", "lora_targets")  # or, nowhere, as wished
# The constraint that stops a simulation, forced or not: it chunks a loss as Liger does, and in no other way.
CHUNKED_AS_LIGER = "autotp-with-chunked-loss"
_ALL_THE_SAME = "Where that is not so, --force asks DeepSpeed all the same."
_GROWING = "expandable_segments:True"  # as dsgen launch sets it for what dsgen plans
_SEQ_LEN, _GPUS_PER_NODE = 4096, 8  # when nobody says: tokens, as everywhere in dsgen, and GPUs
_UNKNOWN_GPU = "generic"  # vendor of what --gpu-memory alone describes
_LAST_IS_LONGEST = ("the time is that of the last step, whose sequences are the longest; dsgen plan says the mean one",)
_NO_NETWORK = Network(fabric="none", bandwidth_bytes_per_second=0.0, latency_seconds=0.0, rdma=False)  # of one node


@attrs.frozen(kw_only=True)
class Request:
    """One run of the engine.

    Attributes:
        title: What it is, in words.
        config, model: As DeepSpeed gets it, before paths are turned to a temporary folder; and a config.json.
        world_size, gpus_per_node: GPUs in all, and of a node.
        hardware, network: What there is, and what joins the nodes; None where nobody said.
        launcher, torch, flash_attention: As in Training; the latter two decide what an attention runs.
        deepspeed: Release that the config was rendered for; None where nobody said.
        run: The options, each of them decided.
        afterwards: What a plan's checkpoint takes, where one is saved; None where none is, and of a config.
        filled, notes: What the training program would fill in, and what a person should know besides.
    """

    title: str
    config: Mapping[str, Any]
    model: Mapping[str, Any]
    world_size: int
    gpus_per_node: int
    hardware: Hardware | None
    network: Network | None = None
    launcher: str = USUAL_LAUNCHER
    torch: str | None = None
    flash_attention: int = 2
    deepspeed: str | None = None
    run: Options
    afterwards: Afterwards | None = None
    filled: tuple[Filled, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks_per_node(self) -> int:
        """Ranks that share a node."""
        return min(self.world_size, self.gpus_per_node)

    @property
    def rates(self) -> Rates | None:
        """How fast all is; None where the GPUs are not known, or what joins several nodes."""
        network = _NO_NETWORK if self.world_size <= self.gpus_per_node else self.network
        known = self.hardware is not None and self.hardware.vendor != _UNKNOWN_GPU
        return rates(self.hardware, network) if self.hardware and known and network else None

    def to_engine(self) -> dict[str, Any]:
        """The request as the child process reads it; without the paths of the config."""
        run = self.run
        asked: dict[str, Any] = {
            "config": copy.deepcopy(dict(self.config)),
            "model": dict(self.model),
            "world_size": self.world_size,
            "gpus_per_node": self.gpus_per_node,
            "rank": run.rank,
            "steps": run.steps,
            "seq_len": run.seq_len,
            "target_len": run.target_len,
            "lengths": self._lengths(),
            "attention": self.attention,
            "checkpointing": CHECKPOINTING[run.checkpointing or "none"],
            "reentrant": run.reentrant,
            "activation_offloading": bool(run.activation_offloading),
            "dtype": DTYPES[run.dtype or "bf16"],
            "method": run.method,
            "chunked_loss": run.chunked_loss,
            "own_optimizer": run.own_optimizer,
            "older_loss": run.older_loss,
            "liger_kernels": run.liger_kernels,
            "alloc_conf": run.alloc_conf,
            "empty_cache_steps": run.empty_cache_steps,
            "evaluation": run.evaluation,
            "kept": run.kept,
            "checkpoint": run.checkpoint,
            "time": self.rates is not None,
            "force": run.force,
        }
        if run.method != "full":
            asked |= {"lora_rank": run.lora_rank, "lora_targets": list(run.lora_targets or ())}
            asked |= {name: value for name in _OF_4_BITS if (value := getattr(run, name)) is not None}
            asked |= {"lora_dropout": run.lora_dropout, "lora_train_embeddings": run.lora_train_embeddings}
        asked |= {name: False for name in ("lora_fp32", "zero_init") if getattr(run, name) is False}
        if self.hardware is not None:
            free = self.hardware.usable_memory_bytes - overhead(self.hardware, self.world_size, torch=self.torch).total
            asked |= {"gpu_memory_bytes": max(free, 1), "workspace_bytes": workspace_bytes(self.hardware)}
        return asked

    @property
    def attention(self) -> str | None:
        """What runs where the run asks for one."""
        alike = self.run.packing or self.config.get("train_micro_batch_size_per_gpu") == 1
        padded = not alike and pads(self.run.seq_len or 0, self.run.mean_len)
        return beside_card(self.run.attention, self.hardware, self.run.dtype != "fp32", padded)

    def _lengths(self) -> list[int] | None:
        """Tokens of each step where sequences have several lengths, the longest last; None where all are alike."""
        run, micro_batch = self.run, self.config.get("train_micro_batch_size_per_gpu")
        if run.packing or not run.mean_len or not run.seq_len:
            return None
        lengths = padded(run.seq_len, run.mean_len, micro_batch if isinstance(micro_batch, int) else 1)
        return list(lengths * (-(-run.steps // len(lengths))))[-run.steps :]


def from_rendered(rendered: Config, options: Options | None = None) -> Request:
    """The request of a config that dsgen rendered; its plan says the model, the world and the hardware."""
    options = options or Options()
    job, chosen = rendered.plan.job, rendered.plan.chosen.strategy
    if loops_over_experts(job.model, job.training):
        raise mistake(
            f"transformers is {job.training.transformers}",
            must="a simulation runs the release that is installed, which runs a mixture's experts otherwise",
            todo="dsgen memory counts that release; or leave --transformers out.",
            code="refused",
        )
    wishes = job.training
    brings = wishes.optimizer == EIGHT_BITS and "optimizer" not in rendered.tree
    nodes = f", {job.nodes} nodes of {job.gpus_per_node}" if job.nodes > 1 else ""
    gpus = f"{job.world} GPU{'s' if job.world > 1 else ''}"
    decided = attrs.evolve(
        options,
        seq_len=options.seq_len or job.seq_len,
        **{name: getattr(options, name) or getattr(wishes, name) for name in _SAID},
        checkpointing=options.checkpointing or ("full" if chosen.checkpointing else "none"),
        reentrant=options.reentrant or reenters(wishes, chosen.stage, job.version),
        **{name: getattr(wishes if getattr(options, name) is None else options, name) for name in _AS_WISHED},
        older_loss=older_loss(job.model),
        liger_kernels=job.model.liger_kernels,
        own_optimizer=options.own_optimizer or (EIGHT_BITS if brings else ""),
        dtype=options.dtype or chosen.precision,
        alloc_conf=options.alloc_conf or (_GROWING if expandable(job) else ""),
    )
    config, filled = filled_in(rendered)
    return _checked(
        Request(
            title=f"{job.names.get('model', 'model')} on {gpus} ({job.names.get('hardware', 'GPUs')}{nodes}): "
            f"{describe(chosen)}, micro-batch {chosen.micro_batch}",
            config=config,
            model=to_hf_config(attrs.asdict(job.model)),
            world_size=job.world,
            gpus_per_node=job.gpus_per_node,
            hardware=job.hardware,
            network=job.network,
            launcher=wishes.launcher,
            torch=wishes.torch,
            flash_attention=wishes.flash_attention,
            deepspeed=job.version,
            run=decided,
            afterwards=afterwards(job, chosen) if options.checkpoint else None,
            filled=filled,
            notes=(*newer_than_known(wishes, job.provenance), *_LAST_IS_LONGEST[: bool(varied_mean(wishes))]),
        )
    )


def from_config(
    config: Mapping[str, Any],
    *,
    model: str | Path | Mapping[str, Any],
    world_size: int,
    gpus_per_node: int | None = None,
    hardware: Hardware | None = None,
    network: Network | None = None,
    target: str = "deepspeed",
    micro_batch: int | None = None,
    accumulation: int | None = None,
    precision: str | None = None,
    options: Options | None = None,
    title: str = "<config>",
) -> Request:
    """The request of a config as written.

    Args:
        config: The config; what the target fills in may be "auto".
        model: A model profile's name or file, a Hugging Face config.json or its folder, or what stands in it.
        world_size: GPUs in all.
        gpus_per_node: GPUs of a node; by default those of the hardware, else 8.
        hardware: What there is; without it there are no limits, and no time.
        network: What joins the nodes; several without it have no time.
        target: The program that hands the config to DeepSpeed.
        micro_batch, accumulation, precision: For "auto", as `autos.fill` takes them.
        options: How the engine is run.
        title: What to call the config.

    Raises:
        DsgenError: An unknown profile, a broken file, or a number that cannot be.
    """
    options = options or Options()
    check_counts({"world_size": world_size, "micro_batch": micro_batch or 1, "accumulation": accumulation or 1})
    check_gpus(world_size, "world_size")
    if precision not in (None, *DTYPES):
        must = f"it must be one of {', '.join(DTYPES)}"
        raise mistake(f"precision is {precision!r}", must=must, todo=_narrower(precision))
    name, facts, notes = model_configs.read(model)
    hidden = facts.get("hidden_size", facts.get("n_embd"))
    used, filled = fill(
        config,
        target=target,
        world_size=world_size,
        hidden_size=hidden if isinstance(hidden, int) else None,
        micro_batch=micro_batch,
        accumulation=accumulation,
        precision=precision,
        foreach=brings_foreach(target == "hf-trainer", Training(foreach=options.foreach)),
    )
    longest = facts.get("max_position_embeddings", facts.get("n_positions"))
    decided = attrs.evolve(
        options,
        seq_len=options.seq_len or (min(_SEQ_LEN, longest) if isinstance(longest, int) else _SEQ_LEN),
        attention=options.attention or "flash",
        checkpointing=options.checkpointing or "none",
        method=options.method or "full",
        lora_rank=options.lora_rank or 16,
        lora_targets=options.lora_targets or ("all-linear",),
        lora_dropout=options.lora_dropout or 0.0,
        lora_train_embeddings=bool(options.lora_train_embeddings),
        chunked_loss=bool(options.chunked_loss),
        dtype=options.dtype or _dtype(used, precision),
    )
    nodes = gpus_per_node or (hardware.gpus_per_node if hardware else _GPUS_PER_NODE)
    gpus = f"{world_size} GPU{'s' if world_size != 1 else ''}"
    return _checked(
        Request(
            title=f"{name} with {title} on {gpus}",
            config=used,
            model=facts,
            world_size=world_size,
            gpus_per_node=nodes,
            hardware=hardware,
            network=network,
            run=decided,
            filled=filled,
            notes=notes,
        )
    )


def _narrower(value: object) -> str | None:
    """What there is of a dtype in fewer bits."""
    said = NARROWER.get(str(value).casefold())
    return f"{said[0].upper()}{said[1:]}." if said else None


def _dtype(config: Mapping[str, Any], precision: str | None) -> str:
    """The dtype in which a program loads the weights: what the config trains in."""
    for name, sections in (("bf16", ("bf16", "bfloat16")), ("fp16", ("fp16",))):
        if any(lookup(config, f"{section}.enabled")[1] in (True, "true", 1) for section in sections):
            return name
    return precision or "fp32"


def _checked(request: Request) -> Request:
    """Refuse what cannot be before a process is started for it."""
    run = request.run
    counts = {"world_size": request.world_size, "gpus_per_node": request.gpus_per_node}
    counts |= {name: getattr(run, name) for name in ("steps", "seq_len", "lora_rank")}
    check_counts(counts | {name: value for name in _MAY_BE_OPEN if (value := getattr(run, name)) is not None})
    if run.kept and not run.evaluation:
        must = "logits are kept of an evaluation, and none is said"
        raise mistake(f"kept is {run.kept}", must=must, todo="Say it: --eval-batch 8.", code="missing")
    if run.packing and (run.attention != "flash" or run.target_len is not None):
        must = "samples are packed where attention is flash, whose kernels stop at borders, and no encoder reads them"
        raise mistake("packing is true", must=must)
    if run.mean_len and run.seq_len and run.mean_len > run.seq_len:
        raise mistake(f"mean_len is {run.mean_len}", must=f"it must be at most seq_len, the longest: {run.seq_len}")
    if isinstance(run.rank, bool) or not isinstance(run.rank, int) or not 0 <= run.rank < request.world_size:
        raise mistake(f"rank is {run.rank!r}", must=f"it must be from 0 to {request.world_size - 1}")
    choices = {"attention": ATTENTION, "checkpointing": (*CHECKPOINTING,), "method": _METHODS, "dtype": (*DTYPES,)}
    for name, allowed in choices.items():
        if (value := getattr(run, name)) not in allowed:
            must = f"it must be one of {', '.join(allowed)}"
            raise mistake(f"{name} is {value!r}", must=must, todo=_narrower(value) if name == "dtype" else None)
    if request.world_size > request.gpus_per_node and request.world_size % request.gpus_per_node:
        raise mistake(
            f"{request.world_size} GPUs do not fill nodes of {request.gpus_per_node}",
            must="the nodes must be alike",
            todo="Say --gpus-per-node.",
            code="contradiction",
        )
    return _constrained(request)


def _constrained(request: Request) -> Request:
    """Refuse what stops for certain, and note what runs and does something else than was asked; with force do neither.

    What dsgen itself does not count is none of this: the engine is asked because it counts all.
    """
    run = request.run
    at = of_config(request.config, request.model, request.world_size, request.gpus_per_node, request.hardware, run)
    notes = [*left_out(request.config)]
    for item in refusals(at):
        if item.code == CHUNKED_AS_LIGER:
            raise mistake(said(at, item.about), must=item.says(at), todo=item.helps(at))
        if run.force:
            continue
        if item.stops:
            raise mistake(said(at, item.about), must=item.says(at), todo=_ALL_THE_SAME)
        if item.by != "dsgen":
            notes.append(item.says(at))
    return attrs.evolve(request, notes=(*request.notes, *notes))
