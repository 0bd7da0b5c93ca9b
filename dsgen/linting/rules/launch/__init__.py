"""Rules about launch files: environment variables and options that nothing reads."""

from __future__ import annotations

from dsgen.linting.rules.launch import (
    debug_variable_left_on,
    deepspeed_env_line,
    fast_path_disabled,
    launcher_option_unknown,
    misspelt_variable,
    one_thread_for_the_optimizer,
    renamed_variable,
    variable_not_exported,
    variable_nothing_reads,
)
from dsgen.linting.rules.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    variable_nothing_reads.RULE,
    misspelt_variable.RULE,
    renamed_variable.RULE,
    debug_variable_left_on.RULE,
    fast_path_disabled.RULE,
    launcher_option_unknown.RULE,
    one_thread_for_the_optimizer.RULE,
    variable_not_exported.RULE,
    deepspeed_env_line.RULE,
)
