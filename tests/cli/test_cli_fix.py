"""`dsgen lint --fix` and `--diff`: what is written, what is shown, and what stays."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lint_samples import GOOD, MENDED, QUOTED, put

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("elsewhere")


def test_fix_writes_what_can_be_mended_safely(run: Run) -> None:
    file = put("ds.json", QUOTED.replace("1,", '1, "our_own_key": 1,'))

    code, out, _ = run("lint", "ds.json", "--fix", "--fail-on", "warning")

    assert code == 1
    assert "500000000" in file.read_text()
    assert "our_own_key" in file.read_text()
    assert "fixed 1 finding, 1 left (1 fixable with --unsafe-fixes)" in out
    assert run("lint", "ds.json", "--fix", "--unsafe-fixes")[0] == 0
    assert "our_own_key" not in file.read_text()
    assert run("lint", "ds.json")[0] == 0


def test_fix_keeps_mark_line_ends_mode_and_link(run: Run) -> None:
    real = put("real.json", "\ufeff" + QUOTED.replace("\n", "\r\n"))
    real.chmod(0o640)
    Path("link.json").symlink_to("real.json")

    run("lint", "link.json", "--fix")

    assert real.read_bytes() == ("\ufeff" + MENDED.replace("\n", "\r\n")).encode()
    assert real.stat().st_mode & 0o777 == 0o640
    assert Path("link.json").is_symlink()
    assert sorted(path.name for path in Path().iterdir()) == ["link.json", "real.json"]


def test_fix_takes_away_a_mark_at_which_the_program_stops(run: Run) -> None:
    file = put("ds.json", '\ufeff{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}\r\n')

    code, out, err = run("lint", "ds.json", "--diff")
    shown, kept = f"{out}{err}", file.read_bytes()
    fixed = run("lint", "ds.json", "--fix")

    assert code == 1
    assert "-\ufeff{" in shown and "+{" in shown
    assert kept.startswith(b"\xef\xbb\xbf")
    assert "fixed 1 finding, none left" in fixed[1]
    assert file.read_bytes() == kept.removeprefix(b"\xef\xbb\xbf")
    assert run("lint", "ds.json")[0] == 0


def test_no_fix_is_promised_for_the_mark_of_a_file_that_cannot_be_read(run: Run) -> None:
    put("ds.json", '\ufeff{"bf16": {"enabled": True}, "train_batch_size": 4}')

    code, out, _ = run("lint", "ds.json", "--target", "hf-trainer")

    assert (code, "byte-order-mark" in out, "broken-syntax" in out) == (1, True, True)
    assert "fixable" not in out
    assert "take the mark away" not in out


def test_fix_behind_a_text_without_quotes_leaves_json(run: Run) -> None:
    config = """{
  "train_batch_size": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true,
    "overlap_comm": True
  }
}
"""
    file = put("ds.json", config)

    run("lint", "ds.json", "--fix", "--target", "hf-trainer")

    section = json.loads(file.read_text())["zero_optimization"]
    assert section == {"stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "cpu"}}
    assert run("lint", "ds.json", "--target", "hf-trainer")[0] == 0


def test_fix_of_a_bare_word_keeps_the_comma_that_it_has_swallowed(run: Run) -> None:
    config = """{
  "train_batch_size": "auto",
  "zero_optimization": {
    "stage": 2,
    "overlap_comm": True,
    "contiguous_gradients": True
  },
  "bf16": {"enabled": False,
           "x": null}
}
"""
    file = put("ds.json", config)

    run("lint", "ds.json", "--fix", "--target", "hf-trainer")

    mended = config.replace("True", "true").replace("False", "false")
    assert {**json.loads(file.read_text()), "bf16": 0} == {**json.loads(mended), "bf16": 0}
    assert '"overlap_comm": true,\n' in file.read_text()


def test_fix_of_a_good_file_does_not_touch_it(run: Run) -> None:
    file = put("ds.json", GOOD)
    os.utime(file, (0, 0))

    assert run("lint", "ds.json", "--fix")[0] == 0
    assert file.stat().st_mtime == 0


def test_fix_that_cannot_be_written_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put("ds.json", QUOTED)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = run("lint", "ds.json", "--fix")

    assert code == 2
    assert "ds.json: it cannot be written (No space left on device)" in err
    assert file.read_text() == QUOTED


def test_diff_shows_and_writes_nothing(run: Run) -> None:
    file = put("ds.json", QUOTED)

    code, out, err = run("lint", "ds.json", "--diff")

    assert code == 1
    assert out.splitlines()[:2] == ["--- ds.json", "+++ ds.json"]
    assert '-  "zero_optimization": {"reduce_bucket_size": "5e8"' in out
    assert '+  "zero_optimization": {"reduce_bucket_size": 500000000' in out
    assert "would fix 1 finding, none left" in err
    assert file.read_text() == QUOTED


def test_the_diff_can_be_applied(run: Run) -> None:
    put("ds.json", QUOTED)
    diff = run("lint", "ds.json", "--diff")[1]

    subprocess.run(["git", "apply", "-p0"], input=diff, text=True, check=True)

    assert Path("ds.json").read_text() == MENDED


def test_what_came_up_by_a_fix_is_counted_apart(run: Run) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 3}, "round_robin_gradients": true}\n'
    put("ds.json", text)
    assert "1 finding, 1 fixable with --fix --unsafe-fixes" in run("lint", "ds.json")[1]

    said = run("lint", "ds.json", "--fix", "--unsafe-fixes")[1]  # moved, and useless there

    assert "fixed 1 finding and 1 that came up by it, none left" in said
    assert "round_robin_gradients" not in Path("ds.json").read_text()


def test_what_a_fix_takes_with_it_is_not_said_to_be_fixed(run: Run) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "zero_optimization": {"stage": 3, "stage": 3}}}\n'
    put("ds.json", text)
    assert "2 findings, 1 fixable with --fix --unsafe-fixes" in run("lint", "ds.json")[1]

    said = run("lint", "ds.json", "--fix", "--unsafe-fixes")[1]  # given twice, in a section that is removed

    assert "fixed 1 finding, 1 more went with it, none left" in said


def test_fix_of_the_standard_input_prints_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUOTED.encode())))

    code, out, err = run("lint", "-", "--fix")

    assert (code, out) == (0, MENDED)
    assert "fixed 1 finding" in err


TRAILING = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "bf16": {"enabled": "auto",},
  "our,}": "a,]\\"",
  "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.999, ], "lr": "auto"},},
  "zero_optimization": {"stage": 2},
}
"""


def test_commas_behind_last_entries_are_taken_away_where_a_program_reads_json(run: Run) -> None:
    file = put("ds.json", TRAILING)

    said = run("lint", "ds.json", "--fix", "--select", "not-strict-json")[1]

    assert "fixed 1 finding, none left" in said
    assert file.read_text() == TRAILING.replace(",}", "}").replace(", ]", " ]").replace("},\n}", "}\n}").replace(
        '"our}"', '"our,}"'
    )
    assert json.loads(file.read_text())["our,}"] == 'a,]"'


def test_commas_stay_where_another_thing_keeps_json_from_the_file(run: Run) -> None:
    text = TRAILING.replace('"auto",\n', '"auto",  // ours\n', 1)
    file = put("ds.json", text)

    assert "fixable" not in run("lint", "ds.json", "--select", "not-strict-json")[1]
    assert "fixed" not in run("lint", "ds.json", "--fix", "--select", "not-strict-json")[1]
    assert file.read_text() == text


def test_commas_stay_where_deepspeed_itself_reads_the_file(run: Run) -> None:
    put("ds.json", '{"train_batch_size": 8,}\n')

    assert "no findings" in run("lint", "ds.json", "--select", "not-strict-json")[1]
