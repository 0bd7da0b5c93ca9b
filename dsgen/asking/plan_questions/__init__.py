"""Questions of a plan: what would be faster, how strategies compare, what a value or a deadline changes.

Each question is taken from its module: a run asks one of them.
"""

from __future__ import annotations
