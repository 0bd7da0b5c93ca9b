"""Questions of a plan: what would be faster, how strategies compare, what a value or a deadline changes."""

from __future__ import annotations

from dsgen.asking.plan_questions.contests import Contest, Contestant, contest
from dsgen.asking.plan_questions.deadlines import Budget, Fleet, fewest_gpus, training_time
from dsgen.asking.plan_questions.offers import Offer, offers
from dsgen.asking.plan_questions.speedups import Speedup, Speedups, speedups
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.asking.plan_questions.what_ifs import Case, Turn, WhatIf, what_if

__all__ = [
    "Budget",
    "Case",
    "Contest",
    "Contestant",
    "Fleet",
    "Offer",
    "Speedup",
    "Speedups",
    "Turn",
    "WhatIf",
    "contest",
    "fewest_gpus",
    "offers",
    "speedups",
    "training_time",
    "weigh",
    "what_if",
]
