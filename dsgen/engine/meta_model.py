"""Child process: the tensors that Hugging Face's own class has, built on torch's meta device (no memory, no weights).

stdin: `{name: config}`, each config a config.json as a dict. stdout: `{name: {"class": ..., "total": ..., "tensors":
[[name, shape, module class], ...]}}` in the order of named_parameters. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

__all__ = ["main", "tensors"]


def tensors(config: dict[str, Any]) -> dict[str, Any]:
    """Class, total and tensors of the language model of one config."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    facts = dict(config)
    # Token ids have no shape, but a padding index outside a small vocabulary is refused.
    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    hf_config = AutoConfig.for_model(facts.pop("model_type"), **{**ids, **facts})
    causal = type(hf_config) in AutoModelForCausalLM._model_mapping
    auto = AutoModelForCausalLM if causal else AutoModelForSeq2SeqLM
    with torch.device("meta"):
        model = auto.from_config(hf_config)
    listed = [
        [name, list(parameter.shape), type(model.get_submodule(name.rpartition(".")[0])).__name__]
        for name, parameter in model.named_parameters()
    ]
    total = sum(parameter.numel() for parameter in model.parameters())
    return {"class": type(model).__name__, "total": total, "tensors": listed}


def main() -> None:
    """Answer every config on stdin."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    configs = json.load(sys.stdin)
    json.dump({name: tensors(config) for name, config in configs.items()}, sys.stdout)


if __name__ == "__main__":
    main()
