"""Model families: all that is special about one stands in one file, and this lists them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dsgen.families.bloom import BLOOM
from dsgen.families.cohere import COHERE
from dsgen.families.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from dsgen.families.falcon import FALCON
from dsgen.families.family import Family
from dsgen.families.gemma import GEMMA, GEMMA2, GEMMA3_TEXT
from dsgen.families.glm4 import GLM4, GLM4_MOE
from dsgen.families.gpt2 import GPT2
from dsgen.families.gpt_bigcode import GPT_BIGCODE
from dsgen.families.gpt_neox import GPT_NEOX
from dsgen.families.gpt_oss import GPT_OSS
from dsgen.families.gptj import GPTJ
from dsgen.families.granite import GRANITE, GRANITEMOE
from dsgen.families.llama import LLAMA
from dsgen.families.ministral3 import MINISTRAL3
from dsgen.families.mistral import MISTRAL
from dsgen.families.mixtral import MIXTRAL
from dsgen.families.olmo import OLMO2, OLMOE
from dsgen.families.opt import OPT
from dsgen.families.phi import PHI
from dsgen.families.phi3 import PHI3
from dsgen.families.qwen2 import QWEN2, QWEN2_MOE
from dsgen.families.qwen3 import QWEN3, QWEN3_MOE
from dsgen.families.smollm3 import SMOLLM3
from dsgen.families.stablelm import STABLELM
from dsgen.families.starcoder2 import STARCODER2
from dsgen.families.t5 import MT5, T5
from dsgen.shapes.errors import mistake, nearest
from dsgen.shapes.near_misses import offer
from dsgen.shapes.profiles import Model

__all__ = ["FAMILIES", "Family", "family_of"]

_LISTED: tuple[Family, ...] = (
    BLOOM,
    COHERE,
    *(DEEPSEEK_V2, DEEPSEEK_V3),
    FALCON,
    *(GEMMA, GEMMA2, GEMMA3_TEXT),
    *(GLM4, GLM4_MOE),
    GPT2,
    GPT_BIGCODE,
    GPT_NEOX,
    GPT_OSS,
    GPTJ,
    *(GRANITE, GRANITEMOE),
    LLAMA,
    MINISTRAL3,
    MISTRAL,
    MIXTRAL,
    *(OLMO2, OLMOE),
    OPT,
    PHI,
    PHI3,
    *(QWEN2, QWEN2_MOE),
    *(QWEN3, QWEN3_MOE),
    SMOLLM3,
    STABLELM,
    STARCODER2,
    *(MT5, T5),
)
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {family.model_type: family for family in sorted(_LISTED, key=lambda family: family.model_type)}
)


def family_of(model: Model) -> Family:
    """The family of a model.

    Raises:
        DsgenError: The architecture is not known.
    """
    family = FAMILIES.get(model.architecture)
    if family is None:
        near = nearest(model.architecture, FAMILIES)
        hint = f"{offer(near)}  " if near else ""
        raise mistake(
            f"model.architecture is {model.architecture!r}",
            must="it must be a supported model_type of Hugging Face",
            todo=f"{hint}Supported: {', '.join(FAMILIES)}.",
        )
    return family
