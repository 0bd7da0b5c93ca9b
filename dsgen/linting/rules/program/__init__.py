"""Rules about the program that loads the config: "auto", what it needs, sets or refuses, the files it reads first."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "auto_outside_hugging_face",
    "auto_not_filled",
    "auto_misspelt",
    "section_the_program_needs",
    "key_the_program_refuses",
    "bfloat16_hidden",
    "value_must_match",
    "value_overwritten",
    "accelerate_keys_beside_file",
    "accelerate_unknown_key",
    "accelerate_nvme_path",
    "accelerate_precision",
    "accelerate_without_deepspeed",
    "named_config_missing",
    "argument_disagrees",
    "device_map_beside_deepspeed",
    "model_loaded_first",
)
