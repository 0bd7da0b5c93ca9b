"""What of the golden matrix is trained on real ranks: one case for each structure that training can tell apart.

Two structures are one here where they differ only in keys that a training step does not read, or in a number:

- `activation_checkpointing`: of DeepSpeed's own checkpointing function, which no class of transformers calls;
- `steps_per_print`, `wall_clock_breakdown`, `timers`, and the monitors: what is printed and told;
- `stage3_gather_16bit_weights_on_model_save`: read by `save_16bit_model` alone;
- `tensor_parallel.autotp_size`: 2, 4 and 8 are 2 here, on four ranks, so that two hold the same part;
- a precision, a place or `round_robin_gradients` that is said to be off, as it is where nobody says it.

That these keys do not reach training is tested with all but two monitors of them at once (`with_unread`).

Each case is trained on two ranks and on four, AutoTP on four alone. Four ranks take one micro-batch each where two take
two, so that both see the same samples, and one run of plain PyTorch stands beside both.

Each of those structures is still started by itself, twice: `golden.starts` and tests/proving/test_golden_proof.py.

Two things DeepSpeed 0.19.8 does not do with a drive, and they are not asked of it here:

- resume with the optimizer on NVMe: `load_checkpoint` copies the swapped files and leaves ZeRO's own load out
  (runtime/engine.py:4456). The second engine of a process, as here, reads none of them and keeps the weights that it
  began with; the first of a new process gets weights without moments (tests/proving/test_resumed_from_nvme.py);
- fetch the parameters of mixtures from NVMe in 16 bits, in buckets this small: qwen3_moe, gpt_oss and deepseek_v3 stop
  with "param 19 already assigned swap buffer id 1" (runtime/swap_tensor/partitioned_param_swapper.py:185): the last
  experts' tensor is read ahead for forward and backward at once, as nothing large lies between (the rule DSG816,
  dsgen/memory/swapped_parameters.py; at full size none of them does). A Llama takes their place, and a drive with a
  leaf module is trained in fp32.

With a leaf module and the optimizer alone on a drive, bf16 is 0.016 from plain PyTorch in losses that fall from 5.7 to
0 in ten steps, which is more than is allowed here; fp32 is 6e-7.

A router that chooses another expert for one token in one layer, once in 2,560 choices, moves a loss by 1.5e-3 (Mixtral,
the optimizer on a drive, four ranks, an initial scale of 2^16; with 2^10 all choices are the same, and losses within
1.4e-4). Rounding decides where the second expert and the third are 5e-4 apart, so the host does: what is trained in
fp16, to 1e-3, is a Llama where the family has experts. Its fp32 has them.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsgen.proving import expectations
from dsgen.proving.adaptation import tensor_parallel_degree
from golden import starts
from golden.structures import structure

__all__ = ["AUTOCAST", "Case", "cases", "on_more_ranks", "precision_of", "shrunk", "told_apart", "with_unread"]

NOT_READ = ("activation_checkpointing", "steps_per_print", "wall_clock_breakdown", "timers", "csv_monitor",
            "tensorboard", "wandb")  # fmt: skip
NOT_READ_OF_ZERO = ("stage3_gather_16bit_weights_on_model_save",)
OFF_OF_ZERO = {"round_robin_gradients": False, "offload_optimizer": {"device": "none"},
               "offload_param": {"device": "none"}}  # fmt: skip
DEGREE, RANKS, SPLIT_RANKS, MORE_RANKS = 2, 2, 4, 4
HPZ = 2  # ranks that hold all weights among them
PRECISIONS = ("bf16", "fp16")
AUTOCAST = "torch_autocast"  # bf16 by another key
MIXTURES = ("deepseek_v3", "qwen3_moe")  # trained at every stage
WARMUP, TOTAL = 3, 10  # steps: the schedule is a slope, then flat or another slope
# The tiny model learns in ten steps, whatever a step of the optimizer is.
RATE, RATES = 1e-3, {"SGD": 1.0, "Adagrad": 1e-2, "Muon": 1e-2}
WIDE_RATE = 1e-4
NORM = 0.3  # below the norms of the tiny models' gradients, so that clipping clips
SCALE_POWER = 10  # nothing overflows; overflows are forced in `dsgen prove` (dsgen/engine/proof/forced_overflows.py)
# Elements, so that a model of some 100,000 takes several buckets, fetches and groups, and nothing persists whole.
TINY = {
    "reduce_bucket_size": 20_000,
    "allgather_bucket_size": 20_000,
    "stage3_prefetch_bucket_size": 15_000,
    "stage3_param_persistence_threshold": 100,
    "stage3_max_live_parameters": 50_000,
    "sub_group_size": 30_000,
}
# Of a model that is swapped, of 7 million or more: what is below 1 MiB stays (runtime/swap_tensor, MIN_AIO_BYTES).
WIDE = {
    "reduce_bucket_size": 4_000_000,
    "allgather_bucket_size": 4_000_000,
    "stage3_prefetch_bucket_size": 4_000_000,
    "stage3_param_persistence_threshold": 100,
    "stage3_max_live_parameters": 8_000_000,
    "sub_group_size": 4_000_000,
}
BUFFER = 10_000_000  # elements; more than the largest tensor of a wide model


@attrs.frozen(kw_only=True)
class Case:
    """A config with the numbers of a tiny model, the model, and the ranks."""

    name: str
    config: Mapping[str, Any]
    model: Mapping[str, Any]  # a config.json
    ranks: int
    wide: bool  # whether its tensors are swapped to a drive
    stands_for: int  # structures of the matrix
    resumes: bool = True  # whether DeepSpeed promises the losses that it had
    saved: bool = True  # whether it is saved, and a new engine loads it
    adapters: Mapping[str, Any] | None = None  # what is trained instead of all of it
    checkpointing: str = ""  # how the program recomputes activations
    optimizer: str = ""  # that the program brings

    @property
    def precision(self) -> str:
        """bf16, fp16 or fp32."""
        return "bf16" if AUTOCAST in self.config else precision_of(self.config)


def precision_of(config: Mapping[str, Any]) -> str:
    """bf16, fp16 or fp32, by the sections of DeepSpeed's own mixed precision."""
    return next((name for name in PRECISIONS if config.get(name, {}).get("enabled", name in config)), "fp32")


