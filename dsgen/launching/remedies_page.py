"""What a run says when it fails, what that means, and what to do about it here."""

from __future__ import annotations

from collections.abc import Iterator

from dsgen.launching.launches import JobLaunch
from dsgen.launching.trainer_programs import TRAINER_PROGRAMS
from dsgen.shapes.makers import maker_of
from dsgen.shapes.units import gib

__all__ = ["remedies"]


def remedies(launch: JobLaunch) -> Iterator[tuple[str, str, str]]:
    """Rows of the table: what is seen, what it means, what to do.

    The lines that are seen are those of torch 2.13, DeepSpeed 0.19.8, NCCL 2.30 and transformers 5.23.
    """
    job, chosen = launch.job, launch.plan.chosen
    strategy = chosen.strategy
    if launch.has_gpus:
        yield (f"`{maker_of(job.hardware.vendor).full}`", "a GPU is full", _out_of_memory(launch))
    yield (
        "a rank ends with -9 or 137, no message",
        "the kernel or the scheduler killed it: RAM",
        f"`dmesg | tail`; by the plan a node needs {gib(chosen.memory.host.high_bytes)} GiB at most, without workers",
    )
    yield (
        "`Check batch related parameters`",
        f"another number of ranks than {job.world}",
        f"start {job.world}, or write the folder anew with `--gpus N --force`",
    )
    if launch.target in ("hf-trainer", *TRAINER_PROGRAMS):
        yield (
            "`mismatch TrainingArguments`",
            "an argument says otherwise than the config",
            "take the config's value: it is what was planned",
        )
    if job.world > 1:
        yield (
            "`Watchdog caught collective operation timeout`",
            "a rank did not come: it failed, or does other work than the others",
            "look for the first error of any other rank; a longer timeout helps only where all still load",
        )
        yield (
            "nothing for minutes, GPUs at 100 %",
            "ranks wait for one another in different calls",
            "`pip install py-spy; py-spy dump --pid PID` of each rank: the odd one out is the cause",
        )
    if job.nodes > 1:
        port = "ports 15000 to 24999" if launch.launcher == "slurm" else f"port {launch.port}"
        yield (
            "`unhandled system error`, `Connection refused`, ranks that do not meet",
            "the wrong interface, or a closed port",
            f"`dsgen launch --interface NAME --force`; {port} and those that the kernel gives open between the hosts",
        )
        if job.network.rdma:
            yield (
                f"`NET/Socket` in {maker_of(job.hardware.vendor).collectives}'s INFO lines",
                f"{job.network.fabric} is not used: the plan counts on it",
                "`NCCL_DEBUG=INFO` once; `ibstat`, the plugin of NCCL, `ulimit -l unlimited`",
            )
    if strategy.precision == "fp16":
        yield (
            "`Current loss scale already at minimum`",
            "every step overflows: a loss of NaN or inf",
            "bf16 where the GPU has it, else a lower learning rate; look at the batch of that step",
        )
    if strategy.precision != "fp16":
        yield ("a loss of NaN", "data, or a learning rate too high", "go back one checkpoint, halve the learning rate")
    if launch.offloads:
        yield (
            "`Unable to JIT load the cpu_adam op`, or no `ninja`",
            "DeepSpeed builds its Adam for the host at the first start",
            "`pip install ninja`, a C++ compiler; `ds_report` says what is missing",
        )
    if launch.launcher == "slurm":
        yield (
            "`not queued again` in the output",
            "it failed before its first new checkpoint",
            "mend the cause above, then `sbatch` again",
        )
    if launch.launcher in ("deepspeed", "torchrun", "accelerate"):
        yield (
            "`address already in use`",
            f"another run, or the rest of the last one, has port {launch.port}",
            "`ss -ltnp`; `dsgen launch --port N --force`",
        )


def _out_of_memory(launch: JobLaunch) -> str:
    """The nearest way to less memory that trains the same."""
    job, strategy = launch.job, launch.plan.chosen.strategy
    if strategy.micro_batch > 1:
        half = strategy.micro_batch // 2
        return f"`dsgen launch --micro-batch {half} --force`: the same batch in more passes"
    if not strategy.checkpointing:
        return "`dsgen launch --checkpointing full --force`, and switch it on in the program"
    if not job.training.chunked_loss:
        return "a chunked loss (Liger's), `--chunked-loss`; `dsgen memory` says what else would fit"
    return f"`dsgen memory --seq-len {job.seq_len // 2}`, and what else it says would fit"
