"""The code of each need, in the words of each framework."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dsgen.deepspeed.keys import lookup
from dsgen.frameworks import recomputation
from dsgen.frameworks.adapters import adapters, attention, dtype
from dsgen.frameworks.job_files import python_value
from dsgen.frameworks.optimizer_starts import start_code
from dsgen.frameworks.rank_environment import job_variables
from dsgen.frameworks.sequences import sequences_code
from dsgen.jobs.releases import casts_adapters, unknown_leaf
from dsgen.memory.conversions import TO_FP32, conversions
from dsgen.memory.quantized_base import lifts
from dsgen.planning.planner import Plan
from dsgen.rendering.configs import merged

__all__ = ["ON_TRAINER", "snippet", "whole_in_fp32"]

ON_TRAINER = ("hf-trainer", "axolotl", "llama-factory", "ms-swift")  # the Trainer runs, directly or below
_FILES = {"axolotl": "axolotl.yaml", "llama-factory": "llama_factory.yaml", "ms-swift": "ms_swift.yaml"}
_RUN = {"axolotl": "axolotl train", "llama-factory": "llamafactory-cli train", "ms-swift": "swift sft"}
# Needs that the files of `dsgen render --target` have done already, of frameworks that run no code of a person's.
_GATHERS = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_WRITTEN = frozenset(
    ("attention", "four-bits", "adapters", "checkpointing", "chunked-loss", "liger-kernels", "length", "zero-init")
)


class _AskedCode(NamedTuple):
    """For whom code is shown.

    Attributes:
        plan: What the program runs.
        target: The framework.
        launched: Whether `dsgen launch` starts it, which gives its arguments as options.
    """

    plan: Plan
    target: str
    launched: bool

    @property
    def arguments(self) -> str:
        """How a program of the Trainer comes by its TrainingArguments."""
        if self.launched:
            return (
                "from transformers import HfArgumentParser, TrainingArguments\n\n"
                "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()"
            )
        return "from training_args import training_args\n\nargs = training_args()"

    @property
    def told(self) -> str:
        """Who tells the Trainer an argument."""
        return "rank.sh gives" if self.launched else "training_args.py has"


def snippet(code: str, plan: Plan, target: str, launched: bool = False) -> str:
    """The code of a need for a framework; a comment where the framework does it by itself.

    Args:
        code: Of the need.
        plan: The plan.
        target: The framework.
        launched: Whether `dsgen launch` starts the program, which gives its arguments as options.
    """
    if target in _FILES and code in _WRITTEN:
        return f"# done: {_FILES[target]} says it"
    return _SNIPPETS[code](_AskedCode(plan, target, launched))


def _device(at: _AskedCode) -> str:
    if at.target in _FILES or at.target == "lightning":
        return f"# done: {at.target} does it"
    if at.target == "hf-trainer":
        return f"{at.arguments}  # before from_pretrained"
    if at.target == "accelerate":
        return "from accelerate import Accelerator\n\naccelerator = Accelerator()  # before from_pretrained"
    return (
        "import os\n\nimport deepspeed\nimport torch\n\n"
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\ndeepspeed.init_distributed()'
    )


def _zero_init(at: _AskedCode) -> str:
    if at.target == "hf-trainer":
        return f"{at.arguments}  # before from_pretrained, and kept"
    if at.target == "accelerate":
        return (
            "from accelerate import Accelerator\n\n"
            "accelerator = Accelerator()  # before from_pretrained; zero3_init_flag, which is set, does the rest"
        )
    if at.target == "lightning":
        return "def configure_model(self):  # and not in __init__: Lightning calls it under zero.Init\n    ..."
    path = "args.deepspeed_config" if at.launched else '"ds_config.json"'
    return (
        "from transformers.integrations import HfDeepSpeedConfig\n\n"
        f"kept = HfDeepSpeedConfig({path})  # before from_pretrained, and alive as long as the model"
    )


def _load(at: _AskedCode) -> str:
    precision = at.plan.chosen.strategy.precision
    kind = f"torch.{dtype(precision)}"
    kind_of_model = "AutoModelForSeq2SeqLM" if at.plan.job.model.encoder_layers else "AutoModelForCausalLM"
    weights = python_value(at.plan.job.weights) if at.plan.job.weights else "MODEL"
    quantized = "    quantization_config=four_bits,\n" if at.plan.job.training.method == "qlora" else ""
    return (
        f"import torch\nfrom transformers import {kind_of_model}\n\n"
        f"model = {kind_of_model}.from_pretrained(\n"
        f'    {weights},\n    dtype={kind},\n    attn_implementation="{attention(at.plan)}",\n{quantized})'
    )


def _four_bits(at: _AskedCode) -> str:
    kind = dtype(at.plan.chosen.strategy.precision)
    three = at.plan.chosen.strategy.stage == 3
    nested = at.plan.job.training.double_quantization
    storage = f"    bnb_4bit_quant_storage=torch.{kind},  # stage 3 shares out one dtype\n" if three else ""
    return (
        "import torch\nfrom transformers import BitsAndBytesConfig\n\n"
        "four_bits = BitsAndBytesConfig(\n"
        '    load_in_4bit=True,\n    bnb_4bit_quant_type="nf4",\n'
        f"    bnb_4bit_use_double_quant={nested},\n"
        f"    bnb_4bit_compute_dtype=torch.{kind},  # fp32 where nobody says it\n{storage})"
    )


def _adapters(at: _AskedCode) -> str:
    lora = adapters(at.plan.job)
    if lora is None:
        return ""
    if _prepares(at.plan):
        checkpointing = at.plan.chosen.strategy.checkpointing
        said = python_value(recomputation.kind_arguments(at.plan))
        kind = f"    gradient_checkpointing_kwargs={said},\n" if checkpointing else ""
        return (
            "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n\n"
            "model = prepare_model_for_kbit_training(\n"
            f"    model,\n    use_gradient_checkpointing={checkpointing},\n{kind})\n"
            f"model = get_peft_model(model, {_call('LoraConfig', lora.arguments)})"
        )
    job = at.plan.job
    kept = "" if job.training.lora_fp32 or casts_adapters(job.version) else ", autocast_adapter_dtype=False"
    return (
        "from peft import LoraConfig, get_peft_model\n\n"
        f"model = get_peft_model(model, {_call('LoraConfig', lora.arguments)}{kept})"
    )


def _prepares(plan: Plan) -> bool:
    """Whether peft prepares the base, and with it checkpointing."""
    return lifts(plan.job.training, plan.chosen.strategy.stage)


def _call(name: str, arguments: Mapping[str, object]) -> str:
    """A call, one argument to a line."""
    lines = "".join(f"    {key}={python_value(value)},\n" for key, value in arguments.items())
    return f"{name}(\n{lines})"


def _checkpointing(at: _AskedCode) -> str:
    if at.target == "hf-trainer":
        kind = "the reentrant kind" if recomputation.reenters(at.plan) else "not the reentrant kind"
        done = f"# done: {at.told} gradient_checkpointing=True, and {kind}"
        return f"{done}\n{_inputs(at)}".rstrip()
    said = python_value(recomputation.kind_arguments(at.plan))
    return (
        f"{_inputs(at)}model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={said})\n"
        "model.train()  # from_pretrained leaves it in eval mode, in which transformers checkpoints nothing"
    )


def _inputs(at: _AskedCode) -> str:
    """What the reentrant kind asks of the program; prepare_model_for_kbit_training does it for a base in 4 bits."""
    if not recomputation.reenters(at.plan):
        return ""
    why = f"# reentrant: {recomputation.reason(at.plan)}\n"
    return why if _prepares(at.plan) else f"{why}{recomputation.INPUTS}\n"


def _liger(at: _AskedCode) -> str:
    if at.target == "hf-trainer":
        return f"# done: {at.told} use_liger_kernel=True"
    return (
        "from liger_kernel.transformers import _apply_liger_kernel_to_instance\n\n"
        "_apply_liger_kernel_to_instance(model=model)"
    )


def _leaf_modules(at: _AskedCode) -> str:
    path, _, name = unknown_leaf(at.plan.job.model, at.plan.job.version).rpartition(".")
    if at.target == "accelerate" and not at.launched:
        return f"# done: accelerate.yaml has deepspeed_moe_layer_cls_names: {name}"
    return (
        f"from deepspeed.utils import set_z3_leaf_modules\nfrom {path} import {name}\n\n"
        f"set_z3_leaf_modules(model, [{name}])"
    )


def _same_data(at: _AskedCode) -> str:
    tp = at.plan.chosen.strategy.tp
    if at.target in (*ON_TRAINER, "accelerate"):
        return "# done: Accelerate gives the ranks of a group the same batches"
    return (
        "import torch.distributed as dist\nfrom torch.utils.data import DataLoader, DistributedSampler\n\n"
        f"replicas, replica = dist.get_world_size() // {tp}, dist.get_rank() // {tp}\n"
        "sampler = DistributedSampler(dataset, num_replicas=replicas, rank=replica)\n"
        "loader = DataLoader(dataset, batch_size=MICRO_BATCH, sampler=sampler)"
    )


def _length(at: _AskedCode) -> str:
    return sequences_code(at.plan.job, at.target == "hf-trainer")


def _environment(at: _AskedCode) -> str:
    if at.launched:
        return "# done: env.sh says them"
    lines = ["# in a shell, before the start; `dsgen launch` writes them into env.sh:"]
    for one in job_variables(at.plan, at.target):
        lines += [f"# export {one.name}={one.value}  # {one.reader}"]
    return "\n".join(lines)


def _start(at: _AskedCode) -> str:
    if at.target in _FILES:
        return f"# in a shell: {_RUN[at.target]} {_FILES[at.target]}"
    shown = at.plan.chosen.strategy.stage == 3 or (at.plan.job.training.method == "qlora" and at.plan.job.world > 1)
    first = {
        "hf-trainer": f"{at.arguments}\n",
        "accelerate": "from accelerate import Accelerator\n\naccelerator = Accelerator()\n",
    }
    config = "args.deepspeed_config" if at.launched else '"ds_config.json"'
    return ("" if shown else first.get(at.target, "")) + start_code(at.plan, at.target, config)


def _generation(at: _AskedCode) -> str:
    return "model.generate(**inputs, synced_gpus=True, max_new_tokens=64)  # on every rank, as often as on the others"


def _save(at: _AskedCode) -> str:
    if at.target in ON_TRAINER:
        return "# done: the Trainer saves on every rank (save_steps says how often)"
    # of adapters: else every save has the base too, at stage 2 twice
    frozen = ", exclude_frozen_parameters=True" if at.plan.job.training.method != "full" else ""
    call = {
        "accelerate": f'accelerator.save_state("checkpoints/last"{frozen})',
        "lightning": "# done: trainer.py saves on every rank (ModelCheckpoint says how often)",
    }
    return call.get(at.target, f'engine.save_checkpoint("checkpoints"{frozen})  # on every rank, not only on rank 0')


def _resume(at: _AskedCode) -> str:
    if at.target == "hf-trainer":
        return (
            "from pathlib import Path\n\nfrom transformers.trainer_utils import get_last_checkpoint\n\n"
            "last = get_last_checkpoint(args.output_dir) if Path(args.output_dir).is_dir() else None\n"
            "trainer.train(resume_from_checkpoint=last)"
        )
    lenient = ", load_module_strict=False" if at.plan.job.training.method != "full" else ""
    call = {
        "axolotl": "# auto_resume_from_checkpoints: true in axolotl.yaml",
        "llama-factory": "# resume_from_checkpoint: output/checkpoint-500 in llama_factory.yaml",
        "ms-swift": "# resume_from_checkpoint: output/checkpoint-500 in ms_swift.yaml",
        "accelerate": f'accelerator.load_state("checkpoints/last"{lenient})',
        "lightning": "# done: ckpt_path=last() above, None at first\n"
        "# In the middle of an epoch a DataLoader begins anew; torchdata's StatefulDataLoader goes on where it was.",
    }
    own = f'engine.load_checkpoint("checkpoints"{lenient})  # on every rank; the newest where no tag is said'
    return call.get(at.target, own)


def whole_in_fp32(plan: Plan, target: str) -> bool:
    """Whether a script makes the one set of weights, in fp32, and no framework gathers them in 16 bits."""
    strategy = plan.chosen.strategy
    if target in (*ON_TRAINER, "accelerate"):
        return strategy.stage == 3 and strategy.tp == 1 and not _gathers(plan)
    return target == "lightning" or (strategy.stage > 0 and strategy.tp == 1)


def _gathers(plan: Plan) -> bool:
    return bool(lookup(merged(plan), _GATHERS)[1])


def _one_file(at: _AskedCode) -> str:
    strategy, full = at.plan.chosen.strategy, at.plan.job.training.method == "full"
    framework = at.target in (*ON_TRAINER, "accelerate")
    if full and strategy.tp > 1 and at.target != "lightning" and not (framework and _gathers(at.plan)):
        return _joined(at)
    if full and framework and strategy.stage == 3 and not _gathers(at.plan):  # a person deleted it, or RAM is short
        return f"# in a shell: python CHECKPOINT/zero_to_fp32.py CHECKPOINT weights  # no {_GATHERS} in the config"
    if full and framework:
        return _gathered(at)
    if at.target in ON_TRAINER:  # exclude_frozen_parameters in save_model at stage 3, whatever the config says
        return '# done: trainer.save_model("weights") writes the adapters alone'
    if not full:
        return _adapters_alone(at)
    if at.target == "lightning":
        return (
            "from lightning.pytorch.utilities.deepspeed import convert_zero_checkpoint_to_fp32_state_dict\n\n"
            'convert_zero_checkpoint_to_fp32_state_dict("checkpoints/last.ckpt", "weights.pt")'
        )
    if strategy.stage == 0:
        return 'engine.module.save_pretrained("weights")  # on rank 0: each has them whole'
    taken = next((item for item in conversions(at.plan.job, strategy) if item.name == TO_FP32), None)
    one = ""
    if taken is not None and taken.left_bytes > taken.one_bytes:  # below stage 3 each of several files has all of it
        one = f" --max_shard_size {-(-taken.one_bytes // 10**9)}GB"
    return f"# in a shell: python -m deepspeed.utils.zero_to_fp32 checkpoints weights{one}"


def _joined(at: _AskedCode) -> str:
    """The whole weights of AutoTP: save_16bit_model of 0.19.8 writes below stage 3 what rank 0 has of them alone."""
    of_trainer = at.target in ON_TRAINER
    engine = "trainer.model_wrapped" if of_trainer else "model" if at.target == "accelerate" else "engine"
    code = (
        "import torch\n\n"
        f"state = {engine}._consolidated_16bit_state_dict()  # on every rank: AutoTP gathers what it has split\n"
        f"if {engine}.global_rank == 0:\n"
        '    torch.save(state, "weights.pt")'
    )
    if not of_trainer or at.target == "hf-trainer":
        return code
    return "# where the program is yours:\n# " + code.replace("\n\n", "\n").replace("\n", "\n# ")


def _gathered(at: _AskedCode) -> str:
    """The whole weights in 16 bits, by the framework."""
    if at.target in ON_TRAINER:
        return '# done: trainer.save_model("weights") gathers them; at stage 3 by a key of the config'
    return (
        "state = accelerator.get_state_dict(model)\n"
        'accelerator.unwrap_model(model).save_pretrained("weights", state_dict=state, '
        "is_main_process=accelerator.is_main_process)"
    )


def _universal(at: _AskedCode) -> str:
    folder = "checkpoints"
    if at.target in ON_TRAINER:
        folder = f"{'checkpoints' if at.launched else 'output'}/checkpoint-500"
    # below stage 3 it wants names of pipelines and of split weights, which such a checkpoint does not have
    inject = "" if at.plan.chosen.strategy.stage == 3 else " --inject_missing_state"
    return (
        f"# in a shell: python -m deepspeed.checkpoint.ds_to_universal{inject} \\\n"
        f"#   --input_folder {folder}/$(cat {folder}/latest) --output_folder {folder}/universal\n"
        '# then resume as ever, with "checkpoint": {"load_universal": true} in the config'
    )


def _adapters_alone(at: _AskedCode) -> str:
    stage = at.plan.chosen.strategy.stage
    if at.target == "accelerate" and stage != 3:
        return (
            "state = accelerator.get_state_dict(model)  # on every rank\n"
            'accelerator.unwrap_model(model).save_pretrained("adapters", state_dict=state)'
        )
    if stage != 3:
        return 'model.save_pretrained("adapters")  # on rank 0, at the end'
    save = 'model.save_pretrained("adapters")'
    if at.target == "accelerate":  # get_state_dict would gather the base too, and is refused without the config's key
        save = (
            'accelerator.unwrap_model(model).save_pretrained("adapters", is_main_process=accelerator.is_main_process)'
        )
    return (
        "import deepspeed\n\n"
        "trained = [item for item in model.parameters() if item.requires_grad]\n"
        "with deepspeed.zero.GatheredParameters(trained):  # on every rank\n"
        f"    {save}"
    )


_SNIPPETS: Mapping[str, Callable[[_AskedCode], str]] = {
    "device": _device,
    "zero-init": _zero_init,
    "attention": _load,
    "four-bits": _four_bits,
    "adapters": _adapters,
    "checkpointing": _checkpointing,
    "activation-offloading": lambda at: recomputation.offloading_code(at.target),
    "chunked-loss": _liger,
    "liger-kernels": _liger,
    "leaf-modules": _leaf_modules,
    "same-data": _same_data,
    "length": _length,
    "environment": _environment,
    "start": _start,
    "generation": _generation,
    "save": _save,
    "resume": _resume,
    "one-file": _one_file,
    "universal": _universal,
}
