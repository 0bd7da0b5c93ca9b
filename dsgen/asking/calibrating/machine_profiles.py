"""The hardware profile that keeps what was measured of a machine: what it extends, its text, and where it may stand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsgen import catalog
from dsgen.asking.calibrating.measurements import Measurement, fullest, peak_ratio, peak_reason, step_ratio, step_reason
from dsgen.catalog.sheets import AUTO
from dsgen.documents.writing import write_atomically
from dsgen.jobs.job import Job
from dsgen.shapes.errors import DsgenError, mistake
from dsgen.shapes.layers import Rank

__all__ = ["Machine", "machine", "text", "write"]

_HARDWARE = "hardware."
RATIOS = tuple(f"{_HARDWARE}{fact}" for fact in ("step_time_ratio", "peak_memory_ratio", "measured_runs"))
_SUFFIX = "-measured"  # behind the name of what was measured, where the profile has no file to be named after
_ABOUT = """\
# Written by dsgen calibrate. One run was measured; every step takes step_time_ratio times what is computed, and every
# GPU's tensors peak_memory_ratio times. dsgen calibrate --hw FILE -o FILE adds another measurement.
"""


@attrs.frozen(kw_only=True)
class Machine:
    """What was measured, as profiles know it.

    Attributes:
        name: The profile that names it.
        title: What a person calls it.
        file: Its file; a built-in one's is below profiles/.
        extends: What a profile of the machine starts from: a name, or the path of a file.
        is_file: Whether that is a path.
        only: Whether its file says nothing but what dsgen calibrate writes.
        measurements: What its file keeps.
        facts: Fact of the hardware that was said beside profiles -> its value, and where it was said.
    """

    name: str
    title: str
    file: str
    extends: str
    is_file: bool
    only: bool
    measurements: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, tuple[Any, str]]


def machine(job: Job) -> Machine:
    """The machine of a job.

    Raises:
        DsgenError: No profile names its hardware.
    """
    profile, by_path = _profile(job)
    only = bool(profile.measurements) and profile.own <= set(RATIOS)
    extends, is_file = (profile.file, True) if by_path else (profile.name, False)
    if only and profile.extends is not None:  # a copy of its measurements starts from what it starts from
        parent = Path(profile.file).parent / Path(profile.extends).expanduser()
        is_file = parent.is_file() and profile.extends.endswith((".yaml", ".yml"))
        extends = str(parent) if is_file else profile.extends
    return Machine(
        name=profile.name,
        title=profile.title.removesuffix(", as measured") or profile.name,
        file=profile.file,
        extends=extends,
        is_file=is_file,
        only=only,
        measurements=profile.measurements,
        facts=dict(_said(job)),
    )


def _profile(job: Job) -> tuple[catalog.Profile, bool]:
    """The profile of a job's hardware, and whether only its path says it."""
    name = job.names.get("hardware")
    if name is None:
        raise mistake(
            "no hardware profile is named",
            must="what is measured extends one",
            todo="Name it with --hw; dsgen profiles list hardware shows the built-in ones.",
            code="missing",
        )
    if name == AUTO:
        raise mistake(
            f"--hw {AUTO} is this machine, which has no file yet",
            must="what is measured extends a profile that other machines can read too",
            todo="dsgen hardware detect -o my-box.yaml, then --hw my-box.yaml.",
            code="missing",
        )
    files = {
        item.origin.source: None
        for path, history in job.provenance.overrides.items()
        for item in history
        if path.startswith(_HARDWARE) and item.rank == Rank.HARDWARE
    }
    try:
        named: catalog.Profile | None = catalog.find("hardware", name)
    except DsgenError:  # it has a path alone
        named = None
    if named is not None and any(item.origin.source in files for item in named.layer.overrides[-1:]):
        return named, False
    for file in files:
        if Path(file).is_file() and (profile := catalog.find("hardware", os.path.abspath(file))).name == name:  # noqa: PTH100
            return profile, True
    raise mistake(f"the profile {name!r} is not known any more", must="its file must be there", code="unknown-name")


