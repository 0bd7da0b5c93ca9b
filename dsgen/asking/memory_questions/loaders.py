"""What the program that trains decides of memory where nobody says it: loading, Liger's kernels, an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from dsgen.asking.memory_questions.questions import EVALUATED, Question
from dsgen.frameworks.between_steps import BY_THE_TRAINER, evaluated
from dsgen.frameworks.names import check_name
from dsgen.jobs.job import Job
from dsgen.jobs.releases import knows_liger_kernels, obeys_zero3_init_flag, with_liger_kernels
from dsgen.linting.statements import Statement
from dsgen.memory.loading import KBIT_FP32_OF, LOADINGS_OF
from dsgen.shapes.layers import Origin, Override, Provenance, Rank
from dsgen.shapes.optimizer_names import is_paged, meant
from dsgen.shapes.profiles import Training

if TYPE_CHECKING:
    from dsgen.asking.training_arguments import TrainingArguments

__all__ = [
    "BY_PROGRAM",
    "by_program",
    "evaluates_as_the_trainer",
    "evaluating_as_rendered",
    "for_program",
    "program_of",
    "stated",
    "under_zero_init",
]

BY_PROGRAM = "--target"  # who said what the program decides
_TRAINER = "hf-trainer"


def for_program(job: Job, target: str | None) -> Job:
    """The job as a program loads its model, where nobody says how; the Trainer patches it with all that Liger has.

    Source: transformers 5.23, integrations/liger.py: `use_liger_kernel` calls `_apply_liger_kernel_to_instance`, whose
    defaults are RoPE, norms, SwiGLU (GeGLU) and the chunked loss.

    Args:
        job: The job.
        target: The program, by the name that `--target` takes; None where it is not known.

    Raises:
        DsgenError: No such program.
    """
    if target is None:
        return job
    check_name(target)
    training = job.training
    decides: dict[str, Any] = {
        "loading": LOADINGS_OF[target],
        "kbit_fp32": KBIT_FP32_OF.get(target, training.kbit_fp32),
    }
    winners = {name: job.provenance.winner(f"training.{name}") for name in decides}
    unsaid = {name: decides[name] for name, one in winners.items() if one is None or one.rank <= Rank.DEFAULT}
    patched = target == _TRAINER and training.chunked_loss and training.liger_kernels is None
    if patched and knows_liger_kernels(job.model, training.liger):
        unsaid["liger_kernels"] = True
        job = attrs.evolve(job, model=with_liger_kernels(job.model, training.liger))
    origin = Origin(f"{BY_PROGRAM} {target}")
    paths = {f"training.{name}": value for name, value in unsaid.items() if value != getattr(training, name)}
    told = {path: (Override(path, value, origin, Rank.TRAINING),) for path, value in paths.items()}
    provenance = Provenance({**job.provenance.overrides, **told})
    return attrs.evolve(job, training=attrs.evolve(training, **unsaid), provenance=provenance)


def evaluating_as_rendered(question: Question, target: str | None) -> Question:
    """The question with the evaluation's batch that `dsgen render --target` writes, where nobody says another."""
    if target not in BY_THE_TRAINER or question.subject is not None or EVALUATED in question.said:
        return question
    batch = evaluated(question.job, question.strategy)
    return question if batch is None else question.evaluating(batch.sequences, f"{BY_PROGRAM} {target}")


def evaluates_as_the_trainer(question: Question) -> bool:
    """Whether the Trainer evaluates; of a program that nobody names it is taken to."""
    return program_of(question) in (None, *BY_THE_TRAINER)


def program_of(question: Question) -> str | None:
    """The program that decides something of a question; None where none is named."""
    named = (one.by.partition(" ")[2] for one in question.said.values() if one.by.startswith(BY_PROGRAM))
    return next((name for name in named if name), None)


def under_zero_init(
    training: Training, flag: Statement | None, arguments: TrainingArguments | None = None
) -> tuple[bool, str | None]:
    """Whether stage 3 makes the model under zero.Init, by what Accelerate is told and by what the program does first;
    and what a person should know of it.

    Args:
        training: How it is trained; its `transformers` tells which Accelerate runs.
        flag: The zero3_init_flag that a file says; None where none does.
        arguments: Those of the program that trains.
    """
    if arguments is not None and (late := arguments.loads_first):
        return False, late
    if flag is None or flag.value:
        return True, None
    told = f"{flag.word.lstrip('-')} is false ({flag.name}:{flag.line})"
    if obeys_zero3_init_flag(training):
        of = f"with transformers {training.transformers} it is taken to be before 1.0"
        return False, f"{told}, so no zero.Init makes the model: Accelerate obeys it before 1.0, and {of}"
    return True, f"{told}, and zero.Init is called all the same: only Accelerate before 1.0 obeys it (--no-zero-init)"


def by_program(program: Statement | None, training: Training) -> Iterator[str]:
    """What is to be known of the optimizer that a training file says its program makes."""
    if program is None:
        return
    told = f"{program.value} ({stated(program)}) is counted as {training.optimizer}"
    if meant(program.value) is None:
        yield told
    elif is_paged(program.value):
        yield f"{told}, its states on the GPU: what is paged leaves for RAM where the GPU is full"


def stated(statement: Statement) -> str:
    """Where a file says it."""
    return f"{statement.name}:{statement.line}"