def on_more_ranks(case: Case) -> Case:
    """The same samples of a step on more ranks; a drive that does not resume is not asked again."""
    config = {**case.config, "gradient_accumulation_steps": 1}
    if "train_batch_size" in config:
        config["train_batch_size"] = config["train_micro_batch_size_per_gpu"] * MORE_RANKS
    return attrs.evolve(
        case,
        name=f"{case.name}, {MORE_RANKS} ranks",
        config=config,
        ranks=MORE_RANKS,
        stands_for=0,
        saved=case.resumes,
    )


def cases(shares: Sequence[starts.Share], configs: Mapping[str, Mapping[str, Any]]) -> tuple[Case, ...]:
    """Each structure that training tells apart, as it is and in fp32, with siblings of as many families as there are.

    Args:
        shares: All cells, by what they share (`starts.shares`).
        configs: By their hash.
    """
    made: dict[str, Case] = {}
    used: Counter[str] = Counter()
    groups: dict[Any, list[starts.Share]] = {}
    for share in shares:
        groups.setdefault(structure(told_apart(configs[share.cells[0].sha])), []).append(share)
    for group in groups.values():
        config = configs[group[0].cells[0].sha]
        model = _sibling(group, used)
        if expectations.parameter_place(config) == "nvme" and "leaf_module" not in config["zero_optimization"]:
            model = _dense(group)
        whole = len({structure(configs[share.cells[0].sha]) for share in group})
        for one in _cases(config, model, whole):
            rounds = one.precision == "fp16" and _has_experts(model)
            made.setdefault(one.name, attrs.evolve(one, model=_dense(group)) if rounds else one)
    for model in _mixtures(shares):
        for stage in (1, 2, 3):
            for precision in ("bf16", "fp32"):
                case = made[f"stage {stage}, {precision}"]
                name = f"{case.name}, {model['model_type']}"
                made[name] = attrs.evolve(case, name=name, model=model, stands_for=0)
    more = [on_more_ranks(case) for case in made.values() if case.ranks < MORE_RANKS]
    return (*made.values(), *more)


def with_unread(case: Case, folder: str) -> Case:
    """The case with every key that is said not to reach training, none at its default.

    Args:
        case: With a config that has the sections of ZeRO.
        folder: Where the monitor writes.
    """
    config = copy.deepcopy(dict(case.config))
    config |= {
        "activation_checkpointing": {"partition_activations": True, "contiguous_memory_optimization": True,
                                     "number_checkpoints": 2, "synchronize_checkpoint_boundary": True, "profile": True},
        "steps_per_print": 1,
        "wall_clock_breakdown": True,
        "timers": {"throughput": {"enabled": True, "synchronized": True}},
        "csv_monitor": {"enabled": True, "output_path": folder, "job_name": "unread"},
    }  # fmt: skip
    gathers = config["zero_optimization"].get("stage3_gather_16bit_weights_on_model_save", False)
    config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = not gathers
    return attrs.evolve(case, config=config)


def _mixtures(shares: Sequence[starts.Share]) -> list[dict[str, Any]]:
    """The siblings that no plain structure came to."""
    told = dict.fromkeys(starts.model_of(cell.model) for share in shares for cell in share.cells)
    models = {model["model_type"]: model for model in map(json.loads, told)}
    return [models[name] for name in MIXTURES]


