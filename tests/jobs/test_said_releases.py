"""Releases that a person says and dsgen does not know: what cannot be is refused, what is newer is said."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import dsgen
from dsgen.shapes.errors import DsgenError
from dsgen.simulating import from_rendered

JOB = {"hw": "a100-40g", "model": "1b", "gpus": 2, "chunked_loss": True}
NEWER = [("transformers", "5.24"), ("transformers", "6.0"), ("torch", "2.14.1"), ("torch", "3"), ("liger", "0.9.0")]
KNOWN = [("transformers", "5"), ("transformers", "5.23.4"), ("transformers", "4"), ("torch", "2"), ("liger", "0.8.5")]
NONE = [
    ("transformers", "99", "the newest that is known is 5.23"),
    ("transformers", "7.0", "the newest that is known is 5.23"),
    ("transformers", "4.58", "the last of transformers 4 is 4.57"),
    ("torch", "28", "the newest that is known is 2.13"),
    ("liger", "85", "the newest that is known is 0.8"),
]
ASKED: dict[str, Callable[..., tuple[str, ...]]] = {
    "memory": lambda job: dsgen.memory(job).question.notes,
    "plan": lambda job: tuple(dsgen.plan(job).warnings),
    "render": lambda job: tuple(dsgen.render(job).warnings),
    "simulate": lambda job: from_rendered(dsgen.render(job)).notes,
}


@pytest.mark.parametrize("command", ASKED)
@pytest.mark.parametrize(("package", "release"), NEWER)
def test_what_is_newer_than_all_that_is_known_is_said_to_be_taken_for_that(
    command: str, package: str, release: str
) -> None:
    told = ASKED[command]({**JOB, package: release})

    assert len([one for one in told if f"{package} {release} is newer than" in one]) == 1


@pytest.mark.parametrize("command", ASKED)
@pytest.mark.parametrize(("package", "release"), KNOWN)
def test_what_is_known_is_taken_without_a_word(command: str, package: str, release: str) -> None:
    assert not [one for one in ASKED[command]({**JOB, package: release}) if "newer" in one]


@pytest.mark.parametrize(("package", "release", "words"), NONE)
def test_what_cannot_be_is_refused(package: str, release: str, words: str) -> None:
    with pytest.raises(DsgenError, match=f"{package} is '{release}'; .*{words}"):
        dsgen.plan({**JOB, package: release})


def test_what_is_newer_counts_as_the_newest_that_is_known() -> None:
    told = [
        json.dumps(dict(dsgen.memory({**JOB, "transformers": release}).memory.gpu.parts)) for release in ("5.23", "6.0")
    ]

    assert told[0] == told[1]
