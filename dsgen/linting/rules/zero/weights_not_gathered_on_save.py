"""Stage 3 without gathering the 16-bit weights when the model is saved."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.linting.rules.rule import Rule
from dsgen.linting.subjects import Subject
from dsgen.shapes.findings import Assign, Fault, Fix, Severity

__all__ = ["RULE", "check"]

_PATH = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_OUTCOME = {
    "hf-trainer": "the Trainer saves no weights that from_pretrained could load, but a full ZeRO checkpoint instead",
    "accelerate": "Accelerate's get_state_dict and save_model stop with a ValueError",
}


def check(subject: Subject) -> Iterator[Fault]:
    """Stage 3 with that key false or absent."""
    if subject.stage != 3 or subject.value(_PATH) is not False:
        return
    if subject.raw("zero_optimization.stage3_gather_fp16_weights_on_model_save") is True:
        return  # its old name, which DeepSpeed still takes
    training = subject.facts.training
    if subject.target.name == "hf-trainer" and training is not None and training.method != "full":
        return  # of adapters the Trainer gathers what is trained, whatever the key says
    outcome = _OUTCOME.get(subject.target.name)
    message = f"stage3_gather_16bit_weights_on_model_save is off: {outcome or 'save_16bit_model saves nothing'}"
    fix = Fix("write stage3_gather_16bit_weights_on_model_save: true", (Assign(_PATH, True),), safe=False)
    yield Fault(_PATH, message, fix, None if outcome else Severity.INFO)


RULE = Rule(
    code="DSG351",
    name="weights-not-gathered-on-save",
    severity=Severity.WARNING,
    what="At stage 3 the whole weights are not put together when the model is saved.",
    why=(
        "Every GPU holds a part of each weight. Unless this key is true, nobody gathers them: the Trainer falls back "
        "to a ZeRO checkpoint of all states at every save, which zero_to_fp32.py must turn into weights later; "
        "Accelerate raises. Gathering costs time and the memory of the whole model on the host at each save. Adapters "
        "of peft the Trainer gathers by themselves, without the key."
    ),
    example="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 3}
}""",
    instead="""{
  "train_micro_batch_size_per_gpu": "auto",
  "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}
}""",
    evidence=(
        "transformers/trainer.py (5.23.0): save_model; accelerate/accelerator.py (1.15.0): get_state_dict",
        "deepspeed/runtime/engine.py (0.19.8): save_16bit_model",
    ),
    check=check,
    given={"target": "hf-trainer"},
)
