"""One way to run, as the constraints see it: made of a job's layout, a config's keys or a request to simulate."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dsgen.families import FAMILIES, family_of
from dsgen.families.family import AutoTP
from dsgen.families.parameters import expert_target, unfused
from dsgen.jobs.job import Job
from dsgen.shapes.profiles import Hardware, Model, Training

__all__ = ["DTYPES", "KEY_PATHS", "Keys", "Setup", "keys", "numbers", "of_layout"]

_LATEST = (10**6,)
_MOST = 2**63  # nothing larger is a size
_UNKNOWN = AutoTP()
_NOTHING_SAID = Training(optimizer="")
_MASTERS = {"bf16": "bf16.bf16_master_weights_and_grads", "fp16": "fp16.fp16_master_weights_and_grads"}
_STATES = "bf16.bf16_optimizer_states"
_TYPE = "optimizer.type"
_HPZ = "zero_optimization.zero_hpz_partition_size"
_SUMS = "data_types.grad_accum_dtype"
_REDUCE_SCATTER = "zero_optimization.reduce_scatter"
_PRESCALE, _PREDIVIDE = "prescale_gradients", "gradient_predivide_factor"
_ADDS = "gradient_allreduce_op"
_ALLGATHER = "zero_optimization.allgather_bucket_size"
_NORM, _CLIPPING = "zero_optimization.compute_grad_norm", "gradient_clipping"
_ZENFLOW = "zero_optimization.zenflow"
_UNTESTED, _FORCED = "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"
# DtypeEnum of deepspeed/runtime/config.py (0.19.8): every name -> the short one
DTYPES: Mapping[str, str] = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
    **dict.fromkeys(("int8", "torch.int8"), "int8"),
}
# What a constraint is about -> the key of a config that says it. A wish that no key says stands under its own name.
KEY_PATHS = {
    "stage": "zero_optimization.stage",
    "offload_optimizer": "zero_optimization.offload_optimizer.device",
    "offload_param": "zero_optimization.offload_param.device",
    "tp": "tensor_parallel.autotp_size",
    "optimizer": _TYPE,
    "states": _STATES,
    "hpz": _HPZ,
    "sums": _SUMS,
    "reduce_scatter": _REDUCE_SCATTER,
    "prescale": _PRESCALE,
    "predivide": _PREDIVIDE,
    "allgather": _ALLGATHER,
    "norm": _NORM,
    "zenflow": _ZENFLOW,
    "own": "optimizer",
    "untested": _UNTESTED,
}


class Keys(NamedTuple):
    """Keys of DeepSpeed's that no strategy has a field for, and that only some strategies can have.

    Attributes:
        masters: Path of the first key that asks for master weights in 16 bits; "" without one.
        states: bf16_optimizer_states is true.
        hpz: zero_hpz_partition_size; 1 is off.
        sums: The type that gradients are summed in: "bf16", "fp16", "fp32" ...; "" where nothing is said.
        reduce_scatter: zero_optimization.reduce_scatter is true; None where nobody says.
        prescale: prescale_gradients counts as true.
        predivide: gradient_predivide_factor; 1 divides nothing.
        adds: gradient_allreduce_op is "sum".
        allgather: allgather_bucket_size; 0 where it is not known.
        norm: compute_grad_norm is not false.
        clipping: gradient_clipping above 0, in words; "" where it is 0 or not known, None where nobody says.
        zenflow: ZenFlow's update_interval: "auto", "4"; "" without ZenFlow.
        own: The program passes an optimizer of torch's, and the config's own is not built.
        named: The optimizer that is built, as the config names it; "" where nobody says.
        untested: zero_allow_untested_optimizer counts as true; None where nobody says.
        forced: zero_force_ds_cpu_optimizer counts as true.
    """

    masters: str = ""
    states: bool = False
    hpz: int = 1
    sums: str = ""
    reduce_scatter: bool | None = None
    prescale: bool = False
    predivide: float = 1.0
    adds: bool = False
    allgather: int = 0
    norm: bool = True
    clipping: str | None = None
    zenflow: str = ""
    own: bool = False
    named: str = ""
    untested: bool | None = None
    forced: bool = True


_NO_KEYS = Keys()


def keys(value: Callable[[str], Any]) -> Keys:
    """The keys in force; `value` is the value of a key by its path."""
    hpz, sums, predivide = value(_HPZ), value(_SUMS), value(_PREDIVIDE)
    scatters, prescale, allgather, clipping = (
        value(_REDUCE_SCATTER),
        value(_PRESCALE),
        value(_ALLGATHER),
        value(_CLIPPING),
    )
    zenflow, named, untested, forced = value(_ZENFLOW), value(_TYPE), value(_UNTESTED), value(_FORCED)
    return Keys(
        masters=next((path for path in _MASTERS.values() if value(path) is True), ""),
        states=value(_STATES) is True,
        hpz=hpz if isinstance(hpz, int) and not isinstance(hpz, bool) and hpz > 1 else 1,
        sums=DTYPES.get(sums, sums) if isinstance(sums, str) and sums != "auto" else "",
        reduce_scatter=scatters is True if scatters is not None else None,
        prescale=bool(prescale) and prescale != "auto",
        predivide=predivide if _number(predivide) else 1.0,
        adds=str(value(_ADDS)).lower() == "sum",
        allgather=int(allgather) if _number(allgather) and 0 < allgather < _MOST and allgather == int(allgather) else 0,
        norm=value(_NORM) is not False,
        clipping=None if clipping is None else str(clipping) if _number(clipping) and clipping > 0 else "",
        zenflow=str(zenflow.get("update_interval", "auto")) if isinstance(zenflow, Mapping) else "",
        named=named if isinstance(named, str) else "",
        untested=bool(untested) if untested is not None else None,
        forced=bool(forced) if forced is not None else True,
    )


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Setup(NamedTuple):
    """One way to run. Of what is None nothing is known, and no constraint speaks of it.

    Attributes:
        version: The DeepSpeed release that runs it: "0.19.8"; "" where it does not matter.
        stage, offload_optimizer, offload_param, tp, precision: As of a strategy.
        training: What is wanted; its optimizer is "" where it is not known.
        hardware, model: Profiles.
        architecture: The model's `model_type`; "" where it is not known.
        heads: Query heads, and key heads.
        world, gpus_per_node: GPUs in all, and of a node.
        narrow: Master weights are to be kept in 16 bits.
        keys: The other keys.
    """

    version: str = ""
    stage: int | None = None
    offload_optimizer: str = "none"
    offload_param: str = "none"
    tp: int = 1
    precision: str | None = None
    training: Training = _NOTHING_SAID
    hardware: Hardware | None = None
    model: Model | None = None
    architecture: str = ""
    heads: tuple[int, int] | None = None
    world: int | None = None
    gpus_per_node: int | None = None
    narrow: bool = False
    keys: Keys = _NO_KEYS

    @property
    def release(self) -> tuple[int, ...]:
        """The release as numbers."""
        return numbers(self.version)

    @property
    def sixteen(self) -> bool:
        """Whether it computes in 16 bits."""
        return self.precision in ("bf16", "fp16")

    @property
    def adapters(self) -> bool:
        """Whether adapters are trained beside a frozen model."""
        return self.training.method != "full"

    @property
    def encoder(self) -> bool:
        """Whether the model is a decoder behind an encoder."""
        return self.model is not None and self.model.encoder_layers > 0

    @property
    def wrapped(self) -> bool:
        """Whether BF16_Optimizer runs and not ZeRO's own: stage 1, bf16, gradients summed in fp32, nothing on the CPU.

        Source: deepspeed/runtime/engine.py (0.19.8), _do_optimizer_sanity_check.
        """
        sums = self.precision == "bf16" and self.keys.sums == "fp32"
        return sums and self.stage == 1 and self.offload_optimizer != "cpu"

    @property
    def autotp(self) -> AutoTP:
        """What AutoTP makes of the model; of one that is not known nothing is."""
        family = FAMILIES.get(self.architecture)
        return family.autotp if family is not None else _UNKNOWN

    @property
    def unsplit(self) -> str | None:
        """Why AutoTP does not train the model; None where it does, or without AutoTP."""
        refused = self.autotp.refused if self.tp > 1 else ""
        return refused.format(self.architecture) or None

    @property
    def unfused(self) -> str:
        """The modules of the model that peft adapts as linear layers."""
        return ", ".join(unfused(self.model)) if self.model is not None else ""

    @property
    def experts(self) -> str:
        """Weights of experts that get adapters while stage 3 gathers the mixture in parts; "" without any."""
        model = self.model
        if model is None or not self.adapters or model.encoder_layers or family_of(model).leaf:
            return ""
        return expert_target(model, self.training.lora_targets) or ""

    def path(self, about: str) -> str:
        """The key of a config that says what a constraint is about; a wish's own name where none does."""
        if about == "masters":
            return self.keys.masters or _MASTERS["bf16"]
        return f"{self.precision}.enabled" if about == "precision" else KEY_PATHS.get(about, about)


