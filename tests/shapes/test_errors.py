"""A user's mistake as data: its fields, several at once, and what is printed of them."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest
from parsed import parsed

import dsgen
from dsgen.shapes.errors import CODES, MOST_MISTAKES, DsgenError, joined, mistake

PACKAGE = Path(dsgen.__file__).parent
FIELDS = ("what", "must", "where", "todo", "code")


def one() -> DsgenError:
    return mistake("lr is -1", must="it must be above 0", where="site.yaml:7", todo="Write 1e-5.", code="bad-value")


def fields(error: DsgenError) -> dict[str, object]:
    return {name: getattr(error, name) for name in FIELDS}


def test_the_text_is_made_of_the_fields() -> None:
    assert str(one()) == "site.yaml:7: lr is -1; it must be above 0\n  Write 1e-5."
    assert one().sentence == "site.yaml:7: lr is -1; it must be above 0"
    assert str(mistake("no model is named")) == "no model is named"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("error", [one(), joined([one(), mistake("b", code="missing")])])
def test_an_error_goes_to_another_process_whole(error: DsgenError, again: object) -> None:
    assert callable(again)
    other = again(error)

    assert fields(other) == fields(error)
    assert str(other) == str(error)
    assert [fields(item) for item in other.mistakes] == [fields(item) for item in error.mistakes]


def test_one_mistake_is_itself_and_several_are_each() -> None:
    first, second = one(), mistake("no model is named", code="missing")

    assert joined([first]) is first
    assert first.mistakes == (first,)
    both = joined([joined([first, second]), first])
    assert both.mistakes == (first, second, first)
    assert fields(both) == fields(first)
    assert str(both) == f"{first}\nerror: {second}\nerror: {first}"


def test_of_many_mistakes_the_first_are_printed_and_all_are_there() -> None:
    many = joined([mistake(f"key {number} is wrong") for number in range(MOST_MISTAKES + 2)])

    assert len(many.mistakes) == MOST_MISTAKES + 2
    assert str(many).count("\nerror: ") == MOST_MISTAKES - 1
    assert str(many).endswith("\n  and 2 more")


def test_a_mistake_met_by_way_of_another_file_names_both() -> None:
    inner = joined([one(), mistake("no profile named 'x'", todo="did you mean y?", code="unknown-name")])

    found = inner.inside("pyproject.toml: tool.dsgen.lint.hw")

    assert [item.where for item in found.mistakes] == [
        "pyproject.toml: tool.dsgen.lint.hw: site.yaml:7",
        "pyproject.toml: tool.dsgen.lint.hw",
    ]
    assert [item.code for item in found.mistakes] == ["bad-value", "unknown-name"]
    assert str(found).startswith("pyproject.toml: tool.dsgen.lint.hw: site.yaml:7: lr is -1; it must be above 0")


def test_a_very_long_word_is_cut_in_the_text_and_whole_in_the_fields() -> None:
    error = mistake(f"the path {'x' * 5000}", todo=f"cd {'y' * 5000}")

    assert len(error.what) > 5000
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("composed", "code", "where"),
    [
        ({"training.seq_lenn": 8}, "unknown-name", "python"),
        ({"training.seq_len": "long"}, "bad-value", "python"),
        ({"cluster": {"gpus": 3, "nodes": 2}}, "contradiction", "python"),
        ({"zero_optimization.stage": 0, "training.offload": "none", "training.tp": 1}, "does-not-fit", None),
    ],
)
def test_the_kind_of_a_mistake_is_known_without_reading_it(
    composed: dict[str, object], code: str, where: str | None
) -> None:
    with pytest.raises(DsgenError) as caught:
        dsgen.render(dsgen.profile("a100-40g") | dsgen.profile("70b") | composed)

    assert (caught.value.code, caught.value.where) == (code, where)


def test_a_section_tells_all_that_is_wrong_in_it() -> None:
    wrong = {"training": {"seq_len": 0, "lr": -1, "optimizer": "Adamx"}}

    with pytest.raises(DsgenError) as caught:
        dsgen.job(dsgen.profile("a100-40g") | dsgen.profile("7b") | wrong)

    assert {error.what for error in caught.value.mistakes} == {
        "training.seq_len is 0",
        "training.lr is -1",
        "training.optimizer is Adamx",
    }


def test_every_code_is_used() -> None:
    used = {
        keyword.value.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "mistake"
        for keyword in node.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }

    assert used | {"bad-value"} == set(CODES)  # the default of `mistake`


def searches(handler: ast.ExceptHandler) -> list[str]:
    """What a handler looks up in the text of the error that it caught."""
    text = f"str({handler.name})"
    return [
        ast.unparse(node)
        for node in ast.walk(handler)
        if (isinstance(node, ast.Compare) and text in {ast.unparse(item) for item in node.comparators})
        or (isinstance(node, ast.Attribute) and ast.unparse(node.value) == text)
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == f"{handler.name}.args")
    ]


def test_a_search_in_an_errors_text_is_seen() -> None:
    program = "try: f()\nexcept DsgenError as e:\n  if 'no' in str(e) or str(e).startswith('x') or e.args[0]: pass"
    [handler] = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ExceptHandler)]

    assert len(searches(handler)) == 3


def test_no_code_decides_by_the_text_of_an_error_of_ours() -> None:
    found = {
        f"{path.name}: {said}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and node.type is not None and "DsgenError" in ast.unparse(node.type)
        for said in searches(node)
    }

    assert found == set()
