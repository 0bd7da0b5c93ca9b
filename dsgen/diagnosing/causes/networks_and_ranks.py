"""Causes that are about communication: collectives that do not end, broken networks, ranks that never meet."""

from __future__ import annotations

from dsgen.diagnosing.causes.cause import CONSEQUENCE, Cause, Sign

__all__ = ["COMMUNICATION"]

COMMUNICATION = (
    Cause(
        code="port-in-use",
        words="the port of the rendezvous is in use",
        phase="launch",
        signs=(Sign("EADDRINUSE"), Sign("Address already in use"), Sign("address already in use")),
        why="Another run, or what is left of one, listens on the same port of this node.",
        changes=(
            "another port: torchrun --rdzv-endpoint=localhost:0, deepspeed --master_port N, accelerate "
            "--main_process_port N",
            "end what is left of the last run: ss -ltnp | grep PORT",
        ),
        source="https://github.com/meta-pytorch/torchtune/issues/392",
    ),
    Cause(
        code="nodes-refused",
        words="the launcher does not take the nodes",
        phase="launch",
        signs=(
            Sign("unable to proceed with launching"),
            Sign("not found in hostfile"),
            Sign("Num nodes is >1 but no extra nodes available"),
        ),
        why="The hostfile is empty, names a host twice or not at all, or has no line such as `node1 slots=8`.",
        changes=("one line for each node, `HOST slots=GPUS`, and --hostfile FILE", "under Slurm: srun torchrun"),
        source="https://www.deepspeed.ai/getting-started/#resource-configuration-multi-node",
    ),
    Cause(
        code="gpu-shared",
        words="two ranks were given the same GPU",
        phase="init",
        signs=(Sign("Duplicate GPU detected"),),
        why="NCCL takes one rank for each GPU: the program sets no device, or fewer GPUs are visible than ranks run.",
        changes=(
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the first collective',
            "as many ranks a node as GPUs are visible (CUDA_VISIBLE_DEVICES, --gpus-per-task)",
        ),
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
    Cause(
        code="interface-missing",
        words="NCCL sees no network interface that it may use",
        phase="init",
        signs=(
            Sign("no socket interface found"),
            Sign("Unable to find address for"),
            Sign("Unable to resolve hostname"),
        ),
        why="NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that this node does not have.",
        changes=("unset it, or name one that `ip -br addr` shows on every node",),
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Cause(
        code="connection-failed",
        words="NCCL does not reach a rank at the address that it took",
        level=CONSEQUENCE,
        phase="init",
        signs=(
            Sign("NCCL error in:", r"(?s)^.{0,600}socket(?:Start|Poll)Connect"),  # its last error, some lines below
            Sign("socketStartConnect"),
            Sign("socketPollConnect"),
        ),
        why="The address is of an interface that the other node does not see (docker0, a bridge, 127.0.0.1), a "
        "firewall is between them, or the rank at it ended.",
        changes=(
            "NCCL_SOCKET_IFNAME=eth0, the interface that `ip -br addr` shows with the nodes' own addresses, on every "
            "node; NCCL_DEBUG=INFO says which one it took",
            "look for the first error of the rank at that address",
            "let every port through between the nodes: NCCL takes any",
        ),
        source="https://github.com/awslabs/awsome-distributed-ai/issues/192",
    ),
    Cause(
        code="ranks-differ",
        words="ranks call different collectives",
        signs=(
            Sign("Detected mismatch between collectives on ranks"),
            Sign("mismatch between collectives"),
            Sign("disagreement between rank"),
        ),
        why="Ranks went different ways: a branch on the rank or the data, or a module that some batches leave out.",
        changes=("make every rank run the same modules and the same number of batches",),
        source="https://pytorch.org/docs/stable/distributed.html#torch-distributed-debug",
    ),
    Cause(
        code="network-broken",
        words="the network between nodes does not work",
        phase="init",
        signs=(
            Sign("ibv_modify_qp failed"),
            Sign("Call to ibv_"),
            Sign("No route to host"),
            Sign("Network is unreachable"),
            Sign("ibv_reg_mr"),
        ),
        why="InfiniBand or RoCE queue pairs cannot be set up: wrong GID index, ports of other rails, a firewall, or a "
        "locked-memory limit.",
        changes=(
            "NCCL_IB_GID_INDEX (RoCE v2: often 3), NCCL_IB_HCA for the ports of the fabric, NCCL_CROSS_NIC=0 where "
            "rails are separate",
            "NCCL_IB_DISABLE=1 goes over sockets: slow, and it shows whether the fabric is to blame",
            "ulimit -l unlimited in the container",
        ),
        source="https://github.com/NVIDIA/nccl/issues/2013",
    ),
    Cause(
        code="nccl-timeout",
        words="a collective did not end in time",
        level=CONSEQUENCE,
        signs=(
            Sign("Watchdog caught collective operation timeout"),
            Sign("Timeout at NCCL work"),
            Sign("Timeout at collective"),
            Sign("watchdog got stuck"),
            Sign("Timed out waiting", r"(?i)Timed out waiting \d+ ?ms|recv operation"),
            Sign("ran for", r"milliseconds before timing out"),
            Sign("monitoredBarrier", r"(?i)timed? ?out|failed"),
            Sign("NCCL timeout"),
            Sign("NCCL communicator was aborted"),  # as torch does when a watchdog's time is over
            Sign("is setting up NCCL communicator and", r"(?i)time-?out"),
        ),
        why="At least one rank never came to a collective that the others wait in: it died, it still works on "
        "something that only it does (preprocessing, saving, evaluating), or it went another way.",
        changes=(
            "look at the rank that is behind first: its own error, or py-spy dump --pid while it hangs",
            "give every rank the same number of batches, and let slow work of one rank run before init",
            "ddp_timeout=7200 (TrainingArguments) where one rank is only slow; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 "
            "records who waits where",
        ),
        source="https://github.com/pytorch/pytorch/issues/118369",
    ),
    Cause(
        code="rendezvous-failed",
        words="the ranks never met",
        level=CONSEQUENCE,
        phase="launch",
        signs=(
            Sign("client socket has timed out"),
            Sign("client socket has failed to connect"),
            Sign("RendezvousTimeoutError"),
            Sign("RendezvousConnectionError"),
            Sign("Timed out after", r"waiting for clients|clients joined"),
            Sign("failed to create TCPStore"),
            Sign("ConnectionRefusedError"),
            Sign("Connection refused", r"(?i)rendezvous|TCPStore|socket|connect"),
            Sign("wait timeout after"),
            Sign("name resolution"),
            Sign("Name or service not known"),
            Sign("gai error"),
            Sign("ssh: connect to host"),
            Sign("Permission denied (publickey"),
            Sign("Host key verification failed"),
        ),
        why="Some ranks did not reach rank 0 at MASTER_ADDR:MASTER_PORT: another address, a firewall, fewer nodes "
        "started than were named, or the first node ended.",
        changes=(
            "the same MASTER_ADDR, MASTER_PORT and number of nodes everywhere: srun hostname, nc -zv HOST PORT",
            "look at the log of the first node: its own error comes first",
        ),
        source="https://pytorch.org/docs/stable/elastic/rendezvous.html",
    ),
    Cause(
        code="nccl-error",
        words="NCCL failed",
        level=CONSEQUENCE,
        signs=(
            Sign("unhandled cuda error"),
            Sign("unhandled system error"),
            Sign("ncclUnhandledCudaError"),
            Sign("ncclSystemError"),
            Sign("ncclInternalError"),
            Sign("ncclInvalidUsage"),
            Sign("NCCL error in:"),
            Sign("NCCL Error "),
        ),
        why="A call of CUDA or of the system failed inside NCCL: the driver is too old for it, GPU memory "
        "or /dev/shm is full, peer access does not work, or another rank is gone.",
        changes=(
            "NCCL_DEBUG=INFO: the line with NCCL WARN names the call that failed",
            "nvidia-smi on every node: driver, other processes, errors; docker --ipc=host",
            "NCCL_P2P_DISABLE=1 shows whether peer access is to blame",
        ),
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    Cause(
        code="peer-lost",
        words="the connection to another rank was lost",
        level=CONSEQUENCE,
        signs=(
            Sign("ncclRemoteError"),
            Sign("Connection closed by remote peer"),
            Sign("Connection closed by peer"),
            Sign("Connection reset by peer"),
            Sign("Broken pipe", r"(?i)TCPStore|socket|sendBytes|recv|nccl|rank"),
            Sign("Got completion from peer"),
            Sign("Got completion with error"),
            Sign("Got async event"),
            Sign("remote process exited or there was a network error"),
        ),
        why="A rank of another node or process ended, or the link to it broke: this log has only what followed.",
        changes=(
            "look for the first error in the logs of the other ranks and nodes",
            "where every rank ran: NCCL_IB_TIMEOUT=22 and NCCL_IB_RETRY_CNT=7 ride out a link that flaps",
        ),
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
)
