"""How an optimizer and a schedule come to run: those of the config, or where it has none the program's own."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dsgen.planning.lengths import schedule
from dsgen.planning.planner import Plan
from dsgen.rendering.configs import merged
from dsgen.strategies.buffers import EIGHT_BITS

__all__ = ["OptimizerStart", "otherwise", "start", "start_code", "words"]

# Optimizers of the plan that torch has by the same name; of another AdamW is shown.
_OF_TORCH = ("AdamW", "Adam", "SGD", "Adagrad")
_OF_BITSANDBYTES = {EIGHT_BITS: "bitsandbytes.optim.AdamW8bit"}
_FROZEN = "frozen parameters get gradients and states, or none at all are trained"
_BY_FILE = ("axolotl", "llama-factory", "ms-swift")  # the Trainer runs below; deepspeed_optim_sched takes the config's
_TRAINED = "[item for item in model.parameters() if item.requires_grad]"


class OptimizerStart(NamedTuple):
    """What a config has of the two: a person may have deleted either (`optimizer: null`)."""

    optimizer: bool
    scheduler: bool


def start(plan: Plan) -> OptimizerStart:
    """What the merged config of a plan has, overrides and deletions of a person included."""
    tree = merged(plan)
    return OptimizerStart(bool(tree.get("optimizer")), bool(tree.get("scheduler")))


def words(has: OptimizerStart, target: str, makes_own: bool) -> str:
    """What is to be done, in a few words.

    Args:
        has: What the config has.
        target: The framework.
        makes_own: Whether it makes what is missing from its arguments.
    """
    maker = "the Trainer" if target == "hf-trainer" else target
    own = f"{maker}'s own" if makes_own else "the program's own"
    return {
        OptimizerStart(True, True): "optimizer and schedule from the config",
        OptimizerStart(False, True): f"an optimizer of {own}, and the schedule from the config",
        OptimizerStart(True, False): f"the optimizer from the config, and a schedule of {own} if one is wanted",
        OptimizerStart(False, False): f"optimizer and schedule of {own}: the config has neither",
    }[has]


def otherwise(has: OptimizerStart, target: str, makes_own: bool) -> str:
    """What happens without it."""
    if makes_own and has != OptimizerStart(True, True):
        return "it makes what the config lacks from its arguments: AdamW, and lr_scheduler_type"
    if not has.optimizer:
        return {
            "accelerate": "a DummyOptim without an optimizer in the config is refused (ValueError)",
            "lightning": "no optimizer is there, and nothing is trained",
        }.get(target, "ZeRO without an optimizer trains nothing")
    if not has.scheduler:
        return "the learning rate stays what it is from the first step on"
    return {
        "hf-trainer": "an optimizer of the program's own beside the config's is refused (ValueError)",
        "accelerate": "an optimizer of torch beside the config's is refused (ValueError)",
        "lightning": "without configure_optimizers it stops; one that is there is not asked",
        **dict.fromkeys(_BY_FILE, "an optimizer that the file names besides (optim, GaLore, LoRA+) is not asked"),
    }.get(target, _FROZEN)


def start_code(plan: Plan, target: str, config: str) -> str:
    """The code behind what makes the model.

    Args:
        plan: What the program runs.
        target: hf-trainer, accelerate, lightning or deepspeed.
        config: How a program of DeepSpeed's names the config, as Python.
    """
    has = start(plan)
    return "\n".join(_LINES[target](plan, has) if target != "deepspeed" else _deepspeed(plan, has, config))


def _trainer(plan: Plan, has: OptimizerStart) -> Iterator[str]:
    yield "from transformers import Trainer"
    yield ""
    told = "the config has them" if has == OptimizerStart(True, True) else "it makes what the config lacks"
    yield f"trainer = Trainer(model=model, args=args, train_dataset=dataset)  # no optimizers: {told}"


def _accelerate(plan: Plan, has: OptimizerStart) -> Iterator[str]:
    dummies = ", ".join(
        name for name, used in (("DummyOptim", has.optimizer), ("DummyScheduler", _dummy_schedule(has))) if used
    )
    if dummies:
        yield f"from accelerate.utils import {dummies}"
    yield from _imports(plan, has, on_host=False)  # Accelerate takes DeepSpeed's of the same name where it offloads
    yield ""
    if has.optimizer:
        yield f"optimizer = DummyOptim({_TRAINED})"
    else:
        yield from _optimizer(plan, "optimizer = ", on_host=False)
    if has.scheduler:
        yield "scheduler = DummyScheduler(optimizer)"
    elif has.optimizer:
        yield f"scheduler = DummyScheduler(optimizer, lr_scheduler_callable=lambda own: {_schedule(plan, 'own')})"
    else:
        yield f"scheduler = {_schedule(plan, 'optimizer')}"
    yield "model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)"


def _dummy_schedule(has: OptimizerStart) -> bool:
    """Accelerate takes a schedule of its own kind beside the config's, and beside an optimizer of its own kind."""
    return has.scheduler or has.optimizer


