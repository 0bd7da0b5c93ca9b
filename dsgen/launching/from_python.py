"""What `import dsgen` offers of a run that is to start: its folder."""

from __future__ import annotations

from collections.abc import Sequence

from dsgen.jobs import scenarios
from dsgen.launching import RunFolder, run_folder
from dsgen.launching.asked import Wishes, asked_launch
from dsgen.planning.launchers import started_by
from dsgen.planning.planner import Plan
from dsgen.rendering import Config, render
from dsgen.rendering.wanted import Path, Wanted, job, plan
from dsgen.shapes.arguments import names_arguments, path_of, text_of

__all__ = ["launch"]


@names_arguments(scenarios.NAMES)
def launch(
    wanted: Wanted,
    *,
    launcher: str,
    folder: Path,
    target: str = "deepspeed",
    script: Path | None = None,
    module: str | None = None,
    arguments: Sequence[str] = (),
    config_argument: str | None = None,
    checkpoint_argument: str | None = None,
    hostfile: Path | None = None,
    interface: str | None = None,
    port: int = 29500,
    directives: Sequence[str] = (),
    filled: Sequence[str] = (),
    image: str | None = None,
    deepspeed: str | None = None,
) -> RunFolder:
    """The folder of a run, as `dsgen launch` writes it; `.write()` writes it, and nothing is started.

    Args:
        wanted: At least a hardware and a model.
        launcher: deepspeed, torchrun, accelerate, slurm, kubernetes or skypilot.
        folder: Where its files go.
        target: The program that loads the config: deepspeed, hf-trainer, accelerate, lightning, axolotl, llama-factory
            or ms-swift; the last three are programs themselves.
        script: The Python file that every rank runs.
        module: Or the module, as `python -m` takes it.
        arguments: What it is given, letter for letter.
        config_argument: What it takes the config by; "none" gives it none, by default as its target does.
        checkpoint_argument: What it takes the folder of checkpoints by; likewise.
        hostfile: The machines of several nodes, a line `worker-1 slots=8` for each.
        interface: The network interface between hosts.
        port: Where rank 0 waits.
        directives: Further options of sbatch.
        filled: NAME=VALUE each, for the file of axolotl, llama-factory or ms-swift.
        image: The container image of kubernetes, or of skypilot's nodes.
        deepspeed: As in `job`.

    Raises:
        DsgenError: As `render`; or no program, hosts at odds with the job, a launcher or target that is none.
    """
    wishes = Wishes(
        launcher=text_of(launcher, "launcher", "slurm"),
        folder=path_of(folder),
        target=text_of(target, "target", "hf-trainer"),
        script=None if script is None else path_of(script),
        module=module,
        arguments=tuple(arguments),
        config_argument=config_argument,
        checkpoint_argument=checkpoint_argument,
        hostfile=None if hostfile is None else path_of(hostfile),
        interface=interface,
        port=port,
        directives=tuple(directives),
        filled=tuple(filled),
        image=image,
    )
    if not isinstance(wanted, (Config, Plan)):
        wanted = started_by(job(wanted, deepspeed), wishes.launcher)
    return run_folder(asked_launch(render(plan(wanted, deepspeed)), wishes))