def _has_experts(model: Mapping[str, Any]) -> bool:
    """Whether a router chooses what computes a token."""
    return any("expert" in key for key in model)


def told_apart(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config training can tell from another's."""
    kept = {key: copy.deepcopy(value) for key, value in config.items() if key not in NOT_READ}
    for name in PRECISIONS:
        if kept.get(name, {}).get("enabled") is False:
            del kept[name]
    zero = kept.get("zero_optimization", {})
    for key in NOT_READ_OF_ZERO:
        zero.pop(key, None)
    for key, value in OFF_OF_ZERO.items():
        if zero.get(key) == value:
            del zero[key]
    if tensor_parallel_degree(config) > 1:
        kept["tensor_parallel"]["autotp_size"] = DEGREE
    return kept


def _dense(group: Sequence[starts.Share]) -> dict[str, Any]:
    """The sibling of the family that has no experts and is built by most."""
    models: list[dict[str, Any]] = [json.loads(starts.model_of(share.cells[0].model)) for share in group]
    return next(model for model in models if model["model_type"] == "llama")


def _sibling(group: Sequence[starts.Share], used: Counter[str]) -> dict[str, Any]:
    """The sibling of the family that was trained least until now."""
    siblings = dict.fromkeys(starts.model_of(share.cells[0].model) for share in group)
    told = min(siblings, key=lambda text: used[json.loads(text)["model_type"]])
    model: dict[str, Any] = json.loads(told)
    used[model["model_type"]] += 1
    return model


def _cases(config: Mapping[str, Any], model: Mapping[str, Any], whole: int) -> Iterator[Case]:
    """In its own precision and in fp32."""
    places = expectations.optimizer_place(config), expectations.parameter_place(config)
    tp = tensor_parallel_degree(config) > 1
    zero = config.get("zero_optimization", {})
    own = next(name for name in PRECISIONS if name in config)
    said = [f"stage {expectations.stage(config)}", *(["AutoTP 2 x 2"] if tp else []),
            *(f"{what} on {place}" for what, place in zip(("optimizer", "parameters"), places, strict=True)
              if place != "accelerator"),
            *(name for name in ("round_robin_gradients",) if zero.get(name)),
            *(["no overlap"] if zero.get("overlap_comm") is False else []),
            *(["leaf module"] if "leaf_module" in zero else [])]  # fmt: skip
    only_fp32 = "nvme" in places and "leaf_module" in zero
    for precision in ("fp32",) if only_fp32 else (own, "fp32"):
        yield Case(
            name=", ".join([*said, precision]),
            config=shrunk(config, precision, wide="nvme" in places),
            model=model,
            ranks=SPLIT_RANKS if tp else RANKS,
            wide="nvme" in places,
            stands_for=whole if only_fp32 or precision == own else 0,
            resumes=places[0] != "nvme",
        )


def shrunk(config: Mapping[str, Any], precision: str, *, wide: bool, rate: float | None = None) -> dict[str, Any]:
    """The same keys with the numbers of a tiny model, in this precision.

    Args:
        config: As `told_apart` leaves it.
        precision: bf16, fp16 or fp32.
        wide: Whether tensors are swapped to a drive.
        rate: Of learning; None for that of the optimizer.
    """
    used: dict[str, Any] = copy.deepcopy(dict(config))
    for name in PRECISIONS:
        if name != precision:
            used.pop(name, None)
    if precision == "fp16" and "loss_scale" not in used["fp16"]:
        used["fp16"]["initial_scale_power"] = SCALE_POWER
    tp = tensor_parallel_degree(config) > 1
    if tp:
        used["tensor_parallel"]["autotp_size"] = DEGREE
    ranks = SPLIT_RANKS if tp else RANKS
    used |= {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
    if "train_batch_size" in used:  # with AutoTP at stage 3 two checks of DeepSpeed want two numbers
        used["train_batch_size"] = 4 * ranks
    used["gradient_clipping"] = NORM if config.get("gradient_clipping") else 0.0
    chosen = used.get("optimizer", {"type": "", "params": {}})
    if rate is None:
        rate = WIDE_RATE if wide else RATES.get(chosen["type"], RATE)
    if "lr" in chosen["params"]:
        chosen["params"]["lr"] = rate
    schedule = used.get("scheduler", {"params": {}})["params"]
    numbers = {"warmup_max_lr": rate, "warmup_num_steps": WARMUP, "total_num_steps": TOTAL}
    schedule |= {key: value for key, value in numbers.items() if key in schedule}
    zero = used.get("zero_optimization", {})
    zero |= {key: value for key, value in (WIDE if wide else TINY).items() if key in zero}
    if zero.get("offload_param", {}).get("device") == "nvme":
        zero["offload_param"] |= {"max_in_cpu": 0, "buffer_size": BUFFER}
    if "zero_hpz_partition_size" in zero:
        zero["zero_hpz_partition_size"] = HPZ
    return used
