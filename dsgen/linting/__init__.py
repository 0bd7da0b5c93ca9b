"""Text to findings and fixes: what DeepSpeed refuses, ignores or does otherwise than written, and what mends it.

`lint`, `fix`, `migrate` and `survey` are taken from `dsgen.linting.asked`: they load every rule. Who only asks what a
config means (`meanings`, `subjects`) needs none.
"""

from __future__ import annotations
