"""What NVIDIA's driver says of its cards, through nvidia-ml-py, which only this module loads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dsgen.detecting.proc import text

__all__ = ["ask"]

_DRIVER = "proc/driver/nvidia/version"
_LINKS = 18  # NVML_NVLINK_MAX_LINKS of nvml.h


def ask(root: Path = Path("/")) -> dict[str, Any]:
    """The cards that the driver shows, or why it shows none.

    `error` is "no package" where nvidia-ml-py is not installed, "no library" where there is no driver's library, else
    what NVML says.
    """
    kernel = text(root / _DRIVER).splitlines()
    said: dict[str, Any] = {"kernel_module": kernel[0] if kernel else "", "error": None, "driver": "", "gpus": []}
    try:
        import pynvml
    except ImportError:
        return {**said, "error": "no package"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return {**said, "error": "no library"}
    except pynvml.NVMLError as error:
        return {**said, "error": str(error)}
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(one) for one in range(pynvml.nvmlDeviceGetCount())]
        return {
            **said,
            "driver": _words(pynvml.nvmlSystemGetDriverVersion()),
            "gpus": [_card(pynvml, handle, handles) for handle in handles],
        }
    except pynvml.NVMLError as error:
        return {**said, "error": str(error)}
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _card(pynvml: Any, handle: Any, handles: list[Any]) -> dict[str, Any]:
    """One card; what its driver or its generation does not tell is None."""

    def told(question: Callable[..., Any], *arguments: Any) -> Any:
        # An older driver lacks the function itself, which is another error of the same family.
        with contextlib.suppress(pynvml.NVMLError, AttributeError):
            return question(*arguments)
        return None

    total, reserved = _memory(pynvml, handle)
    mig = told(pynvml.nvmlDeviceGetMigMode, handle)

    def peers(question: int) -> list[int] | None:
        """The cards of which the driver says that they have it; None where it does not tell."""
        others = {index: other for index, other in enumerate(handles) if other is not handle}
        said = {index: told(pynvml.nvmlDeviceGetP2PStatus, handle, other, question) for index, other in others.items()}
        if said and all(status is None for status in said.values()):
            return None
        return [index for index, status in said.items() if status == pynvml.NVML_P2P_STATUS_OK]

    return {
        "name": _words(pynvml.nvmlDeviceGetName(handle)),
        "uuid": _words(told(pynvml.nvmlDeviceGetUUID, handle) or ""),
        "total_bytes": total,
        "reserved_bytes": reserved,
        "mig": bool(mig and mig[0]),
        "pcie_generation": told(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": told(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "nvlinks": sum(told(pynvml.nvmlDeviceGetNvLinkState, handle, link) == 1 for link in range(_LINKS)),
        "nvlink_mbytes_per_second": _link_speed(pynvml, handle),
        "nvlink_to": peers(pynvml.NVML_P2P_CAPS_INDEX_NVLINK),
        "reads": peers(pynvml.NVML_P2P_CAPS_INDEX_READ),
    }


def _memory(pynvml: Any, handle: Any) -> tuple[int, int | None]:
    """Total and what the driver keeps of it; an older driver leaves the second out of the first and tells it not."""
    with contextlib.suppress(pynvml.NVMLError, AttributeError):
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return int(memory.total), int(memory.reserved)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), None


def _link_speed(pynvml: Any, handle: Any) -> int | None:
    """MB/s of one NVLink, one direction."""
    for value in _fields(pynvml, handle, getattr(pynvml, "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", 90)):
        if value.nvmlReturn == 0 and 0 < value.value.uiVal < 1_000_000:
            return int(value.value.uiVal)
    return None


def _fields(pynvml: Any, handle: Any, field: int) -> Iterator[Any]:
    with contextlib.suppress(pynvml.NVMLError, AttributeError):
        yield from pynvml.nvmlDeviceGetFieldValues(handle, [field])


def _words(said: str | bytes) -> str:
    """Text; nvidia-ml-py before 11.515 answered with bytes."""
    return said.decode() if isinstance(said, bytes) else said
