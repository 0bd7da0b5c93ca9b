"""What the tests of the linter's commands and reports share: configs, findings, and a run of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsgen.cli import main
from dsgen.documents.hjson import reader
from dsgen.linting.files import Linted
from dsgen.linting.settings import Settings
from dsgen.linting.sources import Source
from dsgen.shapes.findings import Finding, Fix, Move, Remove, Severity

GOOD = '{"train_micro_batch_size_per_gpu": 1}\n'
# One finding: an error, whose fix guesses and is an offer.
TYPO = '{\n  "train_micro_batch_size_per_gpu": 1,\n  "zero_optimization": {"overlap_com": false, "stage": 1}\n}\n'
QUOTED = TYPO.replace('"overlap_com": false', '"reduce_bucket_size": "5e8"')  # one finding too, with a safe fix
MENDED = QUOTED.replace('"5e8"', "500000000")
UNKNOWN = '{"train_micro_batch_size_per_gpu": 1, "our_own_key": 1}\n'  # a warning, whose fix is unsafe

TEXT = '{\n  "tensor_parallel": {\n    "tp_size": 4,\n    "x": 1\n  }\n}\n'
RENAME = Fix("rename to autotp_size", (Move("tensor_parallel.tp_size", "tensor_parallel.autotp_size"),))
REMOVE = Fix("remove x", (Remove("tensor_parallel.x"),), safe=False)


def finding(
    severity: Severity = Severity.ERROR,
    *,
    path: str = "tensor_parallel.tp_size",
    message: str = "DeepSpeed rejects tp_size",
    at: tuple[int, int, int] = (3, 5, 14),
    fix: Fix | None = RENAME,
    rule: tuple[str, str] = ("DSG101", "rejected-key"),
) -> Finding:
    return Finding(
        code=rule[0],
        rule=rule[1],
        severity=severity,
        path=path,
        message=message,
        line=at[0],
        column=at[1],
        end_column=at[2],
        fix=fix,
    )


UNSAFE = finding(Severity.WARNING, path="tensor_parallel.x", at=(4, 5, 8), fix=REMOVE, rule=("DSG102", "unread-key"))


def linted(*found: Finding, name: str = "ds.json", text: str = TEXT, **more: Any) -> Linted:
    about = {key: more.pop(key) for key in ("target", "guessed") if key in more}
    source = Source(document=reader.read(text, name), **{"target": "deepspeed", **about})
    said = {"deepspeed": "0.19.8", "settings": Settings(deepspeed="0.19.8")}
    return Linted(source=source, findings=found, **(said | more))


def put(name: str, text: str | bytes) -> Path:
    """A file of the working folder, and the folders around it."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def dsgen(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line; gives the exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


def found(out: str) -> dict[str, list[str]]:
    """File -> names of the rules, from the json report."""
    return {file["file"]: [item["rule"] for item in file["findings"]] for file in json.loads(out)["files"]}
