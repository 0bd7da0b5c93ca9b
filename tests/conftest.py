"""What the tests share: jobs made from built-in profiles."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

import dsgen

# Examples are the same in CI every time, and no slow machine fails a test; at a desk hypothesis searches on.
settings.register_profile("dsgen", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("dsgen")


@pytest.fixture
def make_job() -> Callable[..., dsgen.Job]:
    """A Job from a hardware, a model and overrides."""

    def make(hardware: str = "a100-80g", model: str = "llama-2-7b", **overrides: Any) -> dsgen.Job:
        layers = dsgen.profile(hardware) | dsgen.profile(model)
        for name in overrides.pop("profiles", ()):
            layers = layers | dsgen.profile(name)
        return dsgen.job(layers | overrides)

    return make
