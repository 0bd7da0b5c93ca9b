"""A request to simulate as the constraints of strategies see it: its config as a rule reads it, with its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from dsgen import targets
from dsgen.deepspeed import surface
from dsgen.deepspeed.keys import lookup
from dsgen.documents.document import unwritten
from dsgen.families.hf_config import model_from_hf
from dsgen.linting.setups import of_subject
from dsgen.linting.subjects import Facts, Subject
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import show
from dsgen.shapes.profiles import Hardware, Model
from dsgen.strategies.constraints import Setup

__all__ = ["check_counts", "left_out", "of_config", "older_loss", "said"]

_HEADS, _KEY_HEADS = ("num_attention_heads", "n_head"), ("num_key_value_heads",)


def of_config(
    config: Mapping[str, Any],
    model: Mapping[str, Any],
    world_size: int,
    gpus_per_node: int,
    hardware: Hardware | None,
    run: Any,
) -> Setup:
    """The way to run that a request asks for.

    Args:
        config: As DeepSpeed gets it.
        model: A config.json; of a model that dsgen does not know only its name and its heads are.
        world_size, gpus_per_node: GPUs in all, and of a node.
        hardware: What there is; None where nobody said.
        run: The request's options, each of them decided.
    """
    subject = Subject(
        config=config,
        surface=surface.load(),
        target=targets.find("deepspeed"),
        document=unwritten(config),
        facts=Facts(world_size=world_size, hardware=hardware),
    )
    at = of_subject(subject)
    heads = _whole(model, _HEADS)
    training = attrs.evolve(
        at.training,
        seq_len=run.seq_len,
        method=run.method,
        lora_targets=run.lora_targets or ("all-linear",),
        lora_dropout=run.lora_dropout or 0.0,
        lora_train_embeddings=bool(run.lora_train_embeddings),
        chunked_loss=bool(run.chunked_loss),
    )
    return at._replace(
        precision=at.precision if at.precision == run.dtype else None,  # else the weights are loaded in another type
        training=training,
        model=_known(model),
        architecture=str(model.get("model_type", "")),
        heads=(heads, _whole(model, _KEY_HEADS) or heads) if heads else None,
        gpus_per_node=gpus_per_node,
    )


def check_counts(counts: Mapping[str, Any]) -> None:
    """Refuse what is no whole number of at least 1.

    Raises:
        DsgenError: The first of them.
    """
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise mistake(f"{name} is {value!r}", must="it must be a whole number of at least 1")


def left_out(config: Mapping[str, Any]) -> Iterator[str]:
    """What a config asks of the engine that a simulation does not do, in words."""
    if lookup(config, "compile.deepcompile")[1] is True:
        yield "compile.deepcompile: not simulated; it begins with engine.compile(), and the engine runs uncompiled here"


def said(at: Setup, about: str) -> str:
    """What is, as it was said: a key of the config, or an option."""
    path = at.path(about)
    if about in ("tp", "stage"):
        return f"{path} is {getattr(at, about)}"
    if hasattr(at.keys, about) and "." not in path:
        return f"{path} is {show(getattr(at.keys, about))}"
    return f"{path} is set" if "." in path else f"{path} is {getattr(at.training, about)!r}"


def older_loss(model: Model) -> dict[str, Any] | None:
    """What a model's loss does with the logits, where it is that of an older release of transformers, or of Liger."""
    if model.head_chunk or model.litgpt:
        raise mistake(
            "model.head_chunk or model.litgpt is set",
            must="a simulation runs the classes of transformers and peft, not LitGPT's",
            todo="dsgen memory counts them; or leave them out.",
            code="refused",
        )
    said = {"upcast": model.logits_upcast, "shifted": model.logits_shifted, "liger": model.liger}
    facts = attrs.fields_dict(Model)
    usual = (facts[name].default for name in ("logits_upcast", "logits_shifted", "liger"))
    return None if tuple(said.values()) == tuple(usual) else said


def _whole(model: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    number = next((model[name] for name in names if name in model), None)
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def _known(model: Mapping[str, Any]) -> Model | None:
    try:
        return Model(**model_from_hf(model, "the model"))  # type: ignore[arg-type]
    except DsgenError:  # transformers may know it, or refuse it in its own words
        return None
