"""Rules about the program that loads the config: "auto", what it needs, sets or refuses, the files it reads first."""

from __future__ import annotations

from dsgen.linting.rules.program import (
    accelerate_keys_beside_file,
    accelerate_nvme_path,
    accelerate_precision,
    accelerate_unknown_key,
    accelerate_without_deepspeed,
    auto_misspelt,
    auto_not_filled,
    auto_outside_hugging_face,
    bfloat16_hidden,
    key_the_program_refuses,
    named_config_missing,
    section_the_program_needs,
    value_must_match,
    value_overwritten,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    auto_outside_hugging_face.RULE,
    auto_not_filled.RULE,
    auto_misspelt.RULE,
    section_the_program_needs.RULE,
    key_the_program_refuses.RULE,
    bfloat16_hidden.RULE,
    value_must_match.RULE,
    value_overwritten.RULE,
    accelerate_keys_beside_file.RULE,
    accelerate_unknown_key.RULE,
    accelerate_nvme_path.RULE,
    accelerate_precision.RULE,
    accelerate_without_deepspeed.RULE,
    named_config_missing.RULE,
)