def of_layout(job: Job, layout: Any, said: Keys = _NO_KEYS) -> Setup:
    """A job's layout.

    Args:
        job: The job.
        layout: Anything with stage, offload_optimizer, offload_param, tp and precision.
        said: The keys beside it, where what nobody says is as it is planned; without them only what the strategy itself
            decides is looked at.
    """
    model = job.model
    return Setup(
        version=job.version,
        stage=layout.stage,
        offload_optimizer=layout.offload_optimizer,
        offload_param=layout.offload_param,
        tp=layout.tp,
        precision=layout.precision,
        training=job.training,
        hardware=job.hardware,
        model=model,
        architecture=model.architecture,
        heads=(model.attention_heads, model.kv_heads),
        world=job.world,
        gpus_per_node=job.gpus_per_node,
        narrow=bool(job.narrow) or bool(said.masters),
        keys=said if said is _NO_KEYS else _planned(said, job.training, layout.stage),
    )


def _planned(said: Keys, training: Training, stage: int) -> Keys:
    """The keys as they are rendered: what nobody says of those that a plan writes is as it writes them."""
    scatters = not (stage == 3 and training.optimizer == "Muon")
    return said._replace(
        reduce_scatter=scatters if said.reduce_scatter is None else said.reduce_scatter,
        clipping=str(training.gradient_clipping or "") if said.clipping is None else said.clipping,
        named=said.named or training.optimizer,
        untested=said.untested is not False,
    )


@functools.lru_cache(maxsize=64)
def numbers(version: str) -> tuple[int, ...]:
    """A release as numbers: (0, 19, 8); later than every other where none is said."""
    return tuple(int(part) for part in version.split(".")) if version else _LATEST
