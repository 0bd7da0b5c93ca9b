"""`dsgen calibrate`: a measured step and peak become facts of a hardware profile."""

from __future__ import annotations

from typing import Any

import click

from dsgen.cli.options import arguments_option, gpus_from, run_from, scenario_options
from dsgen.cli.terminal import emit

__all__ = ["command"]

_PEAKS = "allocated", "reserved", "card"  # as dsgen.asking.calibrating.PEAKS, which an option's help must not load


@click.command("calibrate")
@click.argument("scenario", required=False)
@click.option("--step-seconds", type=float, required=True, metavar="S", help="One optimizer step, measured.")
@click.option("--peak-gib", type=float, metavar="GIB", help="The fullest GPU's peak, measured.")
@click.option(
    "--peak-of",
    type=click.Choice(_PEAKS),
    default="allocated",
    show_default=True,
    help="What that is: torch.cuda.max_memory_allocated, max_memory_reserved, or all that nvidia-smi shows.",
)
@click.option("--config", metavar="FILE", help="The DeepSpeed config that ran, taken as it is.")
@arguments_option
@scenario_options
@click.option("--world-size", metavar="N", help="The same as --gpus.")
@click.option("-o", "--output", metavar="FILE", help="Write the profile to a file, whole or not at all.")
@click.option("--force", is_flag=True, help="Write over another file that is there.")
def command(
    scenario: str | None,
    step_seconds: float,
    peak_gib: float | None,
    peak_of: str,
    config: str | None,
    arguments: str | None,
    world_size: str | None,
    output: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Turn your own measurement of a run into a hardware profile, which later plans use.

    Say what ran as dsgen plan takes it, a SCENARIO file, --args or options, with --config as it really was; then what
    you measured: the seconds of one optimizer step, and the peak of the fullest GPU. The profile extends that of --hw.
    Later, every step takes the ratio of measured and computed time, and every GPU's tensors that of memory. With --hw
    MINE.yaml -o MINE.yaml another measurement is added.
    """
    from dsgen.asking.calibrating import calibrate
    from dsgen.documents.writing import ensure_writable
    from dsgen.report import calibrated
    from dsgen.report.wrapping import fit

    made = calibrate(
        run_from(scenario, config, gpus_from(options, world_size), arguments), step_seconds, peak_gib, peak_of
    )
    output = None if output == "-" else output
    if output is None:
        click.echo(made.profile(), nl=False)
    else:
        ensure_writable(output)
        made.write(output, force=force)
    emit(calibrated.text(made, output), "summary", err=True)
    for warning in made.warnings:
        click.echo(fit(f"warning: {warning}"), err=True)
