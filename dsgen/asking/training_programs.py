"""What Axolotl, LLaMA-Factory, ms-swift and TRL do by themselves where their file of arguments says nothing.

Sources, all of 07 and 08-2026: Axolotl utils/config (normalize_config) and utils/schemas; LLaMA-Factory hparams and
model/model_utils/checkpointing.py; ms-swift arguments and trainers/mixin.py; TRL 1.10 trainer/model_config.py,
sft_config.py and scripts/sft.py; peft 0.21 utils/constants.py.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from dsgen import catalog
from dsgen.linting.python_programs import CONFIG_OF_TRL, OF_PEFT
from dsgen.memory.loading import KBIT_FP32_OF, LOADINGS_OF
from dsgen.shapes.errors import DsgenError

__all__ = ["AXOLOTL", "LLAMA_FACTORY", "SWIFT", "TRL", "attention_of", "evaluates", "framework_of", "is_a_trainer",
           "kbit_fp32", "left_out", "loading", "lora_fp32", "nested", "program_of", "refused_by_peft", "shares_rows",
           "targets", "targets_of", "trained_whole", "trainer_of_trl", "trains_embeddings", "type_of",
           "with_defaults"]  # fmt: skip

AXOLOTL, LLAMA_FACTORY, SWIFT, TRL = "axolotl", "llama-factory", "ms-swift", "trl"
# Keys that one program alone has. A bare Trainer's file says nothing of how its program loads.
_MARKS = {
    LLAMA_FACTORY: ("finetuning_type", "disable_gradient_checkpointing"),
    AXOLOTL: ("sequence_len", "base_model_config", "adapter"),
    SWIFT: ("train_type", "tuner_type", "quant_bits"),
    TRL: ("use_peft", "use_bnb_nested_quant", "dataset_text_field", "assistant_only_loss", "lora_modules_to_save"),
}
# Argument -> its default, where none of the other names of the same is said.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    LLAMA_FACTORY: {"finetuning_type": "lora", "lora_rank": 8, "cutoff_len": 2048},
    SWIFT: {
        "tuner_type": "lora",
        "lora_rank": 8,
        "lora_dropout": 0.05,
        "gradient_checkpointing": True,
        "per_device_eval_batch_size": 1,
    },
    TRL: {
        "use_peft": False,
        "lora_r": 16,
        "lora_dropout": 0.05,
        "gradient_checkpointing": True,
        "max_length": 1024,
    },
}
_SAME = (
    ("tuner_type", "train_type"),
    ("max_length", "max_seq_length", "max_completion_length"),  # who generates answers has no length of the whole
)
# Keys by which a program is given something to evaluate; a share of the data, a set of its own, or when.
_EVALUATED = {
    AXOLOTL: ("val_set_size", "test_datasets"),
    LLAMA_FACTORY: ("val_size", "eval_dataset", "do_eval", "eval_strategy", "evaluation_strategy"),
    SWIFT: ("val_dataset", "split_dataset_ratio", "eval_dataset"),
    TRL: ("eval_strategy", "evaluation_strategy", "do_eval"),
}
_BATCHES = ("per_device_eval_batch_size", "eval_batch_size")  # transformers', Axolotl's
_NOTHING = (None, False, 0, "", "no")
# Matrices that get adapters where nobody names any, by the model's type: peft's own choice, which TRL leaves to it.
_QUERY_AND_VALUE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "opt", "gptj",
                    "stablelm")  # fmt: skip
_OF_PEFT = {
    **dict.fromkeys(_QUERY_AND_VALUE, ("q_proj", "v_proj")),
    **dict.fromkeys(("bloom", "gpt_neox", "falcon"), ("query_key_value",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    **dict.fromkeys(("t5", "mt5"), ("q", "v")),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
}
# The kernel of attention that a program asks for by itself where nobody does, by the model's type (LLaMA-Factory
# model_utils/attention.py, ms-swift model/models/gemma.py). Of others transformers takes sdpa, or eager where a class
# has none (modeling_utils.py of 5.23).
_ATTENTIONS: Mapping[str, Mapping[str, str]] = {
    LLAMA_FACTORY: {"gemma2": "flash", "gpt_oss": "flash"},
    SWIFT: {"gemma2": "eager", "gemma3_text": "eager"},
}
_OF_TRANSFORMERS = "sdpa"
_OF_TRAINER = "per_device_train_batch_size"  # of TrainingArguments, and of no program's own
# What a plan chooses where a file leaves it out, and a run does by default: the Trainer's batch, of which ms-swift has
# its own, and no checkpointing.
_BATCH = {"micro_batch": 8, "accumulation": 1}
_LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    LLAMA_FACTORY: _BATCH,
    TRL: _BATCH,
    SWIFT: {"micro_batch": 1},
    AXOLOTL: {"checkpointing": "none"},
}
_ARGUMENTS = {
    "micro_batch": _OF_TRAINER,
    "accumulation": "gradient_accumulation_steps",
    "checkpointing": "gradient_checkpointing",
}
_OF_A_TRAINER = {**_BATCH, "checkpointing": "none"}
# Modules that are trained whole beside adapters: Axolotl and TRL, peft and ms-swift, LLaMA-Factory; and the input
# embeddings and output heads among them.
_WHOLE = ("lora_modules_to_save", "modules_to_save", "additional_target")
_EMBEDDINGS, _HEADS = ("embed_tokens", "wte", "embed_in", "word_embeddings"), ("lm_head", "embed_out")
# Arguments of TRL's other trainers that an SFTConfig does not have, where a file does not say whose it is.
_PREFERENCES = ("beta", "num_generations", "max_prompt_length", "max_completion_length")
_DTYPES = ("dtype", "torch_dtype")  # of the weights that TRL loads: fp32 where nobody says another


def program_of(values: Mapping[str, Any]) -> str | None:
    """The program whose arguments they are; None of a program of one's own."""
    return next((program for program, marks in _MARKS.items() if any(name in values for name in marks)), None)


