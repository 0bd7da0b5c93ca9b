"""What was asked: a job and the exact strategy whose memory is wanted, and who said or chose each part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from dsgen.jobs.fused_attention import running_attention
from dsgen.jobs.job import Job
from dsgen.linting import meanings
from dsgen.linting.subjects import Subject
from dsgen.memory import expandable
from dsgen.memory.evaluating import TRAINER_SEQUENCES
from dsgen.shapes.layers import ENFORCED, Rank
from dsgen.shapes.makers import maker_of
from dsgen.shapes.profiles import Training
from dsgen.strategies.buffers import Buffers, choose
from dsgen.strategies.strategies import Strategy

if TYPE_CHECKING:
    from dsgen.asking.training_arguments import TrainingArguments

__all__ = [
    "CHOSEN",
    "DEFAULT",
    "EVALUATED",
    "GENERATED",
    "KEPT",
    "Question",
    "Said",
    "buffers",
    "place",
    "said_of",
    "strategy_of",
]

CHOSEN = "chosen"  # by dsgen, as the planner would
DEFAULT = "default"  # of a wish that nobody said
EVALUATED = "evaluation batch"  # sequences on one GPU, where somebody says them; 0: there is no evaluation
KEPT = "batches kept"  # whose logits an evaluation keeps on the GPU
GENERATED = "tokens generated"  # with the prompt, of each sequence of an evaluation's batch
# Fact -> path of the wish that says it; what a config or a pin of DeepSpeed's own keys says is told apart.
_WISHES = {
    "sequence length": "seq_len",
    "target length": "target_len",
    "mean length": "mean_len",
    "packing": "packing",
    "padding free": "padding_free",
    "method": "method",
    "optimizer": "optimizer",
    "attention": "attention",
    "chunked loss": "chunked_loss",
    "activation offloading": "activation_offloading",
    "liger kernels": "liger_kernels",
    "reentrant": "reentrant",
    "expandable segments": "expandable_segments",
    "lora rank": "lora_rank",
    "lora targets": "lora_targets",
    "lora dropout": "lora_dropout",
    "lora train embeddings": "lora_train_embeddings",
    "lora fp32": "lora_fp32",
    "double quantization": "double_quantization",
    "kbit fp32": "kbit_fp32",
    "loading": "loading",
    "zero init": "zero_init",
}
_QUIET: Mapping[str, tuple[Any, ...]] = {
    "liger_kernels": (None,),
    "activation_offloading": (False,),
    "packing": (False,),
    "padding_free": (False,),
    "reentrant": (None, False),
    "lora_train_embeddings": (False,),
    "lora_fp32": (True,),
    "double_quantization": (True,),
    "kbit_fp32": ("always",),
    "loading": ("auto",),
    "zero_init": (True,),
}  # told otherwise alone


@attrs.frozen
class Said:
    """One part of the question: its value, and the place where it was said, CHOSEN or DEFAULT."""

    value: Any
    by: str


@attrs.frozen(kw_only=True)
class Question:
    """A job and the strategy whose memory is wanted.

    Attributes:
        job: What is there and what is trained.
        strategy: The way to run it, taken as it was said.
        said: Fact -> its value, and who said or chose it.
        subject: The config, where one was given; its buffers hold for every other strategy that is looked at.
        notes: What a person should know beside the numbers.
        arguments: Those of the program that trains, where a file beside the config has some.
    """

    job: Job = attrs.field(repr=False)
    strategy: Strategy
    said: Mapping[str, Said]
    subject: Subject | None = None
    notes: tuple[str, ...] = ()
    arguments: TrainingArguments | None = attrs.field(default=None, repr=False)

    @property
    def evaluated(self) -> int:
        """Sequences of an evaluation's batch on one GPU: those that were said, or the Trainer's default."""
        said = self.said.get(EVALUATED)
        return TRAINER_SEQUENCES if said is None else int(said.value)

    @property
    def kept(self) -> int:
        """Batches of an evaluation whose logits stay on the GPU; 0 where nobody says so."""
        return int(self.said[KEPT].value) if KEPT in self.said else 0

    @property
    def generated(self) -> int:
        """Tokens of prompt and answer that an evaluation generates in each sequence; 0 where nobody says so."""
        return int(self.said[GENERATED].value) if GENERATED in self.said else 0

    def evaluating(self, sequences: int, by: str) -> Question:
        """The question with another batch of an evaluation, and who says it."""
        return self.saying(EVALUATED, sequences, by)

    def saying(self, fact: str, number: int, by: str) -> Question:
        """The question with EVALUATED, KEPT or GENERATED, and who says it."""
        return attrs.evolve(self, said={**self.said, fact: Said(number, by)})

    @property
    def chosen(self) -> dict[str, Any]:
        """What nobody said, and dsgen chose."""
        return {name: item.value for name, item in self.said.items() if item.by == CHOSEN}


def strategy_of(question: Question, **changed: Any) -> Strategy:
    """The strategy of a question with other fields, the buffers that such a one has, and as many sequences a step."""
    other = attrs.evolve(question.strategy, **changed)
    replicas = question.job.world // other.tp
    return attrs.evolve(
        other,
        buffers=buffers(question.job, question.subject, other),
        global_batch=other.micro_batch * other.accumulation * replicas,
    )


def buffers(job: Job, subject: Subject | None, layout: Any) -> Buffers:
    """The buffers of a layout: as the config says, or without one as a plan has them."""
    if subject is not None:
        return meanings.buffers(subject, layout.stage)
    return choose(job, layout.stage, layout.tp, layout.offload_optimizer, layout.offload_param)


def said_of(job: Job, precision: str) -> dict[str, Said]:
    """What is trained, with who said it; adapters only where there are some, and of attention the kernel that runs."""
    trained = {}
    for name, wish in _WISHES.items():
        if name.startswith("lora") and job.training.method == "full":
            continue
        if getattr(job.training, wish) in _QUIET.get(wish, ()):
            continue
        if wish == "target_len" and not job.model.encoder_layers:
            continue
        if wish == "mean_len" and not job.training.mean_len:
            continue
        value = getattr(job if wish in ("seq_len", "target_len") else job.training, wish)
        if wish == "expandable_segments":
            if not maker_of(job.hardware.vendor).allocator:
                continue
            value = expandable(job)
        if wish == "attention":
            value = running_attention(job.hardware, job.model, job.training, precision)
        trained[name] = Said(value, place(job, f"training.{wish}") or DEFAULT)
    return trained


def place(job: Job, path: str) -> str | None:
    """Where a wish or fact was said; None where it is a default of the profiles, or says nothing."""
    winner = job.provenance.winner(path)
    if winner is None or winner.origin == ENFORCED or winner.value in (None, "auto"):
        return None
    usual = getattr(Training(), path.rpartition(".")[2], None)
    by_profile = winner.rank == Rank.TRAINING and winner.value == (list(usual) if isinstance(usual, tuple) else usual)
    return None if by_profile else str(winner.origin)
