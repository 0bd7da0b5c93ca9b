"""What `import dsgen` offers of frameworks: the files of a job, and what its program must do."""

from __future__ import annotations

from dsgen import frameworks
from dsgen.frameworks import needs as questions
from dsgen.jobs import scenarios
from dsgen.rendering import render
from dsgen.rendering.wanted import Wanted, plan
from dsgen.shapes.arguments import names_arguments, text_of

__all__ = ["job_files", "needs"]


@names_arguments(scenarios.NAMES)
def job_files(
    wanted: Wanted,
    target: str,
    deepspeed: str | None = None,
    *,
    resolve: bool = False,
    path: str = frameworks.CONFIG_FILE,
) -> frameworks.JobFiles:
    """The config as a framework must have it, and the files and arguments that belong to it.

    Args:
        wanted: At least a hardware and a model.
        target: "deepspeed", "hf-trainer", "accelerate", "lightning", "axolotl", "llama-factory" or "ms-swift".
        deepspeed: As in `job`.
        resolve: Numbers where "auto" would stand.
        path: Where the config's file will lie, as the other files name it.

    Raises:
        DsgenError: As `render`; no such target, or one that does not train such a model.
    """
    config = render(plan(wanted, deepspeed))
    return frameworks.job_files(config, text_of(target, "target", "hf-trainer"), resolve=resolve, path=path)


@names_arguments(scenarios.NAMES)
def needs(wanted: Wanted, target: str = "deepspeed", deepspeed: str | None = None) -> tuple[questions.Need, ...]:
    """What a program must do for a plan beside its config, each thing with its code and what happens without it.

    Args:
        wanted: At least a hardware and a model.
        target: Whose code; as in `job_files`.
        deepspeed: As in `job`.

    Raises:
        DsgenError: As `plan`; no such target.
    """
    return questions.needs(render(plan(wanted, deepspeed)).plan, text_of(target, "target", "hf-trainer"))
