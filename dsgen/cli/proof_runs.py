"""Proofs in a row: each is shown and kept as soon as it ends, and a run that is cut off says how it goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from dsgen.cli.progress import shown
from dsgen.cli.terminal import emit

if TYPE_CHECKING:
    from dsgen.asking.proofs import ToProve
    from dsgen.proving.kept_proofs import Identity, Records
    from dsgen.proving.prover import Proof

__all__ = ["run"]


def run(
    names: Sequence[str], questions: Sequence[ToProve], record: str | None, form: str, **options: Any
) -> tuple[Proof, ...]:
    """Prove what is not proven yet, and print all of it, in order.

    Args:
        names: What each is called.
        questions: What is to be proven.
        record: The file of proofs of an earlier run, which gets those of this one; None for none.
        form: "text", or "json", which is printed when all have ended.
        options: As `prover.prove_many` takes them.
    """
    from dsgen.asking import proofs

    said = {name: options[name] for name in ("ranks", "device", "steps")}
    identities = [proofs.identity(one, **said) if record is not None else None for one in questions]
    records, proven = _earlier(record, identities)
    _say_what_stands(records, proven, names)
    left = [place for place, proof in enumerate(proven) if proof is None]
    printed = 0

    def show() -> None:
        """Print, in order, what has ended."""
        nonlocal printed
        while form == "text" and printed < len(proven) and (proof := proven[printed]) is not None:
            _show(names[printed], proof, alone=len(proven) == 1)
            printed += 1

    def ended(number: int, proof: Proof) -> None:
        place = left[number]
        proven[place] = proof
        if records is not None and (who := identities[place]) is not None:
            records.keep(who, proof)
        with progress.aside():
            show()

    with shown([names[place] for place in left]) as progress:
        with progress.aside():
            show()
        try:
            if left:
                proofs.proven([questions[place] for place in left], tell=progress.tell, ended=ended, **options)
        except KeyboardInterrupt:
            with progress.aside():
                _say_how_it_goes_on(record, proven)
            raise
    told = tuple(proof for proof in proven if proof is not None)
    if form == "json":
        dicts = [proof.to_dict() for proof in told]
        told_all = dicts[0] if len(dicts) == 1 else dict(zip(names, dicts, strict=True))
        emit(json.dumps(told_all, indent=2), "json", nl=True)
    return told


def _earlier(record: str | None, identities: Sequence[Identity | None]) -> tuple[Records | None, list[Proof | None]]:
    """The file of an earlier run, and what in it stands for a start."""
    from dsgen.proving.kept_proofs import Records

    if record is None:
        return None, [None] * len(identities)
    records = Records(record)
    proven: list[Proof | None] = []
    for who in identities:
        kept = None if who is None else records.find(who)
        note = f"not started again: proven {kept.made}, in {record}" if kept else ""
        proven.append(attrs.evolve(kept.proof, notes=(*kept.proof.notes, note)) if kept else None)
    return records, proven


def _say_what_stands(records: Records | None, proven: Sequence[Proof | None], names: Sequence[str]) -> None:
    """What of a record is taken, and what of it is none."""
    if records is None:
        return
    if records.broken:
        lines = "line is" if records.broken == 1 else "lines are"
        click.echo(
            f"{records.path}: {records.broken} {lines} no whole record of a proof, and not taken for one", err=True
        )
    if done := [name for name, proof in zip(names, proven, strict=True) if proof is not None]:
        told = done[0] if len(names) == 1 else f"{len(done)} of {len(names)}"
        click.echo(f"{told}: proven already and unchanged ({records.path}), not started again", err=True)


def _say_how_it_goes_on(record: str | None, proven: Sequence[Proof | None]) -> None:
    """After Ctrl-C: what has ended, and how to go on."""
    done = sum(proof is not None for proof in proven)
    if len(proven) == 1:
        return
    later = (
        f"what was proved is in {record}, and the same command goes on from there"
        if record is not None
        else "with --record FILE such a run goes on where it stopped"
    )
    click.echo(f"interrupted: {done} of {len(proven)} had ended; {later}", err=True)


def _show(name: str, proof: Proof, *, alone: bool) -> None:
    """Print one proof, of several below its name."""
    from dsgen.report import proof as report

    emit(report.text(proof) if alone else f"{name}\n{report.text(proof)}", "proof", nl=True)
