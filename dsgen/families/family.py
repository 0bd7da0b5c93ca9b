"""What is special about one model_type of Hugging Face, and where dsgen asks for it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import attrs

from dsgen.families.config_keys import ConfigKey
from dsgen.families.orders import Order
from dsgen.families.reading import Reader, Rotated
from dsgen.families.rows import TensorLayout
from dsgen.families.tape.forwards import Forward, Stacks
from dsgen.shapes.attention_kinds import GROUPED, MASKED
from dsgen.shapes.profiles import Model

__all__ = ["UNKNOWN_STYLE", "AutoTP", "Facts", "Family", "OlderExperts", "OlderLoss"]

Facts = Mapping[str, Any]  # of a Model, by their names in YAML


class AutoTP(NamedTuple):
    """What DeepSpeed's AutoTP makes of a model_type: tiny models on 2 ranks, DeepSpeed 0.19.8 and transformers 5.23.

    The loss and the gradient norm of every type without experts that is not refused were those of one rank, at stage 1.

    Attributes:
        refused: Why it does not train it, or gives it nothing, with {} for the model_type; empty where it trains it.
        runs: What is refused does not stop: it runs, and next to nothing is split.
        head: It splits an output head of its own: Hugging Face's plan names the head, or it is GPT-NeoX's.
        tied_head: It splits a head that is tied to the embedding: the plan names the embedding, and DeepSpeed can take
            the loss from the shards, which it then does.
        biased_rows: A layer whose results are summed over ranks (attention out, feed-forward down) has a bias, which
            releases before 0.17.0 add in place: torch stops in forward (0.16.9 run: gptj, gpt_neox, opt).
    """

    refused: str = ""
    runs: bool = False
    head: bool = False
    tied_head: bool = False
    biased_rows: bool = False

    def splits_head(self, tied: bool) -> bool:
        """Whether it splits what makes the logits, and with it an embedding that is tied to it."""
        return self.tied_head if tied else self.head


class OlderExperts(NamedTuple):
    """How releases of transformers before 5 ran a mixture's experts: in a loop, whose operators are one expert's.

    As the classes of 4.57.1 dispatch them under torch 2.13, more with each further expert. What the host waits for
    counts as two. Three linear layers of its own are those of Mixtral, Qwen2Moe and Qwen3Moe; DeepseekV3 has two
    operators fewer forward and one more backward.

    Attributes:
        stacked: All experts are one tensor, as they have been for every class since 5: gate and up are one product, and
            behind the gradient of an expert's weight one of all experts is made, and added to what is there.
        picks: An expert picks its tokens: behind the gradient of those one of all tokens is made, and added.
        forward, backward: Operators and views beside the products.
        weight: The same, backward, for each weight with a gradient.
    """

    stacked: bool = False
    picks: bool = True
    forward: tuple[int, int] = (9 + 2, 8)
    backward: tuple[int, int] = (14, 7)
    weight: tuple[int, int] = (0, 4)


class OlderLoss(NamedTuple):
    """What releases of transformers before 5 did with the logits: the wheels of 4.31 to 5.0, modeling_*.py.

    Attributes:
        until: The first release whose class calls ForCausalLMLoss; those before cut the logits in the model's forward.
        wide: In those the model made the logits fp32; else the loss was taken in the type of the weights.
        wide_until: The first release whose model no longer makes them fp32, where that is later than `until`.
    """

    until: tuple[int, int] = (4, 46)
    wide: bool = True
    wide_until: tuple[int, int] = (0, 0)


UNKNOWN_STYLE = AutoTP(refused="DeepSpeed refuses AutoTP for {}: Hugging Face's plan has a style it does not know")


def _nothing_read(_: Reader, __: Facts) -> dict[str, object]:
    return {}


def _nothing_written(_: Facts) -> dict[str, object]:
    return {}


def _no_buffers(_: Model) -> int:
    return 0


def _every_block(_: int) -> bool:
    return True


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Family:
    """All that is special about one model_type.

    How its config.json says the facts of a Model:

    Attributes:
        model_type: Its name there.
        huggingface: The class of transformers 5.23 that is the source of all this.
        keys: The facts that it leaves to a config, in the order in which defaults may build on each other; a fact
            without a key of its own that follows from others is no choice.
        gated: Whether the feed-forward block has a gate; no key says so.
        chooses_gate: A config says so after all, and `gated` is its default.
        pinned: Keys that dsgen counts at one value only.
        dropouts: Keys of dropouts that are in force together or not at all, and the class's defaults.
        rotated: The part of a head that a config lets rope turn.
        read: The facts that a config says in a way of its own, from it and the facts that keys say.
            Raises DsgenError where dsgen does not count what it says.
        write: The keys that say them.

    What it is made of and how that runs:

    Attributes:
        layout: Its tensors.
        forward: What autograd keeps of it: its forward, written on the tape.
        order: Its modules as they run.
        kernels: Which fused attention its class has; for the other it runs the eager one.
        flash_releases: The releases of FlashAttention that its class takes; empty for any.
        repeats_keys: Its class gives torch's attention keys and values by itself, and does not ask for grouped queries.
        wide_queries: Its queries are fp32 whatever the weights are.
        direct: Blocks multiply by their weights without torch's linear function, which zero.Init replaces; autograd
            keeps what was gathered for them until their backward. (So it does for experts.)
        transposed: Its linear layers are Conv1D, whose weight is (inputs, outputs).
        experts_as_stored: The product of experts is with their weight as it is stored, and not with a turned view, of
            which autograd would keep the gathered place. (With adapters it is with their sum, which it keeps.)
        windowed: Whether a block attends to a window only, of its place, where the model has one.
        buffers: Bytes of its buffers on the GPU, of a model.

    What others make of it:

    Attributes:
        autotp: What AutoTP splits.
        older_experts: How its class ran experts in older releases of transformers.
        hybrid: DeepSpeed's hybrid engine replaces its blocks by inference kernels, with the class of transformers 5.23.
        older_loss: What its class did with the logits in older releases of transformers.
        leaf: DeepSpeed gathers a mixture whole at stage 3, its router among the experts, and takes its gradients when
            all of them are there (runtime/zero: z3 leaf modules). Which releases do: unknown_leaf of
            dsgen.jobs.releases.
        leaf_class: The class of a mixture that is better a leaf before transformers 5, when each expert was a module:
            ranks that route differently wait for each other (DeepSpeed issues 4808, 7461).
        parts: Names that peft takes for a part of the experts or for the router -> the tensor that holds it.
        packs: transformers puts its linear layers into 4 bits for QLoRA.
        overflows: Its activations exceed the largest number of fp16, 65,504.
        liger_since: The first release of Liger whose kernels for it are counted. Norms of Gemma 2 are right from 0.4.1
            on, and the work space of all was another before.
    """

    model_type: str
    huggingface: str
    keys: tuple[ConfigKey, ...]
    gated: bool = True
    chooses_gate: bool = False
    pinned: Mapping[str, bool | int | float | str | None] = attrs.field(factory=dict)
    dropouts: Mapping[str, float] = attrs.field(factory=dict)
    rotated: Rotated | None = None
    read: Callable[[Reader, Facts], dict[str, object]] = _nothing_read
    write: Callable[[Facts], dict[str, object]] = _nothing_written

    layout: TensorLayout
    forward: Forward | Stacks
    order: Order = Order()  # noqa: RUF009 - a NamedTuple, which is immutable
    kernels: tuple[str, ...] = ("flash", "sdpa")
    flash_releases: tuple[int, ...] = ()
    repeats_keys: bool = False
    wide_queries: bool = False
    direct: bool = False
    transposed: bool = False
    experts_as_stored: bool = False
    windowed: Callable[[int], bool] = _every_block
    buffers: Callable[[Model], int] = _no_buffers

    liger_since: tuple[int, ...] = (0, 4, 1)

    autotp: AutoTP = AutoTP()  # noqa: RUF009 - as above
    hybrid: bool = False
    older_experts: OlderExperts = OlderExperts()  # noqa: RUF009 - as above
    older_loss: OlderLoss = OlderLoss()  # noqa: RUF009 - as above
    leaf: bool = False
    leaf_class: str = ""
    parts: Mapping[str, str] = attrs.field(factory=dict)
    packs: bool = True
    overflows: bool = False

    def key(self, fact: str) -> ConfigKey | None:
        """How a config says a fact; None where it is not one of this type."""
        return next((key for key in self.keys if key.fact == fact), None)

    def says(self, fact: str) -> bool:
        """Whether a fact differs between models of this type, or is one of this type alone."""
        return any(key.fact == fact for key in self.keys)

    def eager(self, attention: str) -> bool:
        """Whether attention makes the matrix of scores: it is asked to, or the class has nothing else."""
        return attention == "eager" or ("sdpa" if attention in (MASKED, GROUPED) else attention) not in self.kernels

    @property
    def encodes(self) -> bool:
        """Whether it is a decoder behind an encoder."""
        return bool(self.layout.encoder)

    @property
    def learned_positions(self) -> bool:
        """Whether it has a table of learned positions: a longer sequence indexes past its end."""
        return any(row.kind == "position" for row in self.layout.before)
