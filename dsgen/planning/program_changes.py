"""What a plan does not decide: what a person's program could do otherwise, and a key that is worth its risk."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import attrs

from dsgen.deepspeed.keys import lookup
from dsgen.jobs.fabrics import assumes, joined, reference
from dsgen.jobs.fused_attention import running_attention
from dsgen.jobs.job import Job
from dsgen.jobs.releases import loops_over_experts, reenters
from dsgen.jobs.samples import attention_beside, varied_mean
from dsgen.kernels.architectures import architecture
from dsgen.kernels.attention import CUDNN_WIDEST, fused_kernel
from dsgen.memory.estimates import GATHERS
from dsgen.memory.trained import wide_adapters
from dsgen.planning.launchers import best_launcher, starting_words
from dsgen.shapes.layers import Origin, Override, Rank
from dsgen.shapes.pins import Pin
from dsgen.strategies.buffers import EIGHT_BITS
from dsgen.strategies.strategies import DEGREES, FAST_LINKS
from dsgen.strategies.wishes import allowed

__all__ = ["ProgramChange", "at_once", "both_keys", "degrees", "fewest", "program_changes", "usual_network"]

CUDNN_BEATS = 3  # the first release of FlashAttention that is as fast as cuDNN's kernel (docs/kernels.md)
SHORTEST = 256  # tokens; a shorter sequence is not worth offering (our choice, as in remedies)


# Of a GPU: a plan is made anew for each change that is offered, and one that moves less than this share of a GPU for a
# sequence saves no more. Our choice: of the 831 rows of golden/matrix.csv where nothing fits 661 move more, of which 51
# fit then; with 1/32 it is 768, and the same 51 fit; with any, 52.
LEAST_MOVED = 1 / 16

# Keys that a plan leaves to a person: DeepSpeed's own accounts of them, and other people's, differ.
_HPZ = "zero_optimization.zero_hpz_partition_size"
_QWZ = "zero_optimization.zero_quantized_weights"
_TP, _NETWORK, _LAUNCHER = "tp", "network", "launcher"
_SEVERAL = 2
_TRANSFORMERS, _GROUPS_EXPERTS = "transformers", "5"  # the first release that does (integrations/moe.py)
_ANEW: Any = attrs.NOTHING  # a field of a job that follows from its keys, worked out of them anew


class ProgramChange(NamedTuple):
    """One thing that a program can do otherwise, or several at once.

    Attributes:
        field: The field of a scenario that says it, and of Training; or the path of a key, or of a section with keys.
        value: Its value; of a section name -> value of each key.
        words: What the program does then.
        same: Whether it trains the same: the same parameters on the same text, but for rounding.
        also: What it does otherwise besides.
    """

    field: str
    value: Any
    words: str
    same: bool
    also: tuple["ProgramChange", ...] = ()

    @property
    def option(self) -> str:
        """What to say on the command line: `--chunked-loss`, `--method lora`."""
        return " ".join([self._option(), *(one.option for one in self.also)])

    def _option(self) -> str:
        if self.key:
            return " ".join(f"--set {path}={json.dumps(value)}" for path, value in self._paths())
        name = self.field.replace("_", "-")
        if self.value is False:
            return f"--no-{name}"
        return f"--{name}" if self.value is True else f"--{name} {self.value}"

    @property
    def key(self) -> bool:
        """Whether it is a key of DeepSpeed's, or several, and nothing of the program's."""
        return "." in self.field or isinstance(self.value, dict)

    @property
    def of_program(self) -> bool:
        """Whether it is the program that does so: no key of DeepSpeed's, nor what the nodes have."""
        return not self.key and self.field != _NETWORK

    def _paths(self) -> Iterator[tuple[str, Any]]:
        """The path of each key with its value."""
        if isinstance(self.value, dict):
            yield from ((f"{self.field}.{name}", value) for name, value in self.value.items())
        else:
            yield self.field, self.value

    def applied(self, job: Job) -> Job:
        """The job whose program does so."""
        job = self._applied(job)
        for one in self.also:
            job = one.applied(job)
        return job

    def _applied(self, job: Job) -> Job:
        if self.field == _TP:
            pin = Pin(_TP, (self.value,), Override(_TP, self.value, Origin(self.option), Rank.USER))
            return attrs.evolve(job, pins=(*job.pins, pin))
        if self.field == _NETWORK:
            return joined(job, self.value)
        if self.key:
            tree = dict(job.deepspeed)
            for path, value in self._paths():
                section, name = path.split(".")
                tree[section] = {**tree.get(section, {}), name: value}
            return attrs.evolve(job, deepspeed=tree, unsure=_ANEW)
        model = attrs.evolve(job.model, experts_apart=False) if self.field == _TRANSFORMERS else job.model
        return attrs.evolve(job, model=model, training=attrs.evolve(job.training, **{self.field: self.value}))


