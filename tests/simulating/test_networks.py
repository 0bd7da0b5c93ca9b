"""A simulation on another network: only its time differs, and what cannot be told is refused."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from timed import simulation, time_of

import dsgen
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Network
from dsgen.simulating import network_of, on_network


def network(name: str) -> Network:
    return network_of(dsgen.profile(name).layers)


def test_only_the_time_differs(tmp_path: Path) -> None:
    base = simulation(tmp_path)

    slow, same = (on_network(base, network(name)) for name in ("ethernet-25g", "ib-hdr-200g"))

    assert same == base
    assert time_of(slow).seconds > 2 * time_of(base).seconds
    assert attrs.evolve(slow, step_time=base.step_time) == base


def test_a_simulation_without_time_has_none_elsewhere(tmp_path: Path) -> None:
    without = attrs.evolve(simulation(tmp_path), step_time=None, program=None)

    with pytest.raises(DsgenError, match="has no time"):
        on_network(without, network("ethernet-25g"))


def test_one_node_has_no_network(tmp_path: Path) -> None:
    alone = attrs.evolve(simulation(tmp_path), world_size=8)

    with pytest.raises(DsgenError, match="all 8 GPUs are in one node"):
        on_network(alone, network("ethernet-25g"))
    with pytest.raises(DsgenError, match="fabric is none"):
        on_network(simulation(tmp_path), network("single-node"))