def _said(job: Job) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Facts of the hardware that a file or an option says beside its profile: the machine has them too."""
    for path, history in job.provenance.overrides.items():
        if path.startswith(_HARDWARE) and path not in RATIOS and history[-1].rank > Rank.HARDWARE:
            yield path.removeprefix(_HARDWARE), (history[-1].value, str(history[-1].origin))


def text(machine: Machine, measured: Sequence[Measurement], path: str | None) -> str:
    """The profile in YAML.

    Args:
        machine: What was measured.
        measured: Its measurements.
        path: Where it will stand: what it is named after, and where the path of what it extends starts.
    """
    extends = machine.extends
    if machine.is_file:
        folder = os.path.abspath(Path(path).expanduser().parent if path else ".")  # noqa: PTH100
        extends = os.path.relpath(os.path.abspath(extends), folder)  # noqa: PTH100
    peak = peak_ratio(measured)
    several = f"dsgen calibrate: the {len(measured)} measurements below"
    lines = [
        f"name: {_quoted(Path(path).stem if path else machine.name.removesuffix(_SUFFIX) + _SUFFIX)}",
        "kind: hardware",
        f"title: {_quoted(f'{machine.title}, as measured')}",
        f"extends: {_quoted(extends)}",
        "source:",
        f"  step_time_ratio: {_quoted(_source(measured[0]) if len(measured) == 1 else several)}",
        *([f"  peak_memory_ratio: {_quoted(_source(fullest(measured)))}"] if peak is not None else []),
        *(
            f"  {fact}: {_quoted(f'as dsgen calibrate was told by {where}')}"
            for fact, (_, where) in machine.facts.items()
        ),
        "measurements:",
        *_listed(measured),
        "hardware:",
        f"  step_time_ratio: {step_ratio(measured):.6g}  # {step_reason(measured)}",
    ]
    if peak is not None:
        lines.append(f"  peak_memory_ratio: {peak:.6g}  # {peak_reason(measured)}")
    lines.append(f"  measured_runs: [{', '.join(_quoted(one.run) for one in measured)}]")
    lines += [f"  {fact}: {json.dumps(value)}" for fact, (value, _) in machine.facts.items()]
    return _ABOUT + "\n".join(lines) + "\n"


def _source(one: Measurement) -> str:
    return f"dsgen calibrate, dsgen {one.dsgen}, {one.date}: {one.run}, {one.strategy}"


def _listed(measured: Sequence[Measurement]) -> Iterator[str]:
    for one in measured:
        lead = "  - "
        for name, value in one.facts.items():
            yield f"{lead}{name}: {_quoted(value) if isinstance(value, str) else f'{value:.6g}'}"
            lead = "    "


def _quoted(words: str) -> str:
    """Text as YAML reads it, whatever is in it: JSON's strings are YAML's too."""
    return json.dumps(words, ensure_ascii=False)


def write(machine: Machine, measured: Sequence[Measurement], path: str, force: bool) -> None:
    """Write the profile; a file that is there is kept, unless it is the one that is added to.

    Raises:
        DsgenError: It cannot be written, it would extend itself, or another file is there.
    """
    here = Path(path).expanduser()
    if here.suffix not in (".yaml", ".yml") and not (here.exists() and not here.is_file()):
        raise mistake(
            f"-o is {path!r}", must="a profile's file ends in .yaml", todo=f"Such as {here.with_suffix('.yaml')}."
        )
    itself = here.exists() and Path(machine.file).is_file() and here.samefile(machine.file)
    if itself and not machine.only:
        raise mistake(
            "it says more than measurements, which would be lost",
            where=path,
            todo="Name another file with -o: it extends this one.",
            code="unwritable",
        )
    parent = machine.is_file and here.exists() and Path(machine.extends).is_file() and here.samefile(machine.extends)
    if parent:
        raise mistake("it would extend itself", where=path, todo="Name another file with -o.", code="unwritable")
    if here.is_file() and not itself and not force:
        raise mistake(
            "it is there already",
            where=path,
            todo=f"To add a measurement to it: --hw {path}. To lose what it says: --force.",
            code="unwritable",
        )
    write_atomically(path, text(machine, measured, path))
