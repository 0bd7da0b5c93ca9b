"""Which cases of a file of tests run, so that one start for all of them answers no other."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["chosen"]


def chosen(request: pytest.FixtureRequest, parameter: str = "name") -> list[Any]:
    """The values that a parameter has in the tests of this file that are run, in their order."""
    items = [item for item in request.session.items if item.path == request.path]
    given = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return list(dict.fromkeys(params[parameter] for params in given if parameter in params))
