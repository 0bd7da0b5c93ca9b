"""By which kind of torch's checkpointing a program recomputes activations, why, and what that asks of it."""

from __future__ import annotations

from dsgen.jobs.job import Job
from dsgen.jobs.releases import reenters as _reenters
from dsgen.jobs.releases import why_reenters
from dsgen.planning.planner import Plan

__all__ = ["INPUTS", "OFFLOADING", "input_gradients", "kind_arguments", "offloading_code", "offloads", "reason",
           "reenters"]  # fmt: skip

INPUTS = "model.enable_input_require_grads()"
OFFLOADING = "activation_offloading"  # the argument of TRL's SFTConfig and of Axolotl


def reenters(plan: Plan) -> bool:
    """Whether it is the reentrant kind: a person says so, or adapters at stage 3 under an older DeepSpeed need it."""
    return _reenters(plan.job.training, plan.chosen.strategy.stage, plan.job.version)


def kind_arguments(plan: Plan) -> dict[str, bool]:
    """The keywords of torch.utils.checkpoint.checkpoint, as transformers and peft take them."""
    return {"use_reentrant": reenters(plan)}


def reason(plan: Plan) -> str:
    """Why it is this kind."""
    why = why_reenters(plan.job.training, plan.chosen.strategy.stage, plan.job.version)
    return why or "the kernels that the plan counts; the reentrant one also needs inputs with gradients"


def offloads(target: str, job: Job) -> bool:
    """Whether a program of a framework moves activations as TRL does, and recomputes beside that.

    Axolotl 0.18 wraps no block of a model with adapters then (loaders/model.py, _apply_activation_checkpointing);
    LLaMA-Factory and ms-swift have no argument for it.
    """
    if target == "axolotl":
        return job.training.method == "full"
    return target not in ("llama-factory", "ms-swift")


def offloading_code(target: str) -> str:
    """How a program of a framework lets what autograd keeps wait in the node's RAM."""
    if target == "axolotl":
        return "# done: axolotl.yaml says it"
    of_trl = (
        f"# of TRL's own trainers SFTConfig({OFFLOADING}=True) says it; of others:\n" if target == "hf-trainer" else ""
    )
    return (
        f"{of_trl}from trl.models import get_act_offloading_ctx_manager\n\n"
        "offloaded = get_act_offloading_ctx_manager(model)  # before prepare and initialize\n"
        "with offloaded:  # each pass, backward included: of a Trainer in training_step\n    ..."
    )


def input_gradients(plan: Plan) -> str:
    """What a program must call beside it, and when, in words; "" for nothing.

    Reentrant checkpointing gives a gradient where an input has one, which those of a frozen embedding have not.
    transformers 5.23 asks for one by itself (modeling_utils.py), not every older one does (huggingface/transformers
    #42489); TRL's SFTTrainer, LLaMA-Factory (model_utils/checkpointing.py) and ms-swift (trainers/mixin.py) do.
    """
    if not (plan.chosen.strategy.checkpointing and reenters(plan)):
        return ""
    return f"{INPUTS} before its Trainer: a frozen embedding gives reentrant checkpointing no gradient"