def program_changes(job: Job) -> Iterator[ProgramChange]:
    """What the program of a job could do otherwise: first what trains the same."""
    told = [
        change
        for change in _of_wishes(job)
        if allowed(job.model, attrs.evolve(job.training, **{change.field: change.value}))
    ]
    yield from (change for change in told if change.same)
    if job.nodes > 1 and job.gpus_per_node > 1 and lookup(job.deepspeed, _HPZ)[1] is None:
        words = "a second copy of the weights in each node (hpZ of ZeRO++: watch that the loss is as without it)"
        yield ProgramChange(_HPZ, job.gpus_per_node, words, True)
    if job.nodes > 1 and job.training.method != "qlora" and lookup(job.deepspeed, _QWZ)[1] is None:
        words = "weights on their way in 8 bits (qwZ of ZeRO++: watch that the loss is as without it)"
        yield ProgramChange(_QWZ, True, words, True)
    yield from (change for change in told if not change.same)


def both_keys(changes: Iterable[ProgramChange]) -> ProgramChange | None:
    """Both keys of ZeRO++ at once, as DeepSpeed's own tests train (test_zeropp.py); None where not both are asked."""
    told = {change.field: change for change in changes}
    if _HPZ not in told or _QWZ not in told:
        return None
    section = _HPZ.partition(".")[0]
    value = {path.partition(".")[2]: told[path].value for path in (_HPZ, _QWZ)}
    words = "a second copy in each node, and weights in 8 bits (hpZ and qwZ: watch that the loss is as without them)"
    return ProgramChange(section, value, words, True)


def at_once(changes: Sequence[ProgramChange]) -> ProgramChange:
    """Several changes as one."""
    first, *others = changes
    words = ", and ".join(change.words for change in changes)
    return first._replace(words=words, same=all(change.same for change in changes), also=tuple(others))


def fewest(changes: Iterable[ProgramChange], holds: Callable[[ProgramChange], bool]) -> ProgramChange | None:
    """As few of the changes of a program that train the same as something needs to hold: the later go first.

    Args:
        changes: Of `program_changes`.
        holds: Asked of several at once, and then of all but one of them, until none can be left out.

    Returns:
        Two of them or more at once, or None where that does not hold.
    """
    needed = [change for change in changes if change.same and change.of_program and change.field != _LAUNCHER]
    if len(needed) < _SEVERAL or not holds(at_once(needed)):
        return None
    for change in reversed(needed[:]):
        rest = [one for one in needed if one is not change]
        if len(rest) >= _SEVERAL and holds(at_once(rest)):
            needed = rest
    return at_once(needed)


def degrees(job: Job) -> Iterator[ProgramChange]:
    """AutoTP over PCIe, which no plan tries: it costs more than it saves, but it may not where a network is slower."""
    fast = job.hardware.intra_node_link in FAST_LINKS
    if job.nodes == 1 or fast or job.training.method != "full" or any(pin.field == _TP for pin in job.pins):
        return
    for degree in DEGREES[1:]:
        if job.gpus_per_node % degree == 0:
            words = f"AutoTP, {degree} GPUs share each layer over PCIe, and less passes between the nodes"
            yield ProgramChange(_TP, degree, words, True)


def usual_network(job: Job) -> ProgramChange | None:
    """The network that nodes of these GPUs have in their vendor's own system, where nobody named one."""
    if not assumes(job):
        return None
    name, adapters = reference(job.hardware)
    return ProgramChange(_NETWORK, name, f"if your nodes have {adapters}", True)


