"""The seconds and the FLOPs of one entry of a program, by the laws of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsgen import kernels
from dsgen.kernels import Rates

__all__ = ["adam_seconds", "contention", "divided", "flops", "host_seconds", "link", "seconds", "sizes"]

_KINDS = {"all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
          "all-to-all": "all_to_all"}  # fmt: skip
_FORWARD, _BACKWARD = 4, 8  # of attention, a pair of positions and an element of a head; what is recomputed left out


def seconds(entry: Sequence[Any], rates: Rates, ranks_per_node: int, kernel: str) -> float:
    """How long a product, attention, traffic, a copy, a collective or a file takes.

    Args:
        entry: As `dsgen.engine.simulate.programs` writes it.
        rates: The node and its network.
        ranks_per_node: Ranks that share a node.
        kernel: What a fused attention runs: one of `dsgen.kernels.attention.KERNELS`.
    """
    sort, *rest = entry
    if sort == "product":
        *_, m, n, k, batch, dtype = rest
        return kernels.product_seconds(rates, m, n, k, dtype, batch=batch)
    if sort == "attention":
        *_, phase, batch, heads, kv_heads, queries, keys, head_size, causal, window, dtype = rest
        kernel = kernels.taken(kernel, head_size)
        return kernels.attention_seconds(
            rates,
            kernel if causal else kernels.beside_mask(kernel),
            phase,
            batch=batch,
            heads=heads,
            kv_heads=kv_heads,
            queries=queries,
            keys=keys,
            head_size=head_size,
            causal=causal,
            window=window if causal else 0,
            dtype=dtype,
        )
    if sort == "traffic":
        return kernels.traffic_seconds(rates, rest[-1], rest[-2])
    if sort == "copy":
        _, _, direction, size, pinned, _ = rest
        return kernels.copy_seconds(rates, size, pinned=pinned, direction=direction)
    if sort == "collective":
        *_, kind, size, ranks, inside = rest
        groups = _groups(inside, ranks_per_node)
        law = _KINDS.get(kind, "broadcast")
        return kernels.collective_seconds(rates, law, size, ranks, max(inside, 1), groups_per_node=groups)
    if sort == "file":
        direction, size = rest
        return kernels.nvme_seconds(rates, size * ranks_per_node, direction)
    raise ValueError(f"an entry {sort!r} takes no time of its own")


def divided(program: Mapping[str, Any], length: int) -> Mapping[str, Any]:
    """A program whose attention sees sequences of a length alone, as where its samples are packed; 0: as it is.

    They are as many as tokens fill, a part of one too.
    """
    return {**program, "entries": [_divided(entry, length) for entry in program["entries"]]} if length else program


def _divided(entry: Sequence[Any], length: int) -> Sequence[Any]:
    if entry[0] != "attention" or entry[-6] <= length or entry[-6] != entry[-5]:
        return entry
    *begin, batch, heads, kv_heads, queries, _, head_size, causal, window, dtype = entry
    return [*begin, batch * queries / length, heads, kv_heads, length, length, head_size, causal, window, dtype]


def contention(entry: Sequence[Any], rates: Rates, ranks_per_node: int) -> float:
    """How much longer kernels take beside a collective, by their own time."""
    *_, kind, _, ranks, inside = entry
    groups = _groups(inside, ranks_per_node)
    return kernels.contention(rates, _KINDS.get(kind, "broadcast"), ranks, max(inside, 1), groups_per_node=groups)


def link(entry: Sequence[Any], rates: Rates) -> str:
    """What bounds a collective: what joins the nodes where it leaves one, else what joins the GPUs of a node."""
    *_, ranks, inside = entry
    return (rates.intra if ranks <= inside else rates.inter).kind


def _groups(inside: int, ranks_per_node: int) -> int:
    """How many groups of a node do the same at once."""
    return max(ranks_per_node // max(inside, 1), 1)


def host_seconds(size_bytes: int, new_bytes: int, rates: Rates, ranks_per_node: int, launcher: str) -> float:
    """How long the host's cores take for what an operator reads and writes, every rank of the node at once.

    Args:
        size_bytes: What is read and written.
        new_bytes: Of it, what is written to memory that the kernel gives anew.
        rates: The node.
        ranks_per_node: Ranks that share it.
        launcher: What started them.
    """
    moved = kernels.host_traffic_seconds(rates, size_bytes, ranks_per_node=ranks_per_node, launcher=launcher)
    return moved + kernels.new_memory_seconds(rates, new_bytes, ranks_per_node=ranks_per_node, launcher=launcher)


def adam_seconds(elements: int, size_bytes: int, rates: Rates, ranks_per_node: int, launcher: str) -> float:
    """How long CPU Adam takes, every rank of the node at once."""
    return kernels.cpu_adam_seconds(
        rates,
        elements,
        ranks_per_node=ranks_per_node,
        bytes_per_element=size_bytes / max(elements, 1),
        launcher=launcher,
    )


def sizes(entry: Sequence[Any]) -> str:
    """Of a product or attention, as `Interval.sizes` says them; empty of all else."""
    if entry[0] == "product":
        *_, m, n, k, batch, dtype = entry
        return f"{f'{batch} x ' if batch > 1 else ''}{m} x {n} x {k}, {dtype}"
    if entry[0] == "attention":
        _, _, _, _, _, batch, heads, _, queries, keys, head, _, _, dtype = entry
        return f"{round(batch, 1):g} x {heads} heads, {queries} x {keys} x {head}, {dtype}"
    return ""


def flops(entry: Sequence[Any]) -> float:
    """Of a product or attention; of attention only the pairs of positions that are seen, backward twice forward's."""
    if entry[0] == "product":
        *_, m, n, k, batch, _ = entry
        return float(2 * m * n * k * batch)
    if entry[0] != "attention":
        return 0.0
    *_, phase, batch, heads, _, queries, keys, head_size, _, window, _ = entry
    each: int = (_FORWARD if phase == "forward" else _BACKWARD) * batch * heads * head_size
    return each * _seen(queries, keys, window)  # beside a mask the kernel computes more, and no more is seen


def _seen(queries: int, keys: int, window: int) -> float:
    """Pairs of a query and a key that it sees; queries are the last positions."""
    reach = min(window, keys) if window else keys
    ahead = keys - queries  # what the first query sees besides itself
    ramp = max(0, min(queries, reach - ahead))  # queries that see all before them: ahead + 1 ... ahead + ramp keys
    return ramp * ahead + ramp * (ramp + 1) / 2 + float(queries - ramp) * reach
