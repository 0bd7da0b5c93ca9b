"""A log is read in one pass, whatever is in it: any bytes, any pieces, any order of ranks, any size."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsgen.deepspeed import surface
from dsgen.diagnosing import diagnose, read
from dsgen.diagnosing.causes import CAUSES
from dsgen.diagnosing.marked_lines import BLOCK, marked
from dsgen.report import diagnosis as report

OOM = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    '  File "/x/torch/_tensor.py", line 492, in backward',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 3 has a total capacity of 39.39 GiB "
    "of which 320.00 MiB is free. Including non-PyTorch memory, this process has 39.06 GiB memory in use. Of the "
    "allocated memory 33.02 GiB is allocated by PyTorch, and 5.10 GiB is reserved by PyTorch but unallocated.",
)
TIMEOUT = (
    "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
    "RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:{0}, unhandled system error",
)
SLOW = settings(max_examples=60, deadline=None)


def log(*lines: str) -> bytes:
    """Lines as a log."""
    return ("\n".join(lines) + "\n").encode()


def of_rank(rank: int, lines: tuple[str, ...]) -> list[str]:
    """Lines as torch marks a rank's."""
    return [f"[rank{rank}]: {line.format(rank)}" for line in lines]


WORDS = st.sampled_from([sign.word for cause in CAUSES for sign in cause.signs])
LINES = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    WORDS.map(lambda word: f"[rank1]: RuntimeError: {word} GiB 1.0.0 ".encode()),
    st.sampled_from([line.encode() for line in of_rank(3, OOM)]),
    st.sampled_from([line.encode() for line in of_rank(1, TIMEOUT)]),
    st.sampled_from([b"  1%|1  | 12/900 [11:16<13:02:24, 95.00s/it]", b"{'loss': nan}", b"| fwd: 1.. | step: 9e999"]),
    st.sampled_from([b"CurrSamplesPerSec=1e999", b"elapsed time per iteration (ms): .", b"MaxMemAllocated=...GB"]),
)


@SLOW
@given(st.lists(LINES, max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r", b""]))
def test_any_bytes_are_read_and_told(lines: list[bytes], end: bytes) -> None:
    answer = diagnose([end.join(lines)])

    assert report.text(answer).endswith("\n")
    assert report.data(answer)["code"] == answer.code


@SLOW
@given(st.binary(max_size=2000))
def test_random_bytes_are_read(data: bytes) -> None:
    assert read([data]).size_bytes == len(data)


@SLOW
@given(st.lists(LINES, max_size=20), st.lists(st.integers(1, 400), max_size=40))
def test_it_does_not_matter_how_a_log_is_cut(lines: list[bytes], sizes: list[int]) -> None:
    data, pieces, start = b"\n".join(lines), [], 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    pieces.append(data[start:])

    assert read(pieces) == read([data])


@SLOW
@given(st.data())
def test_the_order_in_which_ranks_write_changes_no_cause(data: st.DataObject) -> None:
    """A rank's own lines keep their order; all others of the node wait for the one that ran out of memory."""
    queues = [of_rank(3, OOM), *(of_rank(rank, TIMEOUT) for rank in (0, 1, 2))]
    mixed: list[str] = []
    while any(queues):
        mixed.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))

    record = read([log(*mixed)])

    assert record.root is not None
    assert (record.root.code, record.root.rank, record.root.phase) == ("gpu-out-of-memory", 3, "backward")
    assert mixed[record.root.line - 1].endswith("unallocated.")
    assert {one.code for one in record.others} == {"nccl-timeout", "nccl-error"}


@SLOW
@given(st.integers(0, 300), st.sampled_from(["\n", "\r\n"]))
def test_a_line_has_the_number_that_an_editor_shows(before: int, end: str) -> None:
    lines = [f"step {number} caf\u00e9" for number in range(before)] + [*of_rank(3, OOM), "the end"]

    record = read([end.join(lines).encode("latin-1")])

    assert record.root is not None
    assert lines[record.root.line - 1].startswith("[rank3]: torch.OutOfMemoryError")
    assert record.lines == len(lines)
    assert record.last_line == "the end"


