"""A person's own measurement: what it says of the machine, as facts of a hardware profile, and what those change."""

from __future__ import annotations

from dsgen.asking.calibrating.calibrations import PEAKS, Calibration, calibrate, run_of
from dsgen.asking.calibrating.effects import Consequence, basis, effect

__all__ = ["PEAKS", "Calibration", "Consequence", "basis", "calibrate", "effect", "run_of"]
