"""Causes that are about memory: of the GPU, of the host, and of what processes share."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import CONSEQUENCE, SLOW, Cause, Sign

__all__ = ["MEMORY"]

MEMORY = (
    Cause(
        code="host-out-of-memory",
        words="out of host memory",
        signs=(
            Sign("DefaultCPUAllocator"),
            Sign("oom-kill event"),
            Sign("oom_kill event"),
            Sign("Out Of Memory", r"srun: error: .*: tasks? .*: Out Of Memory"),
            Sign("OUT_OF_MEMORY"),
            Sign("Out of memory: Kill"),
            Sign("Memory cgroup out of memory"),
            Sign("oom-kill:constraint"),
            Sign("OOMKilled"),
            Sign("std::bad_alloc"),
            Sign("MemoryError", r"(?:^|[\s:|])(?:numpy\.\S*_Array)?MemoryError(?::|$)"),
            Sign("memory allocation of", r"memory allocation of (?:\d+|memory allocation of).{0,40} bytes"),
            Sign("Cannot allocate memory"),
            Sign("can't allocate memory"),
            Sign("is killed by signal: Killed"),
            Sign("node running low on memory"),
        ),
        why="Weights while they load, offloaded states and the data loader's workers share a node's RAM. A job may "
        "use less than the node has: Slurm's --mem or a container's limit.",
        changes=(
            "ask for more: #SBATCH --mem=0 gives all of the node; a container needs --memory to match",
            "load weights once a node: low_cpu_mem_usage, or zero.Init at stage 3, and fewer data loader workers",
            "move less to the host: no offload_param before no offload_optimizer",
        ),
        source="https://slurm.schedmd.com/sbatch.html#OPT_mem",
    ),
    Cause(
        code="shared-memory-full",
        words="shared memory ran out",
        signs=(
            Sign("killed by signal: Bus error"),
            Sign("insufficient shared memory"),
            Sign("out of shared memory"),
            Sign("/dev/shm", r"(?i)no space left|error while creating shared memory|posix_fallocate"),
            Sign("Error while creating shared memory segment"),
            Sign("unable to open shared memory object"),
            Sign("Bus error", r"Bus error(?: \(core dumped\))?\s*(?:\n|$)"),
        ),
        why="Workers of a data loader and NCCL hand data over in /dev/shm, which Docker makes 64 MiB large.",
        changes=(
            "docker run --ipc=host or --shm-size=16g; in Kubernetes an emptyDir of medium Memory on /dev/shm",
            "dataloader_num_workers=0",
        ),
        source="https://docs.docker.com/engine/containers/run/",
    ),
    Cause(
        code="gpu-out-of-memory",
        words="out of GPU memory",
        signs=(
            Sign("out of memory. Tried to allocate"),
            Sign("out of memory.", r"out of memory\.\W+Tried to allocate"),
            Sign("out of memory. Tried to", r"Tried to\W+allocate"),
            Sign("OutOfMemoryError", r"(?:torch|cuda|Cuda|CUDA)\S*OutOfMemoryError|^\W*OutOfMemoryError: (?:CUDA|HIP)"),
            Sign("CUDA out of memory"),
            Sign("HIP out of memory"),
            Sign("CUDA error: out of memory"),
            Sign("CUDA driver error: out of memory"),
            Sign("CUBLAS_STATUS_ALLOC_FAILED"),
            Sign("CUDA_ERROR_OUT_OF_MEMORY"),
            Sign("cudaErrorMemoryAllocation"),
            Sign("'out of memory'", r"[Cc]uda failure|NCCL"),
        ),
        why="Weights, gradients, optimizer states and what the forward pass keeps for backward exceed the card.",
        changes=(
            "a smaller micro-batch with as many accumulation steps more",
            "activation checkpointing: gradient_checkpointing=True",
            "a higher ZeRO stage, then the optimizer on the CPU",
            "a chunked loss (use_liger_kernel=True) where the vocabulary is large",
        ),
        source="https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
    Cause(
        code="process-killed",
        words="a process was killed with signal 9",
        level=CONSEQUENCE,
        signs=(
            Sign("return code = -9"),
            Sign("exitcode", r"exitcode\s*:\s*-9\b"),
            Sign("Signal 9 (SIGKILL)"),
            Sign("exited on signal 9"),
            Sign("SIGKILL"),
            Sign("Killed", r"(?:line \d+:\s*\d+ Killed\b|(?:^|[\s\]])Killed\s*(?:\n|$)|\d+ Killed +\S)"),
            Sign("returned with non-zero exit code 137"),
            Sign("exit code 137"),
        ),
        why="Nothing in the log says who sent the signal. Most often it is the kernel or Slurm, because the node's RAM "
        "ran out: `dmesg -T | grep -i kill` and `sacct -j JOB -o State,MaxRSS` say whether it was.",
        changes=(
            "look at the node's RAM while it loads and starts (free -g); ask for more, or load weights once a node",
            "move less to the host: no offload_param before no offload_optimizer",
        ),
        source="https://github.com/deepspeedai/DeepSpeed/issues/3160",
    ),
    Cause(
        code="cache-flushes",
        words="the allocator gives memory back in every step",
        level=SLOW,
        phase="step",
        signs=(Sign("pytorch allocator cache flushes since last step"),),
        why="torch's cache is full, so it frees blocks and asks CUDA for others, which waits for the GPU.",
        changes=(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "a smaller micro-batch, or smaller stage3_max_live_parameters and stage3_prefetch_bucket_size",
        ),
        source="https://github.com/deepspeedai/DeepSpeedExamples/issues/172",
    ),
)