def is_a_trainer(values: Mapping[str, Any]) -> bool:
    """Whether they are of a program known, or of one of a person's own with the Trainer of transformers."""
    return program_of(values) is not None or _OF_TRAINER in values


def framework_of(values: Mapping[str, Any]) -> str | None:
    """The program whose arguments they are, as `--target` has it: of TRL's, and of one's own, the Trainer."""
    program = program_of(values)
    return program if program in (AXOLOTL, LLAMA_FACTORY, SWIFT) else "hf-trainer" if is_a_trainer(values) else None


def trainer_of_trl(values: Mapping[str, Any]) -> str:
    """Which of TRL's trainers has such arguments, as its config's name begins: SFT, DPO ..."""
    trained = values.get(CONFIG_OF_TRL) or ("DPO" if any(name in values for name in _PREFERENCES) else "SFT")
    return str(trained)


def with_defaults(values: Mapping[str, Any], computed: Container[str] = ()) -> dict[str, Any]:
    """All arguments, those that the program sets by itself too.

    Args:
        values: Its arguments.
        computed: Names of others, which only running the program would tell.
    """
    program = program_of(values)
    default = {
        name: value
        for name, value in _DEFAULTS.get(program or "", {}).items()
        if not any(
            other in values or other in computed for other in next((same for same in _SAME if name in same), (name,))
        )
    }
    merged = {**default, **values}
    return {**merged, **dict(_recomputes(program, merged))}


