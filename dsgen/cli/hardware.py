"""`dsgen hardware detect`: the machine at hand as a hardware profile."""

from __future__ import annotations

import click

from dsgen.cli.options import idle
from dsgen.cli.terminal import emit

__all__ = ["command"]


@click.group("hardware")
def command() -> None:
    """Detect this machine and write its hardware profile."""


@command.command("detect")
@click.option("-o", "--output", metavar="FILE", help="Write the profile to a file, whole or not at all.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--measure", is_flag=True, help="Measure copies in RAM, and over PCIe where torch sees the GPU: seconds.")
@click.option(
    "--measure-drive",
    metavar="FOLDER",
    help="Measure the drive below a folder: 2 GiB are written, read and deleted.",
)
@click.option("--python", metavar="PROGRAM", help="Interpreter that has torch, for --measure (default: this one).")
@click.option("--record", metavar="FILE", help="Write the raw answers of this machine too, for --from elsewhere.")
@click.option("--from", "answers", metavar="FILE", help="Recorded answers of a machine instead of this one.")
def detect(
    output: str | None,
    force: bool,
    measure: bool,
    measure_drive: str | None,
    python: str | None,
    record: str | None,
    answers: str | None,
) -> None:
    """Ask this machine what it has and print its hardware profile.

    NVIDIA's cards are asked through nvidia-ml-py (pip install "dsgen[detect]"), AMD's through /sys, the host through
    /proc and /sys. The profile extends the built-in one of the cards and says only what differs, each fact with its
    source. --hw auto, on every command that takes --hw, is the same profile without a file.
    """
    from dsgen import detecting
    from dsgen.catalog.detected import detected
    from dsgen.catalog.measured import measured_facts
    from dsgen.detecting import measuring
    from dsgen.detecting.answers import recorded
    from dsgen.documents.writing import ensure_writable, write_atomically
    from dsgen.report import detections
    from dsgen.report.wrapping import fit
    from dsgen.shapes.errors import mistake

    if answers is not None and (measure or measure_drive):
        raise mistake("--from and a measurement", must="only the machine at hand is measured", code="contradiction",
                      todo="Drop one of them.")  # fmt: skip
    output = None if output == "-" else output
    if output is not None:
        ensure_writable(output)
    said = detecting.read(answers) if answers is not None else detecting.ask()
    if record is not None:
        write_atomically(record, recorded(said), by="--record")
    node = detecting.node(said)
    machine = detected(node)  # before long work: it says what cannot be
    if measure or measure_drive:
        memory = measuring.memory_rate(node.cores) if measure else None
        link = measuring.link_rates(python) if measure else None
        drive = measuring.drive_rates(measure_drive) if measure_drive else None
        machine = detected(node, measured_facts(node, memory, drive, link))
        if link is not None and link.missing:
            click.echo(fit(f"warning: PCIe was not measured: {link.missing}; --python PROGRAM names one"), err=True)
    elif python is not None:
        idle("--python", "torch is asked with --measure alone")
    if output is None:
        click.echo(machine.profile(), nl=False)
    else:
        machine.write(output, force=force)
    emit(detections.text(machine, output), "summary", err=True)
