"""How a model comes in before DeepSpeed has it: what each rank of a node reads into its RAM, and what onto its GPU.

Read in transformers 5.23 (modeling_utils.py, get_init_context and _load_pretrained_model; core_model_loading.py) and
4.57, DeepSpeed 0.14 to 0.19 (runtime/engine.py, _configure_distributed_model), LLaMA-Factory (model/patcher.py,
model/adapter.py), ms-swift (get_default_device_map) and Axolotl (utils/config, normalize_config). Measured: resident
memory of two real ranks that load 1,022 MiB of bf16 in safetensors, in MiB each, by transformers 5.23 and 4.57:

    from_pretrained in bf16                own RAM 2 and 2, files mapped, and read when the weights leave for the GPU
    from_pretrained in fp32                own RAM 2,046 and 2,042
    under zero.Init                        the file mapped by rank 0 alone: all of it, and its largest shard of 289
    a mixture with 768 of 863 in experts   own RAM 771 by 5.23, which joins them; 1 by 4.57

What is mapped lies in the page cache once a node, and the kernel takes it back when RAM is short.
"""

from typing import Any, NamedTuple

from dsgen.families import family_of
from dsgen.families.parameters import parameter_count, parameters
from dsgen.memory.shares import FP32
from dsgen.memory.states import States
from dsgen.shapes.profiles import Model, Training

__all__ = ["KBIT_FP32_OF", "LOADINGS_OF", "SHARD_BYTES", "Loaded", "loaded", "under_zero_init"]

SHARD_BYTES = 5 * 10**9  # a safetensors shard as Hugging Face writes them
_WHOLE = 3  # the stage under which a model is made in shares
# Program -> how it loads a model that no zero.Init makes, where nobody says otherwise. Those whose code is dsgen's own
# say the compute dtype to from_pretrained; Axolotl, ms-swift and LLaMA-Factory hand it a device_map of the rank's GPU,
# and LLaMA-Factory then makes fp32 of all that is trained.
LOADINGS_OF = {
    "deepspeed": "mapped",
    "hf-trainer": "mapped",
    "accelerate": "mapped",
    "lightning": "mapped",
    "axolotl": "gpu",
    "llama-factory": "gpu-fp32",
    "ms-swift": "gpu",
}


# Program -> whether it makes fp32 of what a base has not in 4 bits, as Training.kbit_fp32; dsgen's own code does.
# Axolotl (loaders/model.py, _prepare_model_for_quantization, 07-2026); the others call nothing of the kind
# (LLaMA-Factory and ms-swift, 08-2026).
KBIT_FP32_OF = {"axolotl": "below-3", "llama-factory": "never", "ms-swift": "never"}


class Loaded(NamedTuple):
    """What the ranks of one node hold while a model loads.

    Attributes:
        ram: Bytes in the RAM of the node that are the ranks' own.
        mapped: Bytes of files in its page cache, for all its ranks.
        gpu: Bytes on one GPU when all is loaded.
        casting: Bytes there at most while DeepSpeed makes 16 bits of what came in fp32.
    """

    ram: int
    mapped: int
    gpu: int = 0
    casting: int = 0


def under_zero_init(training: Training, stage: int) -> bool:
    """Whether the model is made under zero.Init; transformers makes no quantized one so."""
    return stage == _WHOLE and training.zero_init and training.method != "qlora"


def loaded(model: Model, training: Training, layout: Any, states: States, ranks: int) -> Loaded:
    """What a model's loading takes.

    Args:
        model: The architecture.
        training: How it is trained; `loading`, `zero_init` and `transformers` count.
        layout: Anything with stage.
        states: The states of the layout.
        ranks: Ranks of one node.
    """
    elements, size, way = parameter_count(model), states.size, training.loading
    whole = size * elements
    if way == "auto":
        return _unsaid(training, layout.stage, states, ranks)
    joined = ranks * size * _joined(model)
    if under_zero_init(training, layout.stage):  # rank 0 hands its weights on, module by module
        return Loaded(joined // ranks // model.layers, whole)
    if training.method == "qlora":
        return Loaded(0, whole)
    if way in ("gpu", "gpu-fp32"):
        wide = FP32 if way == "gpu-fp32" and layout.stage < _WHOLE else size
        trained = states.tensors.elements
        there = size * (states.numbers.frozen_linear + states.numbers.frozen_other) + wide * trained
        beside = size if wide > size and trained else 0  # a tensor is there in both types while it is cast
        ends = (states.tensors.numels[-1], states.tensors.numels[0]) if trained else (0, 0)
        return Loaded(0, whole, there + beside * ends[0], there + beside * ends[1])
    if way == "mapped":
        return Loaded(joined, whole)
    return Loaded(ranks * (FP32 if way == "fp32" else size) * elements, whole)


def _unsaid(training: Training, stage: int, states: States, ranks: int) -> Loaded:
    """Where nobody says how: each rank's own copy in 16 bits, but where the model is read in parts.

    A base that becomes 4-bit goes to the GPU tensor by tensor, and one that stage 3 cuts is read a shard at a time.
    """
    whole = states.size * states.numbers.total
    streamed = (stage == _WHOLE and training.zero_init) or states.loaded
    return Loaded(ranks * (min(whole, SHARD_BYTES) if streamed else whole), whole)


def _joined(model: Model) -> int:
    """Elements of a mixture's experts: transformers 5 joins those of a layer, which files have apart, in RAM."""
    if not model.experts or model.experts_apart or family_of(model).older_experts.stacked:
        return 0
    return sum(item.total for item in parameters(model) if item.kind == "expert")