def _lightning(plan: Plan, has: OptimizerStart) -> Iterator[str]:
    if has == OptimizerStart(True, True):
        yield from _unasked()
        yield from _fit("the config has optimizer and schedule")
        return
    if has.optimizer:
        yield from _unasked()
        yield from _fit("the optimizer is the config's: Lightning asks for no schedule beside it")
        return
    yield from _imports(plan, has, on_host=_on_host(plan))
    yield ""
    yield ""
    yield "def configure_optimizers(self):  # of your LightningModule: the config has no optimizer"
    for line in _optimizer(plan, "optimizer = ", on_host=_on_host(plan)):
        yield f"    {line}".replace("model.", "self.")
    if has.scheduler:
        yield "    return optimizer  # the schedule is the config's"
    else:
        yield f"    scheduler = {_schedule(plan, 'optimizer')}"
        yield '    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}'
    yield ""
    yield ""
    yield from _fit("the module gives its own optimizer")


def _unasked() -> Iterator[str]:
    """Lightning 2.6 refuses a module without the method (trainer/configuration_validator.py), and then asks it not."""
    yield "def configure_optimizers(self):  # of your LightningModule: it must be there, and is not asked"
    yield "    return None"
    yield ""
    yield ""


def _fit(words: str) -> Iterator[str]:
    yield "from trainer import last, trainer"
    yield ""
    yield f"trainer().fit(module, loader, ckpt_path=last())  # {words}"


def _deepspeed(plan: Plan, has: OptimizerStart, config: str) -> Iterator[str]:
    yield "import deepspeed"
    yield from _imports(plan, has, on_host=_on_host(plan))
    yield ""
    if not has.optimizer:
        yield from _optimizer(plan, "optimizer = ", on_host=_on_host(plan))
    yield "engine, optimizer, _, scheduler = deepspeed.initialize("
    yield "    model=model,"
    yield f"    model_parameters={_TRAINED}," if has.optimizer else "    optimizer=optimizer,"
    if not has.scheduler:
        yield f"    lr_scheduler=lambda own: {_schedule(plan, 'own')},"
    yield f"    config={config},"
    yield ")"


_LINES = {"hf-trainer": _trainer, "accelerate": _accelerate, "lightning": _lightning}


def _on_host(plan: Plan) -> bool:
    """Whether Adam runs on the host: DeepSpeed refuses one that is not its own there."""
    return plan.chosen.strategy.offload_optimizer != "none" and _name(plan) in ("AdamW", "Adam")


def _name(plan: Plan) -> str:
    wished = plan.job.training.optimizer
    return wished if wished in _OF_TORCH else "AdamW"


def _imports(plan: Plan, has: OptimizerStart, on_host: bool) -> Iterator[str]:
    if not has.optimizer and plan.job.training.optimizer in _OF_BITSANDBYTES:
        yield "import bitsandbytes"
    elif not has.optimizer:
        yield "from deepspeed.ops.adam import DeepSpeedCPUAdam" if on_host else "import torch"
    if not has.scheduler:
        yield "from transformers import get_scheduler"


def _optimizer(plan: Plan, before: str, on_host: bool) -> Iterator[str]:
    """An optimizer of the plan's numbers over what is trained."""
    wishes, name = plan.job.training, _name(plan)
    numbers: Mapping[str, str] = {
        "lr": repr(wishes.lr),
        "betas": f"({wishes.beta1}, {wishes.beta2})",
        "eps": repr(wishes.eps),
        "weight_decay": repr(wishes.weight_decay),
    }
    taken = [key for key in numbers if name in ("AdamW", "Adam") or key in ("lr", "weight_decay")]
    own = _OF_BITSANDBYTES.get(wishes.optimizer, f"torch.optim.{name}")
    kind = "DeepSpeedCPUAdam" if on_host else own
    extra = f", adamw_mode={name == 'AdamW'}" if on_host else ""
    yield f"{before}{kind}("
    yield f"    {_TRAINED},"
    yield f"    {', '.join(f'{key}={numbers[key]}' for key in taken)}{extra},"
    yield ")"


def _schedule(plan: Plan, of: str) -> str:
    """The plan's schedule as transformers makes it: a cosine where its end is known, else constant after a warm-up."""
    planned = schedule(plan.job, plan.chosen.strategy)
    if planned.total_steps is None:
        return f'get_scheduler("constant_with_warmup", {of}, num_warmup_steps={planned.warmup_steps})'
    return (
        f'get_scheduler("cosine", {of}, num_warmup_steps={planned.warmup_steps}, '
        f"num_training_steps={planned.total_steps})"
    )
