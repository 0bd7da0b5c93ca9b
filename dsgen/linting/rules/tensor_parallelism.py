"""How many GPUs share a layer, and what is known of the layers they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dsgen.linting.rules.batch_sizes import whole
from dsgen.linting.subjects import Subject

__all__ = ["PRESETS", "SECTION", "SIZE", "matches", "patterns", "tensor_parallel", "unplanned"]

SECTION = "tensor_parallel"
SIZE = f"{SECTION}.autotp_size"

_ATTENTION = re.compile(r"att(e)?n", re.IGNORECASE)  # every transformer of Hugging Face has such a parameter
_LLAMA = (r".*\.self_attn\.(o|q|k|v)_proj\.weight$", r".*\.mlp\.(down|up|gate)_proj\.weight$")
_BLOOM = (
    r".*\.self_attention\.(dense|query_key_value)\.weight$",
    r".*\.mlp\.dense_(4h_to_h|h_to_4h)\.weight$",
)
# Preset -> which weights it splits. Source: deepspeed/module_inject/autotp_config.py (0.19.8), AutoTPPresets.
PRESETS: Mapping[str, tuple[str, ...]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "bloom": _BLOOM,
    "chatglm": _BLOOM,
    "mixtral": (_LLAMA[0], r".*\.block_sparse_moe\.experts\.\d+\.w[123]\.weight$"),
    "deepseek_v2": (
        r".*\.self_attn\.(o_proj|q_b_proj|kv_b_proj)\.weight$",
        r".*\.mlp\.(experts\.\d+|shared_experts)\.(down|up|gate)_proj\.weight$",
    ),
    "phi3": (r".*\.self_attn\.(o|qkv)_proj\.weight$", r".*\.mlp\.(down|gate_up)_proj\.weight$"),
}


def tensor_parallel(subject: Subject) -> int:
    """GPUs that share each layer by AutoTP; 1 where it is off, not known, or refused."""
    size = whole(subject.raw(SIZE))
    return size if size is not None and size > 1 else 1


def unplanned(subject: Subject) -> bool:
    """Whether the parameters are known to be no Hugging Face transformer's, and no partition_config splits them."""
    names = subject.facts.parameters
    own = subject.raw(f"{SECTION}.partition_config")
    return bool(names) and not own and not any(_ATTENTION.search(name) for name in names or ())


def patterns(specs: Any) -> Iterator[str]:
    """The patterns of a list of layer_specs that split what they match, as far as they are text."""
    for spec in specs if isinstance(specs, list) else ():
        if isinstance(spec, Mapping) and str(spec.get("partition_type", "column")).lower() != "skip":
            listed = spec.get("patterns", ())
            yield from (text for text in (listed if isinstance(listed, list) else ()) if isinstance(text, str))


def matches(pattern: str, names: tuple[str, ...]) -> bool:
    """Whether a pattern matches any name from its start, as DeepSpeed asks; true for what is no regular expression."""
    try:
        return any(re.match(pattern, name) for name in names)
    except re.error:
        return True
