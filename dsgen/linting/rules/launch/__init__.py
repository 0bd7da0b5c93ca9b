"""Rules about launch files: environment variables and options that nothing reads."""

from __future__ import annotations

from dsgen.linting.rules.rule import Rules

__all__ = ["RULES"]

RULES = Rules(
    __name__,
    "variable_nothing_reads",
    "misspelt_variable",
    "renamed_variable",
    "debug_variable_left_on",
    "fast_path_disabled",
    "launcher_option_unknown",
    "one_thread_for_the_optimizer",
    "variable_not_exported",
    "deepspeed_env_line",
)
