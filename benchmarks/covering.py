"""A plugin of pytest, `-p covering`, that records which tests run which lines of the folders in $COVERED_FOLDERS.

Written to the file $COVERED_TO: {"seconds": {test: seconds}, "lines": {file: {line: [test]}}}. Each test begins without
what earlier ones left in the caches of these folders, and what a shared fixture runs is of every test that uses it: the
lines and seconds of a test are those that it takes when it is alone. What importing runs is of none. Seconds are those
of the processor, of children too, so that a busy machine counts as many.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

_FOLDERS = tuple(os.environ["COVERED_FOLDERS"].split(os.pathsep))
_SECONDS: dict[str, float] = {}  # of a test or a shared fixture
_USERS: dict[str, list[str]] = {}  # of a shared fixture, the tests
_COVERAGE = Coverage(data_file=None, config_file=False, include=[f"{folder}/*" for folder in _FOLDERS])
_COVERAGE.start()  # before a test imports what is measured


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note who uses which shared fixture."""
    for item in session.items:
        _USERS[item.nodeid] = [item.nodeid]
        for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            if fixtures[-1].scope != "function":
                _USERS.setdefault(_name(fixtures[-1]), []).append(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What runs from here is of this test."""
    _begin(item.nodeid)
    began = _now()
    try:
        return (yield)
    finally:
        _SECONDS[item.nodeid] = _SECONDS.get(item.nodeid, 0.0) + _now() - began


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shared fixture runs is its own."""
    if fixturedef.scope == "function":
        return (yield)
    test, shared = request._pyfuncitem.nodeid, _name(fixturedef)
    _begin(shared)
    began = _now()
    try:
        return (yield)
    finally:
        _COVERAGE.switch_context(test)
        taken = _now() - began
        _SECONDS[shared] = _SECONDS.get(shared, 0.0) + taken
        _SECONDS[test] = _SECONDS.get(test, 0.0) - taken


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    _COVERAGE.stop()
    data = _COVERAGE.get_data()
    lines = {
        file: {
            line: sorted({test for context in contexts for test in _USERS.get(context, ())})
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    seconds: dict[str, float] = {}
    for name, taken in _SECONDS.items():
        for test in _USERS.get(name, ()):
            seconds[test] = seconds.get(test, 0.0) + taken
    Path(os.environ["COVERED_TO"]).write_text(json.dumps({"seconds": seconds, "lines": lines}))


def _begin(name: str) -> None:
    """What runs from here is of this test or fixture, and nothing is known yet."""
    for cached in _caches(len(sys.modules)):
        cached.cache_clear()
    _COVERAGE.switch_context(name)


def _now() -> float:
    """Seconds of the processor until now, those of children that have ended among them."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _name(fixture: pytest.FixtureDef[Any]) -> str:
    """Of a fixture, in whatever file: no test has such a one."""
    return f"fixture {fixture.baseid} {fixture.argname}"


@functools.lru_cache(maxsize=1)
def _caches(count: int) -> list[functools._lru_cache_wrapper[object]]:
    """Cached functions of the folders; anew when the count of loaded modules has changed."""
    modules = [one for one in list(sys.modules.values()) if str(getattr(one, "__file__", "")).startswith(_FOLDERS)]
    values = [value for module in modules for value in list(vars(module).values())]
    return [value for value in values if isinstance(value, functools._lru_cache_wrapper)]
