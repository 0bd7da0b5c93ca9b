"""What is measured when asked: numbers that a machine can have, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsgen.detecting.measuring import drive_rates, link_rates, memory_rate
from dsgen.shapes.errors import DsgenError

SMALL = 1 << 25


def test_copies_in_ram_have_a_speed() -> None:
    rate = memory_rate(2, SMALL)

    assert rate.threads == 2
    assert 1e8 < rate.bytes_per_second < 1e13


def test_threads_are_at_least_one_and_at_most_64() -> None:
    assert memory_rate(0, 1 << 16).threads == 1
    assert memory_rate(500, 1 << 16).threads == 64


def test_a_drive_is_written_and_read_and_left_as_it_was(tmp_path: Path) -> None:
    rates = drive_rates(str(tmp_path), SMALL)

    assert rates.write_bytes_per_second > 1e6
    assert rates.read_bytes_per_second > 1e6
    assert rates.total_bytes > SMALL
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="cannot be measured"):
        drive_rates(str(tmp_path / "missing"))


def test_a_drive_without_room_is_refused_before_it_is_filled(tmp_path: Path) -> None:
    with pytest.raises(DsgenError, match="GiB are free"):
        drive_rates(str(tmp_path), 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_without_torch_the_link_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    rates = link_rates()

    assert (rates.to_device_bytes_per_second, rates.missing) == (None, "torch is not installed")


def test_a_gpu_s_link_is_timed_both_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A torch that sleeps as long as a copy would: 256 MiB to the card in 2 ms, back in 50."""
    (tmp_path / "torch.py").write_text(
        "import time\nuint8 = None\n"
        "class cuda:\n    is_available = staticmethod(lambda: True)\n    synchronize = staticmethod(lambda: None)\n"
        "class empty:\n    def __init__(self, n, dtype, device='cpu', pin_memory=False): self.device = device\n"
        "    def copy_(self, other, non_blocking): time.sleep(0.05 if self.device == 'cpu' else 0.002)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    rates = link_rates()

    assert rates.missing == ""
    to_device, to_host = rates.to_device_bytes_per_second, rates.to_host_bytes_per_second
    assert to_device is not None and to_host is not None
    assert to_host <= 2**28 / 0.05  # a busy machine sleeps longer, and none shorter
    assert to_host < to_device <= 2**28 / 0.002


@pytest.mark.proof
def test_the_real_torch_without_a_gpu_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        assert (link_rates().to_device_bytes_per_second or 0) > 1e9
    else:
        assert link_rates().missing == "torch sees no GPU"
