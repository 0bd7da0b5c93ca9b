"""What the simulation changes in torch and DeepSpeed, and the names it knows, still are what they were."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib import metadata

import pytest

from dsgen.engine import simulate_versions

pytestmark = pytest.mark.proof


def test_these_versions_are_tested_ones():
    found = tuple(metadata.version(name).partition("+")[0] for name in ("deepspeed", "torch", "transformers"))

    assert found in simulate_versions.TESTED


def test_other_versions_are_refused_unless_forced():
    versions = {"deepspeed": "0.12.0", "torch": "2.1.0+cu118", "transformers": "4.30.0"}

    simulate_versions.check(versions, force=True)
    with pytest.raises(RuntimeError, match=r"deepspeed 0\.12\.0, torch 2\.1\.0, transformers 4\.30\.0; tested: "):
        simulate_versions.check(versions, force=False)


@pytest.mark.parametrize("patched", simulate_versions.PATCHED)
def test_a_patched_function_is_the_one_that_was_read(patched):
    assert simulate_versions.fingerprint(patched) == simulate_versions.PATCHED[patched]


def test_every_maker_is_a_function_of_its_file():
    from dsgen.engine import simulate_kinds

    absent = []
    for path, functions in simulate_kinds.MAKERS.items():
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        source = inspect.getsource(module)
        absent += [f"{path}: {name}" for name in functions if not re.search(rf"^\s*def {name}\(", source, re.MULTILINE)]

    assert absent == []


def test_every_holder_is_an_attribute_of_its_class():
    from dsgen.engine import simulate_holders

    absent = []
    for name, attributes in simulate_holders.HOLDERS.items():
        module, _, kind = name.partition(":")
        source = inspect.getsource(getattr(importlib.import_module(module), kind))
        for attribute in attributes:
            plain = attribute.removeprefix(f"_{kind}")  # a name with two underscores is stored with its class
            if not re.search(rf"self\.{plain}\b", source):
                absent.append(f"{name}.{attribute}")

    assert absent == []
