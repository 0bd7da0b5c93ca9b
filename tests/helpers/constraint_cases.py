"""For every constraint of strategies a way to run that it refuses, and one beside it that it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

import dsgen
from dsgen.families.hf_config import to_hf_config
from dsgen.jobs.job import Job
from dsgen.linting.subjects import Facts
from dsgen.simulating import Options, Request, from_config
from dsgen.strategies.constraints import Setup, keys, of_layout
from dsgen.strategies.strategies import Layout

__all__ = ["CASES", "Case"]

T5 = {
    "model_type": "t5", "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6,
    "num_decoder_layers": 6, "num_heads": 8, "relative_attention_num_buckets": 32, "dropout_rate": 0.0,
    "feed_forward_proj": "relu", "tie_word_embeddings": True,
}  # fmt: skip
HPZ = "zero_optimization.zero_hpz_partition_size"


@attrs.frozen(kw_only=True)
class Case:
    """A job, one strategy of it, and the keys that stand beside it, by their paths."""

    stage: int = 2
    offload_optimizer: str = "none"
    offload_param: str = "none"
    tp: int = 1
    precision: str = "bf16"
    hardware: str = "a100-80g"
    model: str = "1b"
    gpus: int = 8
    deepspeed: str | None = None
    wishes: dict[str, Any] = attrs.field(factory=dict)
    keys: dict[str, Any] = attrs.field(factory=dict)
    own: bool = False  # the program brings an optimizer of its own

    def job(self, folder: Path) -> Job:
        """The job whose pins leave this strategy alone, with or without recomputation."""
        model = self.model
        if model == "t5":
            (folder / "config.json").write_text(json.dumps(T5), encoding="utf-8")
            model = str(folder / "config.json")
        tree: dict[str, Any] = {}
        for name in ("optimizer", "param"):
            _put(tree, f"zero_optimization.offload_{name}.device", getattr(self, f"offload_{name}"))
        for path, value in self.keys.items():
            _put(tree, path, value)
        tree |= {"optimizer": None} if self.own else {}
        wanted = {"zero_stage": self.stage, "tp": self.tp, "precision": self.precision, "micro_batch": 1}
        layers = dsgen.profile(self.hardware) | dsgen.profile(model)
        layers = layers | {"training": wanted, "cluster": {"gpus": self.gpus}, "deepspeed": tree}
        job = dsgen.job(layers, deepspeed=self.deepspeed)
        return attrs.evolve(job, training=attrs.evolve(job.training, **self.wishes))

    def layout(self) -> Layout:
        """The strategy."""
        names = ("stage", "offload_optimizer", "offload_param", "tp", "precision")
        return Layout(checkpointing=True, **{name: getattr(self, name) for name in names})

    def setup(self, folder: Path) -> Setup:
        """As constraints see it."""
        return of_layout(self.job(folder), self.layout(), keys(self.keys.get)._replace(own=self.own))

    def config(self) -> dict[str, Any]:
        """What DeepSpeed reads."""
        tree: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": self.stage}}
        kind = self.wishes.get("optimizer", "AdamW")
        tree |= {} if self.own else {"optimizer": {"type": kind, "params": {"lr": 1e-5}}}
        said = dict(self.keys)
        for name in ("optimizer", "param"):
            if (place := getattr(self, f"offload_{name}")) != "none":
                said[f"zero_optimization.offload_{name}.device"] = place
                said |= {f"zero_optimization.offload_{name}.nvme_path": "/local_nvme"} if place == "nvme" else {}
        if self.precision != "fp32":
            said[f"{self.precision}.enabled"] = True
        if self.tp > 1:
            said["tensor_parallel.autotp_size"] = self.tp
        if self.stage == 3 and kind == "Muon":
            said.setdefault("zero_optimization.reduce_scatter", False)
        for path, value in said.items():
            _put(tree, path, value)
        return tree

    def facts(self) -> Facts:
        """What a rule knows besides."""
        own = "torch" if self.own else None
        return Facts(world_size=self.gpus, hardware=self.hardware, client_optimizer=own)

    def request(self, folder: Path) -> Request:
        """What is asked of a simulation."""
        job, named = self.job(folder), ("method", "lora_targets", "lora_dropout", "lora_train_embeddings")
        wishes = {name: value for name, value in self.wishes.items() if name in (*named, "chunked_loss", "seq_len")}
        model = T5 if self.model == "t5" else to_hf_config(attrs.asdict(job.model))
        options = Options(**wishes, dtype=self.precision)
        return from_config(
            self.config(), model=model, world_size=self.gpus, gpus_per_node=8, hardware=job.hardware, options=options
        )


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *sections, last = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value


_MASTER = {"bf16.bf16_master_weights_and_grads": True}
_STATES = {"bf16.bf16_optimizer_states": True}
_BESIDE = {"method": "lora", "lora_train_embeddings": True}
_EIGHT_BITS = {"optimizer": "AdamW8bit"}
_ALLOWED = {"zero_allow_untested_optimizer": True}
_SUMS = "data_types.grad_accum_dtype"
_FACTOR = "gradient_predivide_factor"
_BUCKET = "zero_optimization.allgather_bucket_size"
_FLOW = "zero_optimization.zenflow"
_NO_NORM = {"zero_optimization.compute_grad_norm": False, "gradient_clipping": 0.0}
_INTERVAL = {"select_strategy": "step", "select_interval": 8, "update_interval": 4}

# Code -> what is refused, and what of it to change for it not to be.
CASES: dict[str, tuple[Case, dict[str, Any]]] = {
    "no-16-bit-units": (Case(hardware="v100-32g"), {"precision": "fp16"}),
    "8-bit-states-offloaded": (
        Case(wishes=_EIGHT_BITS, keys=_ALLOWED, offload_optimizer="cpu"),
        {"offload_optimizer": "none"},
    ),
    "optimizer-offload-at-stage-0": (Case(stage=0, offload_optimizer="cpu"), {"stage": 1}),
    "adagrad-at-stage-0": (Case(stage=0, wishes={"optimizer": "Adagrad"}), {"stage": 1}),
    "masters-at-stage-0": (Case(stage=0, keys={**_MASTER, **_STATES}), {"stage": 1}),
    "masters-at-stage-2-alone": (
        Case(
            stage=1,
            precision="fp16",
            keys={"fp16.fp16_master_weights_and_grads": True},
            deepspeed="0.17",
            offload_optimizer="cpu",
        ),
        {"stage": 2},
    ),
    "fp16-at-stage-0": (Case(stage=0, precision="fp16"), {"stage": 1}),
    "bf16-at-stage-0": (Case(stage=0, deepspeed="0.18.4"), {"deepspeed": "0.18.6"}),
    "parameter-offload-below-stage-3": (Case(stage=2, offload_param="cpu"), {"stage": 3}),
    "nvme-below-stage-3": (Case(stage=2, offload_optimizer="nvme"), {"stage": 3}),
    "no-nvme": (Case(stage=3, offload_optimizer="nvme", hardware="v100-16g", precision="fp16"), {"hardware": "t4-16g"}),
    "offload-on-a-cpu": (
        Case(offload_optimizer="cpu", hardware="cpu", precision="fp32", gpus=2, model="125m"),
        {"offload_optimizer": "none"},
    ),
    "muon-at-stage-3": (Case(stage=3, wishes={"optimizer": "Muon"}, deepspeed="0.18.8"), {"deepspeed": "0.18.9"}),
    "gradual-stages-on-a-cpu": (
        Case(hardware="cpu", model="125m", gpus=2, precision="fp32", deepspeed="0.18.9"),
        {"deepspeed": "0.19.0"},
    ),
    "copies-at-stage-3": (Case(stage=3, wishes=_BESIDE), {"offload_param": "cpu"}),
    "copies-not-counted": (Case(wishes={**_BESIDE, "optimizer": "Muon"}), {"wishes": _BESIDE}),
    "encoder-with-autotp": (Case(model="t5", tp=2), {"tp": 1}),
    "encoder-on-nvme": (Case(model="t5", stage=3, offload_param="nvme"), {"offload_param": "cpu"}),
    "no-autotp": (Case(tp=2, deepspeed="0.16.3"), {"deepspeed": "0.16.4"}),
    "autotp-unsplit": (Case(tp=2, model="gpt2"), {"model": "opt-125m"}),
    "autotp-with-biased-rows": (Case(tp=2, model="opt-125m", deepspeed="0.16.9"), {"deepspeed": "0.17.0"}),
    "autotp-splits-the-head-alone": (Case(tp=2, model="gpt-oss-20b", stage=1), {"tp": 1}),
    "autotp-with-adapters": (Case(tp=2, wishes={"method": "lora"}), {"wishes": {}}),
    "autotp-and-gpus": (Case(tp=4, gpus=6, deepspeed="0.19"), {"gpus": 4}),
    "autotp-leaves-the-node": (Case(tp=16, gpus=16), {"tp": 8}),
    "autotp-and-heads": (Case(tp=8, model="gemma-3-4b"), {"tp": 4}),
    "autotp-at-stage-0": (Case(tp=2, stage=0), {"stage": 1}),
    "autotp-at-stage-3": (Case(tp=2, stage=3, deepspeed="0.19.3"), {"deepspeed": "0.19.4"}),
    "activation-offloading-reentrant": (
        Case(wishes={"activation_offloading": True, "reentrant": True}),
        {"wishes": {"activation_offloading": True}},
    ),
    "activation-offloading-of-adapters-at-stage-3": (
        Case(stage=3, wishes={"method": "lora", "activation_offloading": True}),
        {"stage": 2},
    ),
    "activation-offloading-with-autotp": (
        Case(tp=2, stage=1, wishes={"activation_offloading": True}),
        {"tp": 1},
    ),
    "activation-offloading-of-encoder": (Case(model="t5", wishes={"activation_offloading": True}), {"model": "1b"}),
    "adapters-of-experts-at-stage-3": (
        Case(model="deepseek-v3", stage=3, gpus=64, hardware="b200-180g", wishes={"method": "lora"}),
        {"wishes": {"method": "lora", "lora_targets": ("o_proj",)}},
    ),
    "autotp-with-chunked-loss": (Case(tp=2, wishes={"chunked_loss": True}), {"tp": 1}),
    "masters-on-the-gpu": (Case(keys=_MASTER), {"keys": {**_MASTER, **_STATES}}),
    "masters-without-cpu-adam": (
        Case(offload_optimizer="cpu", wishes={"optimizer": "Lion"}, keys=_MASTER),
        {"wishes": {"optimizer": "Adam"}},
    ),
    "masters-on-nvme": (
        Case(stage=3, offload_optimizer="nvme", offload_param="cpu", keys=_MASTER),
        {"offload_optimizer": "cpu"},
    ),
    "states-without-masters": (Case(keys=_STATES), {"keys": {**_MASTER, **_STATES}}),
    "hpz-and-gpus": (Case(stage=3, keys={HPZ: 3}), {"keys": {HPZ: 4}}),
    "hpz-above-gpus": (Case(stage=3, keys={HPZ: 16}), {"keys": {HPZ: 8}}),
    "hpz-with-nvme": (Case(stage=3, offload_param="nvme", keys={HPZ: 4}), {"offload_param": "cpu"}),
    "muon-with-reduce-scatter": (
        Case(stage=3, wishes={"optimizer": "Muon"}, keys={"zero_optimization.reduce_scatter": True}),
        {"stage": 2},
    ),
    "sums-at-stage-0": (Case(stage=0, precision="fp32", keys={_SUMS: "bf16"}), {"keys": {_SUMS: "fp32"}}),
    "fp32-sums-at-stage-0": (Case(stage=0, keys={_SUMS: "fp32"}), {"stage": 1}),
    "bf16-sums-at-stage-0": (Case(stage=0, keys={_SUMS: "bf16"}, deepspeed="0.17.5"), {"deepspeed": "0.17.6"}),
    "prescale-with-reduce-scatter": (Case(keys={"prescale_gradients": True}), {"stage": 1}),
    "predivide-with-reduce-scatter": (Case(stage=3, keys={_FACTOR: 2.0}), {"keys": {_FACTOR: 1.0}}),
    "odd-allgather-bucket": (Case(keys={_BUCKET: 100_000_001}), {"keys": {_BUCKET: 100_000_002}}),
    "no-norm-at-the-stage": (Case(stage=3, keys=_NO_NORM), {"stage": 2}),
    "no-norm-with-clipping": (Case(keys={**_NO_NORM, "gradient_clipping": 0.5}), {"keys": _NO_NORM}),
    "no-norm-in-bf16": (Case(stage=1, keys={**_NO_NORM, _SUMS: "fp32"}), {"stage": 2}),
    "no-norm-with-offload": (Case(offload_optimizer="cpu", keys=_NO_NORM), {"offload_optimizer": "none"}),
    "zenflow-without-interval": (
        Case(offload_optimizer="cpu", keys={_FLOW: {"topk_ratio": 0.1}}),
        {"keys": {_FLOW: _INTERVAL}},
    ),
    "own-optimizer-offloaded": (
        Case(offload_optimizer="cpu", own=True),
        {"keys": {"zero_force_ds_cpu_optimizer": False}},
    ),
    "untested-optimizer": (
        Case(wishes={"optimizer": "SGD"}, keys={"zero_allow_untested_optimizer": False}),
        {"keys": {"zero_allow_untested_optimizer": True}},
    ),
    "no-muon": (Case(wishes={"optimizer": "Muon"}, deepspeed="0.17.5"), {"deepspeed": "0.17.6"}),
    "8-bit-states-elsewhere": (
        Case(wishes=_EIGHT_BITS, keys=_ALLOWED, hardware="gaudi2-96g"),
        {"hardware": "a100-80g"},
    ),
    "learned-positions": (Case(model="gpt2", wishes={"seq_len": 2048}), {"wishes": {"seq_len": 1024}}),
    "dropout-of-experts": (
        Case(model="mixtral-8x7b", stage=3, wishes={"method": "lora", "lora_dropout": 0.1}),
        {"wishes": {"method": "lora"}},
    ),
    "copies-of-tied-weights": (Case(model="gemma-3-1b", wishes=_BESIDE), {"wishes": {"method": "lora"}}),
    "head-copied-and-adapted": (Case(wishes={**_BESIDE, "lora_targets": ("lm_head",)}), {"wishes": _BESIDE}),
    "head-adapted-and-chunked": (
        Case(wishes={"method": "lora", "lora_targets": ("lm_head",), "chunked_loss": True}),
        {"wishes": {"method": "lora", "lora_targets": ("q_proj",), "chunked_loss": True}},
    ),
    "encoder-with-qlora": (Case(model="t5", wishes={"method": "qlora"}), {"wishes": {"method": "lora"}}),
    "encoder-with-chunked-loss": (Case(model="t5", wishes={"chunked_loss": True}), {"model": "1b"}),
    "encoder-with-muon": (Case(model="t5", wishes={"optimizer": "Muon"}), {"wishes": {"optimizer": "Lion"}}),
    "encoder-with-sdpa": (Case(model="t5", wishes={"attention": "sdpa"}), {"wishes": {"attention": "eager"}}),
    "encoder-with-dotted-targets": (
        Case(model="t5", wishes={"method": "lora", "lora_targets": ("EncDecAttention.q",)}),
        {"wishes": {"method": "lora", "lora_targets": ("q",)}},
    ),
}
