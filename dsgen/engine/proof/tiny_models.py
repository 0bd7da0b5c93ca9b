"""The model of a proof and its data: the tiny Llama, a tiny sibling of another family, or a person's own; adapters."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from dsgen.engine.proof import siblings, tiny_llama

__all__ = ["TinyModel", "load", "loss_of"]

_TOKENS = 16  # per sample, as the tiny Llama's
_WIDE_TOKENS = 4  # of one with millions of parameters: a CPU without AVX512-FP16 multiplies fp16 in plain loops
_SEED = 20
_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16"}


class TinyModel:
    """What is needed to build the model, imported before `zero.Init` changes torch's constructors.

    Attributes:
        build: Makes the model.
        finish: Puts adapters on it and checkpoints it, outside of `zero.Init`.
        partitions: Whether stage 3 makes it partitioned; transformers makes 4-bit models whole.
        unset: Whether a model that is born partitioned has weights that nobody has set, as a checkpoint would.
        tokens: Of a sample.
        recomputed: The kinds of checkpointing that blocks of it were called through.
    """

    def __init__(
        self, build: Callable[[], Any], finish: Callable[[Any], Any], *, partitions: bool = True, unset: bool = False,
        tokens: int = _TOKENS,
    ) -> None:  # fmt: skip
        self.build, self.finish, self.partitions, self.unset, self.tokens = build, finish, partitions, unset, tokens
        self.recomputed: set[str] = set()
        self._batch: Any = None
        self._model: Any = None

    def take(self, made: Any) -> Any:
        """The model of what `build` gave: it, or it and a function of the number of samples that gives its inputs."""
        self._model, self._batch = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        return self._model

    def checkpoint(self, model: Any, kind: str, adapted: bool) -> Any:
        """Recompute its blocks in backward, as the code of `dsgen needs` does: "reentrant" or "non-reentrant"."""
        if kind == "reentrant" and adapted:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"})
        for module in model.modules():
            if hasattr(module, "_gradient_checkpointing_func"):
                module._gradient_checkpointing_func = self._heard(module._gradient_checkpointing_func)
        return model.train()  # in eval mode transformers checkpoints nothing

    def _heard(self, function: Any) -> Callable[..., Any]:
        """A block's checkpointing, which tells its kind when it is called."""

        def checkpoint(*arguments: Any, **named: Any) -> Any:
            self.recomputed.add("reentrant" if function.keywords["use_reentrant"] else "non-reentrant")
            return function(*arguments, **named)

        return checkpoint

    def set_weights(self, partitioned: Any, whole: Any) -> None:
        """Give a model that was born partitioned the weights of one that was not.

        transformers sets weights after it has made the modules, when those of stage 3 are gone already: experts, which
        are no layers of torch's, would keep what lay in memory. One at a time: more would not fit into the buffers that
        parameters on a drive are read to.
        """
        import deepspeed
        import torch

        for own, given in zip(partitioned.parameters(), whole.parameters(), strict=True):
            with torch.no_grad(), deepspeed.zero.GatheredParameters([own], modifier_rank=0):
                own.copy_(given)

    def batch(self, samples: int, seed: int, device: Any) -> dict[str, Any]:
        """The arguments of one forward, the same for the same seed."""
        import torch

        if self._batch is not None:
            torch.manual_seed(seed)
            given = dict(self._batch(samples))
            return {name: value.to(device) if hasattr(value, "to") else value for name, value in given.items()}
        vocabulary = int(getattr(_text_config(self._model), "vocab_size", 0) or 0)
        if not vocabulary:
            raise TypeError(
                "the model has no config.vocab_size: let the function return (model, batch), where batch(samples) "
                "gives the arguments of forward as a dict"
            )
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, vocabulary, (samples, self.tokens), generator=generator).to(device)
        return {"input_ids": tokens, "labels": tokens}


def _text_config(model: Any) -> Any:
    config: Any = getattr(model, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def load(job: dict[str, Any]) -> TinyModel:
    """What builds the model of a job.

    Args:
        job: model (kind tiny, sibling with a config.json, or factory; adapters; checkpointing), ranks, tp, wide, read
            (the config after DeepSpeed's parse).

    Raises:
        ImportError: The person's package or function is not there.
        ValueError: transformers has no such model, or the model's keys contradict each other.
    """
    asked = job.get("model") or {"kind": "tiny"}
    adapters = asked.get("adapters")
    build: Callable[[], Any]
    if asked["kind"] == "factory":
        build = _factory(asked)
    elif asked["kind"] == "sibling":
        build = _sibling(asked["config"], job["tp"], job["wide"], job["ranks"] // job["tp"])
    else:
        # zero.Init patches the tensor constructors; torch 2.13 then cannot import these for the first time.
        import transformers.models.llama.modeling_llama  # noqa: F401

        def build() -> Any:
            return tiny_llama.build(job["tp"], job["wide"], job["ranks"] // job["tp"])

    kind = asked.get("checkpointing", "") if asked["kind"] != "factory" else ""

    def finish(model: Any) -> Any:
        model = model if adapters is None else _adapted(model, adapters, job["read"])
        return subject.checkpoint(model, kind, adapters is not None) if kind else model

    partitions = adapters is None or adapters["method"] != "qlora"
    tokens = _WIDE_TOKENS if job["wide"] else _TOKENS
    subject = TinyModel(build, finish, partitions=partitions, unset=asked["kind"] == "sibling", tokens=tokens)
    return subject


def _sibling(described: dict[str, Any], tp: int, wide: bool, sharing: int) -> Callable[[], Any]:
    from dsgen.engine.simulate import models

    full, _, _ = models.known(described)  # with the class's own values for what the file leaves out
    small = siblings.sibling({**full.to_dict(), "model_type": described["model_type"]}, tp, wide=wide, sharing=sharing)
    hf_config, auto, _ = models.known(small)

    def build() -> Any:
        return auto.from_config(hf_config, attn_implementation="eager")

    return build


def _factory(asked: dict[str, Any]) -> Callable[[], Any]:
    """A person's own function; its package is imported here."""
    if asked.get("folder"):
        sys.path.insert(0, asked["folder"])
    module, _, name = asked["factory"].partition(":")
    function = getattr(importlib.import_module(module), name, None)
    if not callable(function):
        raise ImportError(f"{module} has no function {name}")
    made: Callable[[], Any] = function
    return made


def _adapted(model: Any, asked: dict[str, Any], config: dict[str, Any]) -> Any:
    """The model with adapters, the base frozen, through the real peft."""
    import torch

    from dsgen.engine.proof import four_bits
    from dsgen.engine.simulate import adapters

    precision = next((name for name in _DTYPES if (config.get(name) or {}).get("enabled") is True), None)
    dtype = getattr(torch, _DTYPES.get(precision or "", "float32"))
    zero = config.get("zero_optimization")
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    if asked["method"] == "qlora":
        four_bits.quantize(model, dtype)
    narrow = str(dtype).removeprefix("torch.")
    # The program turns checkpointing on itself.
    request = {"kbit_fp32": "always", **asked, "checkpointing": False, "reentrant": False, "dtype": narrow}
    return adapters.adapt(model, request, stage)


def loss_of(output: Any) -> Any:
    """The loss in what a model's forward gives: `.loss`, ["loss"], the first of a tuple, or all of it."""
    if hasattr(output, "loss"):
        return output.loss
    if isinstance(output, dict):
        return output["loss"]
    return output[0] if isinstance(output, (tuple, list)) else output
