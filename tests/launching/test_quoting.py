"""Quoting, through a real shell: what a program is given is what a person wrote, letter for letter."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from launches_made import FAKE_PYTHON, launch, read_back

from dsgen.launching.quoting import comment, plain_path, quoted, refuse_nul
from dsgen.launching.rank_script import rank_script
from dsgen.shapes.errors import DsgenError

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
NASTY = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$HOME",
    "`id`",
    "$(id)",
    "\n",
    "a\nb\n",
    "\\",
    "!",
    "*",
    "~",
    "-n",
    "#",
    "é",
    "a'b\"c$d",
]
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=30).filter(
    lambda name: name not in (".", "..") and len(name.encode()) <= 100
)


@given(st.lists(WORDS, max_size=6))
@example(NASTY)
@settings(max_examples=60)
def test_bash_reads_every_word_back(words: list[str]) -> None:
    script = 'printf "%s\\0" ' + " ".join(map(quoted, ["x", *words]))

    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)

    assert done.stdout.decode().split("\0")[1:-1] == words


@given(st.lists(WORDS, max_size=6), NAMES, NAMES)
@example(NASTY, "a 'b' \"c\" $HOME\nd", "$(touch x) `id`")
@settings(max_examples=40)
def test_a_rank_s_program_gets_what_was_said_wherever_it_lies(words: list[str], folder: str, script: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        run, work = Path(top, f"r{folder}"), Path(top, f"w{folder}")
        run.mkdir()
        work.mkdir()
        python = Path(top, "python")
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)
        made = launch(folder=str(run), working_folder=str(work))
        program = attrs.evolve(made.program, script=str(work / script), arguments=tuple(words))
        (run / "env.sh").write_text("")
        (run / "rank.sh").write_text(rank_script(attrs.evolve(made, program=program)))

        where, unbuffered, *said = read_back(run / "rank.sh", str(python))

        assert (where, unbuffered) == (str(work), "-u")
        own = ["--deepspeed", "--deepspeed_config", f"{run}/ds_config.json", "--checkpoints", f"{run}/checkpoints"]
        assert said == [str(work / script), *own, *words]


@given(st.text(max_size=200))
def test_a_comment_is_nothing_but_one(text: str) -> None:
    lines = comment(text).split("\n")

    assert all(line.startswith("#") or not line for line in lines)
    assert all(len(line) <= 100 or " " not in line.removeprefix("# ") for line in lines)


def test_what_no_program_can_be_given_is_refused() -> None:
    with pytest.raises(DsgenError, match="holds a NUL; no program can be given one"):
        refuse_nul(["a", "b\0c"])


@pytest.mark.parametrize("path", ["/a b", "/a'b", "/a$b", "/a\nb", "/a;b", "/é"])
def test_a_path_that_a_launcher_does_not_quote_is_refused(path: str) -> None:
    plain_path("/runs/first-1_2.3", "why")
    with pytest.raises(DsgenError, match="holds letters that a shell reads as something else; why"):
        plain_path(path, "why")
