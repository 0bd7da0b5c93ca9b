"""Questions about a job: what it would take, what else would fit, who decided a key, and how two configs differ.

Each question is taken from its module (`memory_questions`, `questions`, `comparisons`): a run asks one of them.
"""

from __future__ import annotations
