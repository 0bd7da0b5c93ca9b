"""The table of constraints: each refuses one case and not its neighbour, and all who read it say one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from constraint_cases import CASES, Case

import dsgen
from dsgen.asking.memory_questions import ask
from dsgen.families.hf_config import to_hf_config
from dsgen.linting import linter
from dsgen.linting.rules import RULES
from dsgen.memory import estimate
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Training
from dsgen.simulating import Options, from_config
from dsgen.simulating.requests import CHUNKED_AS_LIGER
from dsgen.strategies.constraints import (
    ADAPTERS,
    BY,
    BY_CODE,
    CONSTRAINTS,
    ENCODER_WISHES,
    OF_LAYOUTS,
    WISHES,
    Constraint,
    Keys,
    Setup,
)
from dsgen.strategies.constraints.keys import KEYS
from dsgen.strategies.strategies import Rejection, layouts

ASKED_LATER = ("autotp-with-chunked-loss",)  # a plan goes on all the same: memory and a simulation say it
LEFT_OUT = "no-norm-at-the-stage"  # a key that does nothing at a stage is not rendered, and said so
# Of an optimizer that the program makes, which a simulation of a config alone does not bring.
BROUGHT = ("own-optimizer-offloaded", "8-bit-states-offloaded", "8-bit-states-elsewhere")
BUILT = (" SGD,", " torch.optim.SGD,")  # a rule knows the class that is built of a name

each = pytest.mark.parametrize("item", CONSTRAINTS, ids=lambda item: item.code)


def refused(item: Constraint) -> Case:
    return CASES[item.code][0]


def accepted(item: Constraint) -> Case:
    case, changed = CASES[item.code]
    return attrs.evolve(case, **changed)


def sentence(item: Constraint, folder: Path) -> str:
    return item.says(refused(item).setup(folder))


def test_every_constraint_has_a_case_and_a_name_of_its_own() -> None:
    assert list(CASES) == [item.code for item in CONSTRAINTS]
    assert len(BY_CODE) == len(CONSTRAINTS)


@each
def test_it_says_who_refuses_what_and_where_that_can_be_checked(item: Constraint) -> None:
    about = {*Setup._fields, *Keys._fields, *(field.name for field in attrs.fields(Training))}
    known = {rule.code for rule in RULES}

    assert item.by in BY
    assert item.about in about
    assert len(item.source) > 20
    assert item.rule is None or item.rule in known
    assert not (item.by == "dsgen" and item.stops)


@each
def test_it_refuses_one_case_and_takes_its_neighbour(item: Constraint, tmp_path: Path) -> None:
    at = refused(item).setup(tmp_path)

    assert item.refuses(at)
    assert not item.refuses(accepted(item).setup(tmp_path))
    assert not re.search(r"[{}]", item.says(at))
    assert len(item.says(at)) > 20


@pytest.mark.parametrize("item", [item for item in CONSTRAINTS if item.since], ids=lambda item: item.code)
def test_it_does_not_refuse_before_its_first_release(item: Constraint, tmp_path: Path) -> None:
    at = refused(item).setup(tmp_path)

    assert item.refuses(at._replace(version=item.since))
    assert not item.refuses(at._replace(version=f"{item.since.rpartition('.')[0]}.0"))


@pytest.mark.parametrize("item", [item for item in CONSTRAINTS if item.until], ids=lambda item: item.code)
def test_it_does_not_refuse_from_the_release_that_mended_it(item: Constraint, tmp_path: Path) -> None:
    at = refused(item).setup(tmp_path)

    assert not item.refuses(at._replace(version=item.until))
    assert not item.refuses(at._replace(version=""))  # the newest


@each
def test_nothing_is_said_of_what_is_not_known(item: Constraint) -> None:
    assert not item.refuses(Setup(version=item.since or ""))
    assert not item.refuses(Setup(version="0.14.0"))


def rejections(case: Case, folder: Path) -> set[str]:
    return {found.why for found in layouts(case.job(folder)) if isinstance(found, Rejection)}


@pytest.mark.parametrize("item", OF_LAYOUTS, ids=lambda item: item.code)
def test_a_plan_rejects_the_strategy_with_this_sentence(item: Constraint, tmp_path: Path) -> None:
    assert sentence(item, tmp_path) in rejections(refused(item), tmp_path)
    assert sentence(item, tmp_path) not in rejections(accepted(item), tmp_path)


@pytest.mark.parametrize("item", KEYS, ids=lambda item: item.code)
def test_a_key_that_the_strategy_cannot_have_is_not_rendered(item: Constraint, tmp_path: Path) -> None:
    if item.code == LEFT_OUT:
        assert "compute_grad_norm" not in dsgen.render(refused(item).job(tmp_path)).to_json()
    else:
        with pytest.raises(DsgenError, match=re.escape(item.must or sentence(item, tmp_path))):
            dsgen.render(refused(item).job(tmp_path))
    assert dsgen.render(accepted(item).job(tmp_path))


@pytest.mark.parametrize("item", WISHES, ids=lambda item: item.code)
def test_a_wish_that_no_strategy_can_have_is_not_planned(item: Constraint, tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match=re.escape(sentence(item, tmp_path))) as caught:
        dsgen.render(refused(item).job(tmp_path))
    assert caught.value.what.startswith(f"training.{item.about} is ")
    assert caught.value.code == "refused"
    assert dsgen.render(accepted(item).job(tmp_path))


@pytest.mark.parametrize("item", (*ADAPTERS, *ENCODER_WISHES), ids=lambda item: item.code)
def test_the_arithmetic_of_memory_refuses_a_wish_that_it_does_not_count(item: Constraint, tmp_path: Path) -> None:
    """Also where nobody has asked before, and without a place where it was written."""
    taken, case = accepted(item).job(tmp_path), refused(item)
    strategy = ask(taken).strategy
    wished = attrs.evolve(case.job(tmp_path), pins=())

    with pytest.raises(DsgenError, match=re.escape(sentence(item, tmp_path))):
        estimate(wished, strategy)
    assert estimate(taken, strategy).gpu.peak_bytes > 0


@each
def test_memory_refuses_what_it_cannot_tell_and_notes_the_rest(item: Constraint, tmp_path: Path) -> None:
    job, said = refused(item).job(tmp_path), sentence(item, tmp_path)
    if item.fatal and not item.of_keys:
        with pytest.raises(DsgenError, match=re.escape(said)):
            estimate(job, ask(job).strategy)
    else:
        assert any(said in note for note in ask(job).notes)
    asked = ask(accepted(item).job(tmp_path))
    assert not any(said in note for note in asked.notes)
    assert estimate(asked.job, asked.strategy).gpu.peak_bytes > 0


@each
def test_a_simulation_is_refused_or_noted_before_a_process_starts(item: Constraint, tmp_path: Path) -> None:
    case, said = refused(item), sentence(item, tmp_path)
    if item.until is not None or item.code in BROUGHT:  # or the engine that simulates is a newer one
        assert not any(said in note for note in case.request(tmp_path).notes)
    elif item.stops or item.code == CHUNKED_AS_LIGER:
        with pytest.raises(DsgenError, match=re.escape(said)):
            case.request(tmp_path)
    else:
        noted = any(said in note for note in case.request(tmp_path).notes)
        assert noted is (item.by != "dsgen")
    assert not any(said in note for note in accepted(item).request(tmp_path).notes)


def findings(item: Constraint, case: Case) -> list[str]:
    found = linter.lint_config(case.config(), target="deepspeed", deepspeed=case.deepspeed, facts=case.facts())
    return [one.message for one in found if one.code == item.rule]


@pytest.mark.parametrize("item", [item for item in CONSTRAINTS if item.rule], ids=lambda item: item.code)
def test_the_rule_that_says_the_same_says_it_in_these_words(item: Constraint, tmp_path: Path) -> None:
    said = sentence(item, tmp_path)

    said = said.replace(*BUILT) if item.code == "untested-optimizer" else said
    assert any(said in message for message in findings(item, refused(item)))
    assert not any(said in message for message in findings(item, accepted(item)))


@each
def test_each_is_said_by_a_plan_a_render_or_a_rule(item: Constraint, tmp_path: Path) -> None:
    """None stands in the table for nobody to read."""
    case = refused(item)
    said = {*rejections(case, tmp_path), *(findings(item, case) if item.rule else ())}
    try:
        said |= set(dsgen.render(case.job(tmp_path)).warnings)
    except DsgenError as error:
        said.add(str(error))

    words = (sentence(item, tmp_path), item.must or sentence(item, tmp_path))
    assert any(word in line for word in words for line in said) is (item.code not in ASKED_LATER)


def test_force_asks_the_engine_what_is_known_to_be_refused(tmp_path: Path) -> None:
    """For a release in which it may be mended."""
    case = CASES["autotp-unsplit"][0]
    model = to_hf_config(attrs.asdict(case.job(tmp_path).model))

    found = from_config(case.config(), model=model, world_size=8, options=Options(force=True))

    assert found.notes == ()


def test_force_does_not_ask_for_a_chunked_loss_that_is_not_simulated(tmp_path: Path) -> None:
    """Liger's needs the whole head: DeepSpeed would fail with words about something else."""
    case = CASES[CHUNKED_AS_LIGER][0]
    model = to_hf_config(attrs.asdict(case.job(tmp_path).model))
    options = Options(chunked_loss=True, force=True)

    with pytest.raises(DsgenError, match=re.escape(BY_CODE[CHUNKED_AS_LIGER].reason)):
        from_config(case.config(), model=model, world_size=8, options=options)