def _of_wishes(job: Job) -> Iterator[ProgramChange]:
    """Those that a scenario has a field for, allowed or not."""
    wishes = job.training
    if loops_over_experts(job.model, wishes):
        words = "whose experts are grouped products: now each is called by itself"
        yield ProgramChange(_TRANSFORMERS, _GROUPS_EXPERTS, words, True)
    if not wishes.chunked_loss:
        yield ProgramChange("chunked_loss", True, "a loss that never holds all logits (Liger's, or another)", True)
    runs = running_attention(job.hardware, job.model, wishes, wishes.precision)
    if varied_mean(wishes) and runs == "flash" and not job.model.encoder_layers:
        words = "samples packed into whole sequences, attention stopping at their borders: a step has more of them"
        yield ProgramChange("packing", True, words, True)
    if not wishes.activation_offloading and _inputs_bytes(job) > LEAST_MOVED * job.hardware.usable_memory_bytes:
        words = "activations that wait in the node's RAM (TRL's activation_offloading)"
        yield ProgramChange("activation_offloading", True, words, True)
    if wishes.attention == "sdpa" and _gets_a_mask(job):
        yield ProgramChange("attention", "flash", "FlashAttention, which needs no mask of padding or a window", True)
    if wishes.attention == "eager":
        yield ProgramChange("attention", "sdpa", "attention that never holds its scores", True)
    elif wishes.attention == "flash" and not (wishes.packing or wishes.padding_free) and _by_cudnn(job):
        yield ProgramChange("attention", "sdpa", "torch's attention, which runs cuDNN's kernel on this GPU", True)
    if job.gpus_per_node > 1 and wishes.launcher not in ("bound", launcher := best_launcher(job)):
        other = attrs.evolve(job, training=attrs.evolve(wishes, launcher=launcher))
        yield ProgramChange(_LAUNCHER, launcher, starting_words(other), True)
    if wide_adapters(wishes):
        words = "adapters in the type of the base (peft: autocast_adapter_dtype=False; DeepSpeed keeps an fp32 copy)"
        yield ProgramChange("lora_fp32", False, words, True)
    if wishes.method == "qlora" and wishes.kbit_fp32 != "never":
        words = "without prepare_model_for_kbit_training, whose fp32 initialize makes 16-bit again"
        yield ProgramChange("kbit_fp32", "never", words, True)
    if wishes.method == "qlora" and job.world > 1 and not reenters(wishes, GATHERS, job.version):
        words = "torch's reentrant checkpointing, whose forward keeps no gathered 4-bit weights for backward"
        yield ProgramChange("reentrant", True, words, True)
    if wishes.method == "full" and wishes.optimizer in ("AdamW", "Adam"):
        yield ProgramChange("optimizer", EIGHT_BITS, "optimizer states in 8 bits (bitsandbytes' AdamW8bit)", True)
    for method, words in (("lora", "adapters instead of all weights"), ("qlora", "adapters over weights in 4 bits")):
        if _LESS[wishes.method] < _LESS[method]:
            yield ProgramChange("method", method, words, False)
    if (half := job.seq_len // 2) >= max(SHORTEST, wishes.mean_len or 0):
        yield ProgramChange("seq_len", half, "sequences of half the length", False)


def _inputs_bytes(job: Job) -> int:
    """What the blocks keep of one sequence where they run again, in 16 bits: what may wait in RAM."""
    return 2 * job.model.layers * job.seq_len * job.model.hidden_size


def _gets_a_mask(job: Job) -> bool:
    """Whether sdpa gets a mask, beside which it computes all pairs of tokens, and FlashAttention could run."""
    wishes, window = job.training, job.model.sliding_window
    if attention_beside(job, False) == "sdpa" and not 0 < window <= job.seq_len:
        return False
    asked = attrs.evolve(wishes, attention="flash")
    return running_attention(job.hardware, job.model, asked, wishes.precision) == "flash"


def _by_cudnn(job: Job) -> bool:
    """Whether torch's own attention runs cuDNN's kernel, which beats the FlashAttention that is wished: on the GPU, for
    the heads, and no window asks for a mask."""
    card, model = architecture(job.hardware).name, job.model
    narrow = model.head_size <= CUDNN_WIDEST and not model.sliding_window
    beaten = job.training.flash_attention < CUDNN_BEATS
    return narrow and beaten and fused_kernel("sdpa", card, torch=job.training.torch) == "cudnn"


_LESS = {"full": 0, "lora": 1, "qlora": 2}  # how much of the training each method leaves away