def test_a_log_of_gigabytes_takes_little_memory() -> None:
    """Blocks come one after the other, and nothing of them stays: 24 MiB here, as 2 GB would."""
    line = b"worker-3: [2026-11-20 10:00:00,000] [INFO] loss is fine and nothing else is said about it at all\n"
    block = line * (BLOCK // len(line))

    def blocks() -> Iterator[bytes]:
        yield from itertools.repeat(block, 24)
        yield log(*of_rank(3, OOM))

    tracemalloc.start()
    record = read(blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert record.root is not None and record.root.line == 24 * block.count(b"\n") + 4
    assert peak < 8 * BLOCK


def test_a_line_without_an_end_takes_little_memory() -> None:
    tracemalloc.start()
    record = read([*itertools.repeat(b"x" * BLOCK, 20), b"\n", log(*OOM)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert record.root is not None and record.root.code == "gpu-out-of-memory"
    assert peak < 12 * BLOCK


def test_every_line_with_a_word_is_read_but_of_floods_only_the_first() -> None:
    data = b"".join(b"a rare thing\na step\n" for _ in range(200))

    lines = list(marked([data], [b"rare"], [b"step"]))

    assert sum("rare" in line.text for line in lines) == 200
    assert 0 < sum("step" in line.text for line in lines) < 200
    assert [line.number for line in lines] == sorted(line.number for line in lines)


@SLOW
@given(
    st.lists(st.lists(st.sampled_from([b"code = -9", b"code = -", b"-9", b"7", b"12", b" ", b"ok"]), max_size=5)),
    st.integers(1, 50),
)
def test_no_line_with_a_word_is_left_out(parts: list[list[bytes]], size: int) -> None:
    """Lines that differ in numbers only are looked at once; a word with a number in it is still seen."""
    lines = [b"".join(line) for line in parts] * 3
    data = b"\n".join(lines)
    blocks = [data[start : start + size] for start in range(0, len(data), size)]

    read_lines = [line.number for line in marked(blocks, [b"code = -9"])]

    assert read_lines == [number for number, line in enumerate(lines, 1) if b"code = -9" in line]


def test_a_log_that_repeats_itself_is_quick() -> None:
    """What a long log repeats with other numbers is not searched for every word again: 300 words, 40 MiB."""
    words = [
        f"no such word {letter}{other}".encode() for letter in "abcdefghijklmnopqrst" for other in "abcdefghijklmno"
    ]
    line = b"[2026-11-20 10:00:00,%d] [INFO] step %d of a run that goes on and on, all is well with it\n"
    block = b"".join(line % (number, number) for number in range(BLOCK // 90))

    seconds = []
    for repeats in (1, 40):
        start = time.process_time()
        assert list(marked(itertools.repeat(block, repeats), words)) == []
        seconds.append(time.process_time() - start)

    assert seconds[1] < 20 * seconds[0] + 1


@pytest.mark.parametrize("prefix", ["", "worker-5: ", "[80746] ", "\x1b[31m"])
@pytest.mark.parametrize("mark", ["[rank12]: ", "[default12]:", "[rank: 12] ", "12: "])
def test_a_rank_is_read_however_it_is_marked(prefix: str, mark: str) -> None:
    if mark == "12: " and prefix:
        return  # srun's label stands at the very beginning
    record = read([log(*(f"{prefix}{mark}{line}" for line in OOM))])

    assert record.root is not None
    assert (record.root.rank, record.root.phase) == (12, "backward")


def test_the_first_of_several_ranks_is_named_and_all_are_counted() -> None:
    record = read([log(*of_rank(5, OOM), *of_rank(2, OOM))])

    assert record.root is not None
    assert (record.root.rank, record.root.ranks, record.root.count) == (5, (2, 5), 2)


def test_a_message_that_a_box_broke_is_read_whole() -> None:
    box = (
        "│ RuntimeError: CUDA out of memory. Tried to allocate  │",
        "│ 2.00 GiB (GPU 1; 79.35 GiB total capacity; 73.95 GiB │",
        "│ already allocated; 12.19 MiB free; 76.80 GiB         │",
        "│ reserved in total by PyTorch)                        │",
    )

    record = read([log(*box)])

    assert record.root is not None
    facts = record.root.facts
    assert (facts["asked_bytes"], facts["gpu"]) == (2 * 2**30, 1)
    assert facts["unallocated_bytes"] == facts["reserved_bytes"] - facts["allocated_bytes"]  # type: ignore[operator]


def test_an_unknown_error_before_the_others_wait_is_the_cause_and_one_after_is_not() -> None:
    unknown, waits = of_rank(1, ("ValueError: the tokenizer is sad",)), of_rank(0, TIMEOUT[:1])

    first, last = read([log(*unknown, *waits)]).root, read([log(*waits, *unknown)]).root

    assert first is not None and (first.code, first.rank) == ("unknown-error", 1)
    assert last is not None and last.code == "nccl-timeout"


def test_an_error_that_the_run_went_on_after_is_no_cause() -> None:
    caught = ("Traceback (most recent call last):", "ImportError: no telemetry here", "KeyError: 'x'")
    bar = "  2%|2  | 18/900 [11:16<13:02:24, 95.00s/it]"
    done = "{'train_runtime': 42.2, 'train_samples_per_second': 8.1, 'train_steps_per_second': 0.02, 'epoch': 1.0}"

    assert read([log(*caught, bar)]).root is None
    assert read([log(*caught, done)]).root is None
    assert diagnose([log(*caught, done)]).code is None
    assert read([log(bar, *caught)]).root is not None
    assert read([log(*caught, bar, "x exits with return code = 1")]).root is not None


def test_which_rank_is_behind_is_told() -> None:
    line = TIMEOUT[0].replace("7753", "{1}")
    lines = [line.format(rank, 7000 if rank == 2 else 7753) for rank in range(4)]

    answer = diagnose([log(*lines)])

    assert any("rank 2 stands at collective 7,000, others at 7,753" in said for said in answer.remarks)


def test_which_rank_says_nothing_is_told() -> None:
    lines = ["dist_world_size=4", *(TIMEOUT[0].format(rank) for rank in (0, 1, 3))]

    answer = diagnose([log(*lines)])

    assert any("of ranks 2:" in said for said in answer.remarks)


def test_the_rank_that_torchrun_lists_is_taken() -> None:
    record = read([log("  rank      : 6 (local_rank: 6)", "  exitcode  : -9 (pid: 12)")])

    assert record.root is not None
    assert (record.root.code, record.root.rank) == ("process-killed", 6)


def test_a_failure_that_nobody_explains_is_said_to_be_one() -> None:
    answer = diagnose([log("[ERROR] [launch.py:320:sigkill_handler] ['python'] exits with return code = 1")])

    assert answer.code == "failed" and answer.root is None
    assert "the log does not say why" in report.text(answer)


@pytest.mark.parametrize("scale", ["1, reducing to 1", "2, reducing to 1"])
def test_an_overflow_at_the_lowest_scale_is_a_cause_and_one_at_the_start_is_none(scale: str) -> None:
    told = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {0}"

    assert diagnose([log(told.format("65536, reducing to 32768"))]).code is None
    assert diagnose([log(told.format("65536, reducing to 32768"), told.format(scale))]).code == "overflow"
    assert diagnose([log(*[told.format("65536, reducing to 32768")] * 50)]).code == "overflow"


@pytest.mark.parametrize("blank", [(), ("",)])
def test_an_error_whose_message_begins_in_the_next_line_is_read(blank: tuple[str, ...]) -> None:
    told = "    CUDA Setup failed despite GPU being available. Please run the following command"

    record = read([log("RuntimeError:", *blank, told)])

    assert [one.code for one in record.symptoms] == ["bitsandbytes-broken"]
    assert record.root is not None and record.root.line == 2 + len(blank)


@pytest.mark.parametrize("version", surface.known_versions())
def test_the_config_that_deepspeed_prints_is_no_error(version: str) -> None:
    """DeepSpeed 0.16 did so in every run (trl#2784), later ones with INFO: as it holds it, then as it was written."""
    keys = surface.load(version).paths
    held = [
        f"[2025-02-07 01:13:41,363] [INFO] [config.py:1003:print]   {key.rpartition('.')[2]} .. True" for key in keys
    ]
    written = [f'    "{key.rpartition(".")[2]}": true, ' for key in keys]

    assert "zero_force_ds_cpu_optimizer" in keys
    assert [one.text for one in read([log(*held, *written)]).symptoms] == []
    root = read([log(*held, *written, *OOM)]).root
    assert root is not None and root.code == "gpu-out-of-memory"


def test_every_value_that_trainer_and_config_have_otherwise_is_named() -> None:
    told = report.text(
        diagnose([
            log(
                "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments",
                "- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8",
                "- ds optimizer.params.lr=1e-05 vs hf learning_rate=5e-05",
            )
        ])
    )  # fmt: skip

    assert "train_micro_batch_size_per_gpu is 4 in the config, and 8 in TrainingArguments" in told
    assert "optimizer.params.lr is 1e-05 in the config, and 5e-05 in TrainingArguments" in told


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "TypeError: WarmupDecayLR.__init__() missing 1 required positional argument: 'total_num_steps'",
            "arguments-refused",
        ),
        ("TypeError: FusedAdam.__init__() got an unexpected keyword argument 'learning_rate'", "arguments-refused"),
        ("TypeError: MyModel.__init__() got an unexpected keyword argument 'learning_rate'", "unknown-error"),
        ("hjson.scanner.HjsonDecodeError: Bad key name (eof): line 1 column 51 (char 50)", "config-unreadable"),
        ("ValueError: Duplicate keys in DeepSpeed config: ['train_batch_size']", "config-unreadable"),
    ],
)
def test_what_deepspeed_0_19_8_says_of_a_wrong_config_is_told(line: str, code: str) -> None:
    root = read([log(line)]).root

    assert root is not None and root.code == code
