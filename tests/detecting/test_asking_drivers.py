"""The questions to NVML, to AMD's kernel driver and to Linux, put to stand-ins that answer as the real ones do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsgen.detecting import kfd, nvml, proc

MIB = 2**20


class _NvmlError(Exception):
    pass


class _LibraryNotFoundError(_NvmlError):
    pass


class _Nvml(SimpleNamespace):
    """nvidia-ml-py as two A100 on one NVSwitch would answer it; `lacking` names functions that fail."""

    NVMLError = _NvmlError
    NVMLError_LibraryNotFound = _LibraryNotFoundError
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_CAPS_INDEX_READ, NVML_P2P_STATUS_OK = 2, 0, 0
    NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON = 90
    nvmlMemory_v2 = 33554472  # noqa: N815 - its name there

    def __init__(self, lacking: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.lacking = lacking
        self.closed = False

    def _said(self, name: str, value: Any) -> Any:
        if name in self.lacking:
            raise _NvmlError("Not Supported")
        return value

    def nvmlInit(self) -> None:
        if "library" in self.lacking:
            raise _LibraryNotFoundError
        self._said("init", None)

    def nvmlShutdown(self) -> None:
        self.closed = True

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return SimpleNamespace(index=index)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"535.104.05"

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return "NVIDIA A100-SXM4-40GB"

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return f"GPU-{handle.index}"

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        return self._said("memory_v2" if version else "memory", SimpleNamespace(total=40960 * MIB, reserved=620 * MIB))

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        return self._said("mig", [0, 0])

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int:
        return self._said("width", 16)

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        if link >= 12:
            raise _NvmlError("Invalid Argument")
        return self._said("nvlink", 1)

    def nvmlDeviceGetP2PStatus(self, first: Any, second: Any, question: int) -> int:
        return self._said("p2p", 0)

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int]) -> list[Any]:
        return self._said("fields", [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=25000))])


def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lacking: str) -> dict[str, Any]:
    driver = _Nvml(lacking)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    said = nvml.ask(tmp_path)
    assert driver.closed == (not {"library", "init"} & set(lacking))
    return said


def test_nvml_tells_each_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = asked(monkeypatch, tmp_path)

    assert (said["driver"], said["error"], len(said["gpus"])) == ("535.104.05", None, 2)
    assert said["gpus"][1] == {
        "name": "NVIDIA A100-SXM4-40GB",
        "uuid": "GPU-1",
        "total_bytes": 40960 * MIB,
        "reserved_bytes": 620 * MIB,
        "mig": False,
        "pcie_generation": 4,
        "pcie_width": 16,
        "nvlinks": 12,
        "nvlink_mbytes_per_second": 25000,
        "nvlink_to": [0],
        "reads": [0],
    }


@pytest.mark.parametrize(
    ("lacking", "field", "value"),
    [("memory_v2", "reserved_bytes", None), ("mig", "mig", False), ("width", "pcie_width", None),
     ("nvlink", "nvlinks", 0), ("p2p", "reads", None), ("fields", "nvlink_mbytes_per_second", None)],
)  # fmt: skip
def test_what_a_driver_does_not_know_is_left_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacking: str, field: str, value: object
) -> None:
    said = asked(monkeypatch, tmp_path, lacking)

    assert said["error"] is None
    assert said["gpus"][0][field] == value


def test_a_driver_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert asked(monkeypatch, tmp_path, "library")["error"] == "no library"
    assert asked(monkeypatch, tmp_path, "init")["error"] == "Not Supported"
    assert asked(monkeypatch, tmp_path, "memory_v2", "memory")["error"] == "Not Supported"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.ask(tmp_path)["error"] == "no package"


def test_the_kernel_s_module_is_seen_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    files(tmp_path, {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\nGCC\n"})

    assert nvml.ask(tmp_path)["kernel_module"].endswith("550.54.15")


def files(root: Path, said: dict[str, str]) -> Path:
    for name, text in said.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


NODES = "sys/class/kfd/kfd/topology/nodes"
MI300X = "simd_count 1216\nvendor_id 4098\ndevice_id 29857\ngfx_target_version 90402\nlocation_id {}\ndomain 0\n"


@pytest.fixture
def two_mi300x(tmp_path: Path) -> Path:
    """A host with two MI300X: a CPU is node 0, and each GPU has a link to it by PCIe and to the other by xGMI."""
    said = {f"{NODES}/0/properties": "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\n"}
    for node, (other, bus) in {1: (2, 5), 2: (1, 0x26)}.items():
        said |= {
            f"{NODES}/{node}/properties": MI300X.format(bus << 8),
            f"{NODES}/{node}/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206141652992\n",
            f"{NODES}/{node}/io_links/0/properties": f"type 2\nnode_from {node}\nnode_to 0\n",
            f"{NODES}/{node}/io_links/1/properties": f"type 11\nnode_from {node}\nnode_to {other}\n",
            f"sys/bus/pci/devices/0000:{bus:02x}:00.0/max_link_speed": "32.0 GT/s PCIe\n",
            f"sys/bus/pci/devices/0000:{bus:02x}:00.0/current_link_width": "16\n",
        }
    return files(tmp_path, said)


def test_amd_s_driver_tells_each_card(two_mi300x: Path) -> None:
    said = kfd.ask(two_mi300x)

    assert said is not None
    assert said["gpus"][0] == {
        "device": 0x74A1,
        "target": 90402,
        "total_bytes": 206141652992,
        "pcie_gigatransfers": 32.0,
        "pcie_width": 16,
        "xgmi_to": [1],
        "xgmi_to_host": False,
    }
    assert said["gpus"][1]["xgmi_to"] == [0]


def test_a_card_that_is_joined_to_its_host_by_xgmi_says_so(two_mi300x: Path) -> None:
    (two_mi300x / f"{NODES}/1/io_links/0/properties").write_text("type 11\nnode_from 1\nnode_to 0\n")
    said = kfd.ask(two_mi300x)

    assert said is not None
    assert [card["xgmi_to_host"] for card in said["gpus"]] == [True, False]


def test_no_driver_of_amd_s_is_none(tmp_path: Path) -> None:
    assert kfd.ask(tmp_path) is None


def test_the_host_is_read(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu"
    places = {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (0, 0)}  # number: socket and core; 3 is the other thread of 0
    topology = {
        f"{cpu}/cpu{number}/topology/{name}": str(value)
        for number, place in places.items()
        for name, value in zip(("physical_package_id", "core_id"), place, strict=True)
    }
    files(tmp_path, {
        "proc/meminfo": "MemTotal:       16090888 kB\nMemFree: 1 kB\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7302 16-Core Processor\n",
        "sys/fs/cgroup/memory.max": "8589934592\n",
        **{f"sys/devices/system/node/node{number}/cpulist": text for number, text in enumerate(("0-1", "2-3", ""))},
        **topology,
    })  # fmt: skip

    assert proc.memory(tmp_path) == {"total_bytes": 16090888 * 1024, "limit_bytes": 8 * 2**30}
    assert proc.cpus(tmp_path) == {
        "name": "AMD EPYC 7302 16-Core Processor",
        "sockets": 2,
        "numa_domains": 2,
        "cores": 3,
        "allowed_cores": 3,
    }


@pytest.mark.parametrize(
    ("file", "words"), [("memory.max", "max\n"), ("memory/memory.limit_in_bytes", "9223372036854771712\n")]
)
def test_no_limit_is_none(tmp_path: Path, file: str, words: str) -> None:
    files(tmp_path, {f"sys/fs/cgroup/{file}": words})

    assert proc.memory(tmp_path)["limit_bytes"] is None


def test_drives_interfaces_and_cards_are_listed(tmp_path: Path) -> None:
    files(tmp_path, {
        "sys/block/nvme0n1/size": "7501476528\n",
        "sys/block/nvme0n1/device/model": "SAMSUNG MZWLJ3T8HBLS-00007\n",
        "sys/block/nvme0c0n1/size": "7501476528\n",
        "sys/block/sda/size": "1000\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "200 Gb/sec (4X HDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/class/infiniband/mlx5_0/device/net/ib0/x": "",
        "sys/class/net/ib0/device/x": "",
        "sys/class/net/eth0/device/x": "",
        "sys/class/net/eth0/speed": "25000\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.0/device": "0x20b0\n",
        "sys/bus/pci/devices/0000:02:00.0/class": "0x020000\n",
    })  # fmt: skip

    assert proc.disks(tmp_path) == [{"name": "nvme0n1", "model": "SAMSUNG MZWLJ3T8HBLS-00007", "bytes": 3840755982336}]
    assert proc.interfaces(tmp_path) == [
        {"name": "mlx5_0", "kind": "infiniband", "up": True, "gbits": 200.0},
        {"name": "eth0", "kind": "net", "up": True, "gbits": 25.0},
    ]
    assert proc.display_controllers(tmp_path) == [{"address": "0000:01:00.0", "vendor": "0x10de", "device": "0x20b0"}]


def test_an_empty_machine_answers_with_nothing(tmp_path: Path) -> None:
    assert proc.memory(tmp_path) == {"total_bytes": None, "limit_bytes": None}
    assert proc.cpus(tmp_path) == {"name": "", "sockets": 0, "numa_domains": 0, "cores": 0, "allowed_cores": 0}
    assert proc.disks(tmp_path) == proc.interfaces(tmp_path) == proc.display_controllers(tmp_path) == []
