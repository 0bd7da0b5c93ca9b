"""Questions of memory: what an exact strategy takes, what every other would, and the smallest changes that matter."""

from __future__ import annotations

from dsgen.asking.memory_questions.alternatives import Alternative, alternatives
from dsgen.asking.memory_questions.config_questions import ask_config, given, question
from dsgen.asking.memory_questions.counterfactuals import Change, Counterfactuals, counterfactuals
from dsgen.asking.memory_questions.differences import LikePart, ReadPiece
from dsgen.asking.memory_questions.footprints import Footprint, answer
from dsgen.asking.memory_questions.loaders import BY_PROGRAM, evaluating_as_rendered, for_program, under_zero_init
from dsgen.asking.memory_questions.observations import READINGS, Observation, OtherRun, observe, observed
from dsgen.asking.memory_questions.questions import CHOSEN, DEFAULT, EVALUATED, GENERATED, KEPT, Question, Said
from dsgen.asking.memory_questions.scenario_questions import ask
from dsgen.memory.first_failure import Failure

__all__ = [
    "BY_PROGRAM",
    "CHOSEN",
    "DEFAULT",
    "EVALUATED",
    "GENERATED",
    "KEPT",
    "READINGS",
    "Alternative",
    "Change",
    "Counterfactuals",
    "Failure",
    "Footprint",
    "LikePart",
    "Observation",
    "OtherRun",
    "Question",
    "ReadPiece",
    "Said",
    "alternatives",
    "answer",
    "ask",
    "ask_config",
    "counterfactuals",
    "evaluating_as_rendered",
    "for_program",
    "given",
    "observe",
    "observed",
    "question",
    "under_zero_init",
]
