"""Model families: all that is special about one stands in one file, and this lists them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from importlib import import_module

from dsgen.families.family import Family
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer
from dsgen.shapes.profiles import Model

__all__ = ["FAMILIES", "Family", "family_of"]

# model_type -> its file, and its name there
_LISTED: Mapping[str, tuple[str, str]] = {
    "bloom": ("bloom", "BLOOM"),
    "cohere": ("cohere", "COHERE"),
    "deepseek_v2": ("deepseek", "DEEPSEEK_V2"),
    "deepseek_v3": ("deepseek", "DEEPSEEK_V3"),
    "falcon": ("falcon", "FALCON"),
    "gemma": ("gemma", "GEMMA"),
    "gemma2": ("gemma", "GEMMA2"),
    "gemma3_text": ("gemma", "GEMMA3_TEXT"),
    "glm4": ("glm4", "GLM4"),
    "glm4_moe": ("glm4", "GLM4_MOE"),
    "gpt2": ("gpt2", "GPT2"),
    "gpt_bigcode": ("gpt_bigcode", "GPT_BIGCODE"),
    "gpt_neox": ("gpt_neox", "GPT_NEOX"),
    "gpt_oss": ("gpt_oss", "GPT_OSS"),
    "gptj": ("gptj", "GPTJ"),
    "granite": ("granite", "GRANITE"),
    "granitemoe": ("granite", "GRANITEMOE"),
    "llama": ("llama", "LLAMA"),
    "ministral3": ("ministral3", "MINISTRAL3"),
    "mistral": ("mistral", "MISTRAL"),
    "mixtral": ("mixtral", "MIXTRAL"),
    "mt5": ("t5", "MT5"),
    "olmo2": ("olmo", "OLMO2"),
    "olmoe": ("olmo", "OLMOE"),
    "opt": ("opt", "OPT"),
    "phi": ("phi", "PHI"),
    "phi3": ("phi3", "PHI3"),
    "qwen2": ("qwen2", "QWEN2"),
    "qwen2_moe": ("qwen2", "QWEN2_MOE"),
    "qwen3": ("qwen3", "QWEN3"),
    "qwen3_moe": ("qwen3", "QWEN3_MOE"),
    "smollm3": ("smollm3", "SMOLLM3"),
    "stablelm": ("stablelm", "STABLELM"),
    "starcoder2": ("starcoder2", "STARCODER2"),
    "t5": ("t5", "T5"),
}


class _Families(Mapping[str, Family]):
    """model_type -> Family, sorted; its file is imported when it is asked for, because most runs ask for one."""

    def __getitem__(self, model_type: str) -> Family:
        return _listed(model_type)

    def __contains__(self, model_type: object) -> bool:
        return model_type in _LISTED

    def __iter__(self) -> Iterator[str]:
        return iter(_LISTED)

    def __len__(self) -> int:
        return len(_LISTED)


@functools.cache
def _listed(model_type: str) -> Family:
    file, name = _LISTED[model_type]
    family: Family = getattr(import_module(f"{__name__}.{file}"), name)
    return family


FAMILIES: Mapping[str, Family] = _Families()


def family_of(model: Model) -> Family:
    """The family of a model.

    Raises:
        DsgenError: The architecture is not known.
    """
    if model.architecture in _LISTED:
        return _listed(model.architecture)
    near = nearest(model.architecture, FAMILIES)
    hint = f"{offer(near)}  " if near else ""
    raise mistake(
        f"model.architecture is {model.architecture!r}",
        must="it must be a supported model_type of Hugging Face",
        todo=f"{hint}Supported: {', '.join(FAMILIES)}.",
    )
