"""Every cause that a log is searched for, in one tuple: of several that a line tells the first is taken."""

from __future__ import annotations

import re

from dsgen.diagnosing.causes.cause import CONSEQUENCE, ROOT, SLOW, UNKNOWN, Cause, Sign
from dsgen.diagnosing.causes.libraries import LIBRARIES
from dsgen.diagnosing.causes.machines import MACHINES
from dsgen.diagnosing.causes.memory import MEMORY
from dsgen.diagnosing.causes.networks_and_ranks import COMMUNICATION
from dsgen.diagnosing.causes.overflows import NUMBERS
from dsgen.diagnosing.causes.program_errors import PROGRAMS
from dsgen.diagnosing.causes.start_errors import STARTS

__all__ = ["ABOVE", "BY_CODE", "CAUSES", "CONSEQUENCE", "ROOT", "SLOW", "UNKNOWN", "Cause", "Sign"]

CAUSES: tuple[Cause, ...] = (*MEMORY, *NUMBERS, *LIBRARIES, *STARTS, *PROGRAMS, *MACHINES, *COMMUNICATION)
BY_CODE = {cause.code: cause for cause in CAUSES}
ABOVE = {sign.below: re.compile(sign.below) for cause in CAUSES for sign in cause.signs if sign.below}