def _recomputes(program: str | None, values: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """What it sets of its checkpointing: LLaMA-Factory recomputes, by the reentrant kind, where nobody says otherwise.

    Axolotl takes that kind unless it trains on preferences, ms-swift beside DeepSpeed, TRL for adapters at stage 3,
    whatever its file says (sft_trainer.py of 1.10; at other stages nothing is gathered that it would let go). The
    Trainer of transformers 5 takes the other one, and so do Axolotl and TRL beside activation_offloading, but for that.
    """
    if program == LLAMA_FACTORY and values.get("gradient_checkpointing") is None:
        on = values.get("disable_gradient_checkpointing") is not True
        yield "gradient_checkpointing", on
        yield "use_reentrant_gc", values.get("use_reentrant_gc", on) is True
    if values.get("gradient_checkpointing") is not True or values.get("activation_offloading") is True:
        return
    if program == TRL:
        yield from [("use_reentrant", True)] if values.get("load_in_4bit") is True else []
    elif program != LLAMA_FACTORY and "use_reentrant" not in values:
        yield "use_reentrant", program == SWIFT or (program == AXOLOTL and not values.get("rl"))


def loading(values: Mapping[str, Any]) -> str | None:
    """How it loads a model that no zero.Init makes; None where it is not known."""
    program = program_of(values)
    if program != TRL:
        return LOADINGS_OF.get(program or "")
    said = next((values[name] for name in _DTYPES if values.get(name)), "float32")
    return "fp32" if said == "float32" and values.get("load_in_4bit") is not True else "mapped"


def kbit_fp32(values: Mapping[str, Any]) -> str | None:
    """When it makes fp32 of what a base has not in 4 bits; TRL's SFTTrainer does not since 0.27; None: not known."""
    program = program_of(values)
    return "never" if program == TRL else KBIT_FP32_OF.get(program or "")


def lora_fp32(values: Mapping[str, Any]) -> bool:
    """Whether adapters are fp32 at stage 3, as peft makes them: TRL tells it not to there."""
    return program_of(values) != TRL


def trained_whole(values: Mapping[str, Any]) -> list[str]:
    """The modules that are trained whole beside adapters, each by the last part of its name."""
    told = next((values[name] for name in _WHOLE if values.get(name)), ())
    names = told.split(",") if isinstance(told, str) else told if isinstance(told, list) else ()
    return [str(one).strip().rpartition(".")[2] for one in names]


def trains_embeddings(values: Mapping[str, Any]) -> bool:
    """Whether they are the input embedding and the output head, and nothing else."""
    names = trained_whole(values)
    both = any(name in _EMBEDDINGS for name in names) and any(name in _HEADS for name in names)
    return both and all(name in (*_EMBEDDINGS, *_HEADS) for name in names)


def nested(values: Mapping[str, Any]) -> bool:
    """Whether the scales of 4-bit weights are quantized too: TRL does it only where it is told to."""
    return program_of(values) != TRL


def shares_rows(values: Mapping[str, Any]) -> Iterator[str]:
    """How samples share a row whose attention stops at their borders, as a scenario has it: packing, padding_free.

    LLaMA-Factory's `packing` alone lets attention go on, as does a strategy of TRL's that cuts text anywhere.
    """
    program = program_of(values)
    key = {LLAMA_FACTORY: "neat_packing", AXOLOTL: "sample_packing"}.get(program or "", "packing")
    if values.get(key) is True and values.get("packing_strategy") != "wrapped":
        yield "packing"
    elif values.get("padding_free") is True and values.get("packing") is not True:
        yield "padding_free"


def targets(values: Mapping[str, Any], model: str | None) -> list[str] | None:
    """The matrices that get adapters where its file names none; None: dsgen's own default, all, or not known.

    Args:
        values: Its arguments.
        model: The base by its name.
    """
    return [*_OF_PEFT.get(_left_to_peft(values, model) or "", ())] or None


def targets_of(values: Mapping[str, Any], architecture: str) -> list[str] | None:
    """The same of a model of which the type is known, and not the name."""
    return [*_OF_PEFT.get(architecture, ())] or None if _leaves_to_peft(values) else None


def refused_by_peft(values: Mapping[str, Any], model: str | None) -> str | None:
    """The model's type, of which peft has no matrices where nobody names any; None where it has, or it is not known."""
    kind = _left_to_peft(values, model)
    return kind if kind not in _OF_PEFT else None


def attention_of(values: Mapping[str, Any], model: str | None) -> str | None:
    """The kernel of attention that runs where nobody asks for one, as a scenario has it; None: it is not known.

    Args:
        values: The arguments.
        model: The base by its name.
    """
    program = program_of(values)
    own = _ATTENTIONS.get(program or "", {})
    return own.get((own and type_of(model)) or "", _OF_TRANSFORMERS) if program is not None else None


def _left_to_peft(values: Mapping[str, Any], model: str | None) -> str | None:
    """The type of a model whose matrices peft chooses, where it is known."""
    return type_of(model) if _leaves_to_peft(values) else None


def type_of(model: str | None) -> str | None:
    """The type of a model by its name, as transformers has it; None where it is not known."""
    if model is None:
        return None
    try:
        layer = catalog.find("model", model).layer
    except DsgenError:  # a folder, or a repository that nobody here knows
        return None
    types = [str(item.value) for item in layer.overrides if item.path == "model.architecture"]
    return types[-1] if types else None


def _leaves_to_peft(values: Mapping[str, Any]) -> bool:
    """Whether peft chooses the matrices where nobody names any."""
    return program_of(values) == TRL or OF_PEFT in values


def left_out(values: Mapping[str, Any], computed: Container[str] = ()) -> Mapping[str, Any]:
    """Field of a scenario -> what the program does where its file says nothing, and a plan would choose.

    Args:
        values: Its arguments.
        computed: Names of others, which only running the program would tell.
    """
    program = program_of(values)
    left = _LEFT_OUT[program] if program is not None else _OF_A_TRAINER if _OF_TRAINER in values else {}
    return {field: value for field, value in left.items() if _ARGUMENTS[field] not in computed}


def evaluates(values: Mapping[str, Any]) -> int | None:
    """Sequences of an evaluation's batch on one GPU; 0 where nothing is evaluated, None where it is not known.

    Axolotl takes the micro-batch where nobody says another, ms-swift one, LLaMA-Factory and TRL the Trainer's default.
    """
    program = program_of(values)
    said = next((int(values[name]) for name in _BATCHES if _is_count(values.get(name))), None)
    if said is not None:
        return said
    if program is None:  # a program may evaluate by itself, unless it is told not to
        told = [name for name in _EVALUATED[LLAMA_FACTORY] if name in values]
        return 0 if told and all(values[name] in _NOTHING for name in told) else None
    if all(values.get(name) in _NOTHING for name in _EVALUATED[program]):
        return 0
    default: Any = values.get("micro_batch_size") if program == AXOLOTL else _DEFAULTS[program].get(_BATCHES[0])
    return int(default) if _is_count(default) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
