"""What `import dsgen` offers of a run that failed: why it did, from its log."""

from __future__ import annotations

from dsgen import diagnosing
from dsgen.asking import memory_questions
from dsgen.diagnosing import Diagnosis
from dsgen.jobs import scenarios
from dsgen.rendering.wanted import Path, Values, Wanted, job
from dsgen.shapes.arguments import names_arguments, path_of
from dsgen.shapes.errors import mistake

__all__ = ["diagnose"]


@names_arguments(scenarios.NAMES)
def diagnose(
    log: Path, wanted: Wanted | None = None, config: Values | Path | None = None, deepspeed: str | None = None
) -> Diagnosis:
    """Why a run failed or is slow, from its log: `.code`, `.root`, `.remarks`, `.changes`.

    Args:
        log: What the run printed, of any size and any number of ranks; "-" reads stdin.
        wanted: What ran, at least a hardware and a model; without it nothing is compared with what is predicted.
        config: The DeepSpeed config that ran, or its file.
        deepspeed: As in `job`.

    Raises:
        DsgenError: No such log, it is empty or no text; or as `memory`.
    """
    path = path_of(log, "it must be the path of a log")
    if wanted is None and config is not None:
        raise mistake(
            "wanted is missing", must="a config needs the job beside it", code="missing",
            todo='diagnose("train.log", {"hw": "a100-40g", "model": "7b"}, config="ds_config.json")',
        )  # fmt: skip
    question = memory_questions.question(job(wanted, deepspeed), config) if wanted is not None else None
    return diagnosing.diagnose(diagnosing.blocks(path), question)
