"""Public configs become scenarios that render back to them: each that DeepSpeed takes, and none that it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from adopting import adopted, again, same_data

from dsgen.asking.adopting import adoption
from dsgen.linting import config_reader
from dsgen.shapes.errors import DsgenError

ADOPTED = 200  # of 265: those that DeepSpeed 0.19.8 took when it was asked (labels.json), and their program takes too
# Configs for the Trainer with which it stops (program-verdicts.json): no zero_optimization, "auto" in bfloat16.
STOPS_THE_TRAINER = (7, 141, 308)
# Those whose label is open, as it depends on the model or on what is fed: nothing in the config speaks against them.
UNDECIDED = "undecided:"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "speedups", lambda question: None)
    monkeypatch.setattr(adoption, "_own", lambda job, question: None)


def test_every_config_that_deepspeed_takes_comes_back_as_it_was(publics: Sequence[Any], tmp_path: Path) -> None:
    taken = [
        public
        for public in publics
        if public.label["label"].startswith("ok") and public.label["n"] not in STOPS_THE_TRAINER
    ]
    differing = []
    for label, path, _ in taken:
        source = config_reader.read(str(path))
        try:
            if not same_data(again(adopted(source), tmp_path), dict(source.document.config)):
                differing.append((label["n"], "differs"))
        except DsgenError as error:
            differing.append((label["n"], str(error)))

    assert len(taken) == ADOPTED
    assert differing == []


def test_none_that_deepspeed_refuses_is_adopted(publics: Sequence[Any]) -> None:
    refused = [
        public
        for public in publics
        if not public.label["label"].startswith(("ok", UNDECIDED)) or public.label["n"] in STOPS_THE_TRAINER
    ]
    for label, path, _ in refused:
        with pytest.raises(DsgenError) as caught:
            adopted(config_reader.read(str(path)))
        assert caught.value.code != "does-not-fit", label["n"]
