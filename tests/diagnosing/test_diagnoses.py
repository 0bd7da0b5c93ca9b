"""A log and the job that ran: what the numbers say beside the prediction, and changes that keep what they promise."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsgen
from dsgen.asking import memory_questions
from dsgen.asking.memory_questions import Question
from dsgen.asking.plan_questions.weighing import weigh
from dsgen.cost.steps import speed_interval
from dsgen.diagnosing import Diagnosis, NextChange, diagnose
from dsgen.diagnosing.next_changes import less_memory, phase_bytes
from dsgen.memory import Verdict, estimate
from dsgen.report import diagnosis as report
from dsgen.shapes.units import gib

GIB = 2**30
MAIN = {"hw": "a100-40g", "model": "7b"}


def question(**said: Any) -> Question:
    """What a scenario asks of memory."""
    return memory_questions.question(dsgen.job({**MAIN, **said}), None)


def full(
    *, asked: float = 1.96, free: float = 0.31, allocated: float = 33.02, loose: float = 5.1, total: float = 39.39,
    where: str = "torch/_tensor.py\", line 492, in backward", process: float | None = None,
) -> bytes:  # fmt: skip
    """A log that ends because a card is full; sizes in GiB."""
    mine = process if process is not None else total - free
    return (
        f'[rank3]: Traceback (most recent call last):\n[rank3]:   File "/x/{where}\n'
        f"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked:.2f} GiB. GPU 3 has a total "
        f"capacity of {total:.2f} GiB of which {free:.2f} GiB is free. Including non-PyTorch memory, this process has "
        f"{mine:.2f} GiB memory in use. Of the allocated memory {allocated:.2f} GiB is allocated by PyTorch, and "
        f"{loose:.2f} GiB is reserved by PyTorch but unallocated.\n"
    ).encode()


def said(answer: Diagnosis) -> str:
    """The screen on one line."""
    return " ".join(report.text(answer).split())


def applied(asked: Question, change: NextChange, **said: Any) -> Question:
    """The question with the options that a change names, as a person would type them."""
    options = {name: value for name, value in change.options.items() if name != "set"}
    now = asked.strategy
    pinned = {
        "model": asked.job.names["model"],
        "zero_stage": now.stage,
        "tp": now.tp,
        "micro_batch": now.micro_batch,
        "accumulation": now.accumulation,
        "checkpointing": "full" if now.checkpointing else "none",
        "offload": "none" if now.offload_optimizer == "none" else "optimizer",
    }
    return question(**{**pinned, **said, **options})


def test_fragmentation_is_told_from_a_job_that_is_another() -> None:
    usual, other = diagnose([full(allocated=28.4, loose=9.0)], question()), diagnose([full()], question())

    assert "the difference is fragmentation" in said(usual)
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True up to -9.0 GiB" in said(usual)
    assert "it is not the job that is described here" in said(other)
    assert "next PYTORCH_CUDA_ALLOC_CONF" in said(other)


def test_a_card_that_is_full_of_tensors_is_not_said_to_be_fragmented() -> None:
    answer = diagnose([full(allocated=38.4, loose=0.2)], question())

    assert "it was full, and not fragmented" in said(answer)
    assert "expandable_segments" not in said(answer)


def test_somebody_else_on_the_card_is_named() -> None:
    answer = diagnose([full(allocated=20.1, loose=0.2, process=21.0)])

    assert "18.1 GiB of the card are another process's" in said(answer)


def test_another_card_and_another_number_of_gpus_are_told() -> None:
    answer = diagnose([b"dist_world_size=4\n", full(total=79.3)], question())

    assert "the log's card has 79.3 GiB, the job's 39.4: another --hw ran" in said(answer)
    assert "the log is of 4 GPUs, the job here of 8: say --gpus 4" in said(answer)


def test_every_change_saves_what_it_promises() -> None:
    """What is promised is what `dsgen memory` computes for the options that are named."""
    asked = question()
    before = estimate(asked.job, asked.strategy)

    answer = diagnose([full()], asked)

    assert {"micro_batch", "zero_stage", "offload"} <= {name for one in answer.changes for name in one.options}
    for change in answer.changes:
        then = applied(asked, change)
        after = estimate(then.job, then.strategy)
        saved = phase_bytes(before, "gpu", "backward") - phase_bytes(after, "gpu", "backward")
        assert change.saved_bytes == saved, change.words
        speed = weigh(asked.job, asked.strategy).speed / weigh(then.job, then.strategy).speed - 1
        assert change.slower == pytest.approx(speed), change.words


def test_a_change_that_is_enough_comes_first_and_the_cheapest_of_them_at_the_top() -> None:
    answer = diagnose([full()], question())
    enough = [change for change in answer.changes if change.enough]

    assert len(enough) == len(answer.changes) >= 2  # beside so many nothing else is offered
    assert [one.slower for one in enough] == sorted(one.slower for one in enough if one.slower is not None)
    assert all(change.saved_bytes >= 1.65 * GIB - 2**24 for change in enough)


def test_when_it_was_full_decides_what_helps() -> None:
    """Before the first batch no smaller batch helps."""
    init = full(where='deepspeed/__init__.py", line 193, in initialize', allocated=38.0, loose=0.1)

    answer = diagnose([init], question())

    assert answer.root is not None and answer.root.phase == "init"
    assert answer.changes
    assert not any("micro_batch" in one.options or "checkpointing" in one.options for one in answer.changes)


def test_an_evaluation_needs_fewer_sequences_or_fewer_logits() -> None:
    """What changes training changes nothing there; where 8 sequences fit, somebody keeps their logits."""
    log = full(where='transformers/trainer.py", line 1, in evaluation_loop')
    tight, roomy, nobody_s = (
        diagnose([log], asked)
        for asked in (
            question(hw="rtx3090-24g", gpus=1, model="llama-3.1-8b", method="qlora"),
            question(hw="a100-80g", model="llama-3.1-8b", zero_stage=3),
            None,
        )
    )

    assert tight.root is not None and tight.root.phase == "evaluate"
    assert [change.words for change in tight.changes] == ["per_device_eval_batch_size=2"]
    assert tight.changes[0].saved_bytes > 25 * GIB
    assert roomy.changes == nobody_s.changes == ()
    assert [words.partition(" ")[0] for words in nobody_s.general] == ["per_device_eval_batch_size=1", "with"]


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["7b", "13b", "llama-3.1-8b"]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["full", "lora"]),
    st.floats(0, 20),
)
def test_what_is_called_enough_is_enough(model: str, stage: int, micro: int, method: str, missing: float) -> None:
    asked = question(model=model, zero_stage=stage, micro_batch=micro, method=method)
    changes = less_memory(asked, "gpu", "backward", int(missing * GIB))

    for change in changes:
        assert change.saved_bytes > 0
        if change.enough:
            assert change.saved_bytes >= int(missing * GIB)
    assert len({change.words for change in changes}) == len(changes) <= 4


def test_a_long_sequence_may_keep_what_backward_needs_in_ram() -> None:
    asked = question(hw="h100-80g", gpus=1, model="llama-3.1-8b", method="lora", zero_stage=0, micro_batch=1,
                     seq_len=131_072, checkpointing="full", chunked_loss=True)  # fmt: skip

    best = less_memory(asked, "gpu", "backward", 10 * GIB)[0]

    assert (best.words, best.enough) == ("--activation-offloading", True)
    assert best.program == "activation_offloading=True of TRL's SFTConfig"


def test_a_change_that_only_moves_what_is_missing_is_not_offered() -> None:
    """On a node of little RAM neither activations nor an optimizer can wait there; and what waits may come back."""
    long = {"hw": "h100-80g", "gpus": 1, "model": "llama-3.1-8b", "method": "lora", "zero_stage": 0, "micro_batch": 1,
            "seq_len": 131_072, "checkpointing": "full", "chunked_loss": True}  # fmt: skip
    small, waits = {"set": {"hardware.host_memory": "32 GiB"}}, {"activation_offloading": True}

    on_gpu = less_memory(question(**long, **small), "gpu", "backward", 10 * GIB)
    in_ram = less_memory(question(**long, **waits, **small), "host", "forward", GIB)

    assert on_gpu
    assert not any("activation_offloading" in change.options for change in on_gpu)
    assert "--no-activation-offloading" in [change.words for change in in_ram]


def test_where_one_change_is_not_enough_several_are_made() -> None:
    asked = question(hw="rtx4090-24g", model="llama-3.1-8b", zero_stage=0, micro_batch=8, accumulation=2,
                     checkpointing="none")  # fmt: skip

    answer = diagnose([full(total=23.6, allocated=23.0, loose=0.1)], asked)
    best = answer.changes[0]

    assert "predicted not to fit" in said(answer)
    assert len(best.options) > 1
    assert best.enough
    assert estimate(applied(asked, best).job, applied(asked, best).strategy).verdict is not Verdict.DOES_NOT_FIT


def test_the_host_s_numbers_are_told() -> None:
    asked = question(model="13b", host_memory="256GiB", zero_stage=2, offload="optimizer")
    host = estimate(asked.job, asked.strategy).host

    answer = diagnose([b"x exits with return code = -9\n"], asked)

    assert f"{gib(host.needed_bytes)} of {gib(host.limit_bytes)} GiB of a node's RAM" in said(answer)
    assert answer.changes
    for change in answer.changes:
        then = applied(asked, change, host_memory="256GiB")
        assert change.saved_bytes == host.peak_bytes - estimate(then.job, then.strategy).host.peak_bytes, change.words


@pytest.mark.parametrize(
    ("precision", "hardware", "words"),
    [
        ("fp16", "a100-40g", "next --precision bf16 as much memory, as fast"),
        ("bf16", "a100-40g", "this job trains in bf16, without a loss scale"),
        ("fp16", "v100-32g", "this GPU has no bf16"),
    ],
)
def test_an_overflow_is_told_what_the_gpu_has(precision: str, hardware: str, words: str) -> None:
    log = b"Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n"

    assert words in said(diagnose([log], question(hw=hardware, precision=precision)))


def test_a_time_out_is_held_against_the_step() -> None:
    line = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)={}) ran\n"

    assert "stuck, not slow" in said(diagnose([line.format(1_800_000).encode()], question()))
    assert "the time-out is too short" in said(diagnose([line.format(20_000).encode()], question()))


def bars(seconds: float) -> bytes:
    """A training whose steps take so long."""
    return b"".join(f" 1%|1 | {n}/900 [11:16<13:02:24, {seconds:.2f}s/it]\n".encode() for n in range(1, 20))


@pytest.mark.parametrize(("times", "code"), [(1.0, None), (0.9, None), (1.6, "slow-steps"), (3.0, "slow-steps")])
def test_steps_are_slow_where_the_interval_ends(times: float, code: str | None) -> None:
    asked = question()
    seconds = weigh(asked.job, asked.strategy).cost.seconds

    answer = diagnose([bars(seconds * times)], asked)

    assert answer.code == code
    assert answer.pace is not None
    assert answer.pace.slow == (answer.pace.measured_seconds > seconds / speed_interval(asked.job)[0])


def test_samples_a_second_become_steps() -> None:
    asked = question()
    seconds = weigh(asked.job, asked.strategy).cost.seconds
    samples = asked.strategy.global_batch / seconds / 2

    answer = diagnose([f"global_step=10, CurrSamplesPerSec={samples:.6f}, MemAllocated=1GB\n".encode()], asked)

    assert answer.pace is not None
    assert answer.pace.measured_seconds == pytest.approx(2 * seconds, rel=1e-4)
    assert answer.code == "slow-steps"


def test_a_step_that_is_too_fast_is_perhaps_a_micro_batch() -> None:
    asked = question()
    seconds = weigh(asked.job, asked.strategy).cost.seconds / asked.strategy.accumulation

    answer = diagnose([bars(seconds)], asked)

    assert f"about one of the {asked.strategy.accumulation} micro-batches" in said(answer)
    assert answer.code is None


def test_what_the_timers_do_not_see_is_told() -> None:
    parts = b"time (ms) | fwd_microstep: 300.00 | bwd_microstep: 900.00 | step_microstep: 20.00\n"

    answer = diagnose([bars(120), parts], question())

    assert "go to the data loader, logging, evaluation or saving" in said(answer)


def test_a_slow_config_gets_the_changes_that_gain_most() -> None:
    asked = question(zero_stage=3, offload="all", micro_batch=1, accumulation=32)
    seconds = weigh(asked.job, asked.strategy).cost.seconds

    answer = diagnose([bars(seconds * 2)], asked)

    assert answer.speedups
    assert [one.gain for one in answer.speedups] == sorted((one.gain for one in answer.speedups), reverse=True)
    assert f"{answer.speedups[0].gain:+.0%} speed" in said(answer)


def test_a_batch_that_does_not_multiply_is_computed() -> None:
    log = b"AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
    log += b"gradient_acc_step * world_size 16 != 2 * 1 * 1\n"

    told = said(diagnose([log]))

    assert "16 is written, and 2 x 1 x 1 ranks are 2" in told
    assert "with gradient_accumulation_steps 8 it is right on 1 rank" in told
    assert "with these keys it needs 8 ranks; 1 started" in told


def test_without_a_job_nothing_is_predicted() -> None:
    answer = diagnose([full()])

    assert (answer.predicted, answer.pace, answer.changes) == (None, None, ())
    assert "predicted" not in said(answer)
    assert "a smaller micro-batch" in said(answer)


def test_what_is_given_does_not_change() -> None:
    asked = question()

    assert diagnose([full()], asked).question == asked
    assert attrs.has(type(diagnose([full()])))


@pytest.mark.parametrize(
    ("line", "said_of_job", "words"),
    [
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", {"hw": "v100-32g"}, "--attention sdpa"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", {}, "another GPU ran"),
        ("ValueError: You cannot create a `DummyOptim` without specifying an optimizer in the config file.",
         {"set": {"training.lr": 3e-4}}, "DummyOptim(parameters, lr=0.0003, weight_decay="),
        ("ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device",
         {"method": "qlora", "gpus": 2}, "its weights take 3.7 of the 39.4 GiB"),
        ("ValueError: When using DeepSpeed `accelerate.prepare()` requires you to pass at least one of training or "
         "evaluation dataloaders", {"micro_batch": 2}, "train_micro_batch_size_per_gpu = 2"),
    ],
)  # fmt: skip
def test_what_a_library_refused_gets_this_job_s_number(line: str, said_of_job: dict[str, Any], words: str) -> None:
    answer = diagnose([f"{line}\n".encode()], question(**said_of_job))

    assert words in said(answer)


def test_a_change_is_told_apart_from_another_of_the_same_option_and_slowness_as_a_plan_says_it() -> None:
    """No change is 100 % slower or more, and `--micro-batch is ...` is not said twice of two sizes."""
    changes = tuple(
        NextChange(options={}, words=f"--micro-batch {size}", program=f"size={size}", saved_bytes=2**30,
                   slower=slower, enough=True)
        for size, slower in ((4, 0.25), (1, 2.0))
    )  # fmt: skip
    told = " ".join(report.text(attrs.evolve(diagnose([full()], question()), changes=changes)).split())

    assert "-1.0 GiB, 20% slower" in told and "-1.0 GiB, 3.0x slower" in told
    assert "with the Trainer --micro-batch 4 is size=4; --micro-batch 1 is size=1" in told


@pytest.mark.parametrize("built", ["TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig"])
def test_an_argument_that_the_installed_release_lacks_is_named(built: str) -> None:
    line = f"TypeError: {built}.__init__() got an unexpected keyword argument 'warmup_ratio'"

    answer = diagnose([f"[rank1]: Traceback (most recent call last):\n[rank1]: {line}\n".encode()])

    assert answer.root is not None and (answer.root.code, answer.root.rank) == ("training-arguments-refused", 1)
    assert "no warmup_ratio (now warmup_steps below 1)" in said(answer)
    other = diagnose([f"{line.replace(built, 'LlamaConfig')}\n".encode()])
    assert other.root is None or other.root.code != "training-arguments-refused"
