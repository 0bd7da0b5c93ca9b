"""A simulation with another network between its nodes: what the engine did is timed again, and not done again."""

from __future__ import annotations

import attrs

from dsgen.kernels import rates
from dsgen.shapes.errors import mistake
from dsgen.shapes.profiles import Network
from dsgen.simulating.replay import replay
from dsgen.simulating.simulation import Simulation

__all__ = ["check_network", "on_network"]


def on_network(simulation: Simulation, network: Network) -> Simulation:
    """The simulation as it would be with another network: its time differs, its memory does not.

    Raises:
        DsgenError: It has no time, all its GPUs are in one node, or the network joins none.
    """
    check_network(network, simulation.world_size, simulation.ranks_per_node)
    if simulation.program is None or simulation.hardware is None:
        raise mistake(
            "the simulation has no time",
            must="hardware and network must be known",
            todo="Simulate it with both: --hw a100-40g --network ib-hdr-200g.",
            code="missing",
        )
    told = rates(simulation.hardware, network)
    timed = replay(
        simulation.program,
        told,
        ranks_per_node=simulation.ranks_per_node,
        stage=simulation.engine["stage"],
        launcher=simulation.launcher,
        kernel=simulation.kernel,
    )
    return attrs.evolve(simulation, step_time=timed)


def check_network(network: Network, world_size: int, ranks_per_node: int) -> None:
    """Say where a network tells nothing of a simulation.

    Raises:
        DsgenError: All GPUs are in one node, or the network joins no nodes.
    """
    if network.fabric == "none":
        raise mistake(
            "the network's fabric is none",
            must=f"it must join the nodes of {world_size} GPUs",
            todo="dsgen profiles list network shows what there is.",
            code="contradiction",
        )
    if world_size <= ranks_per_node:
        raise mistake(
            f"all {world_size} GPUs are in one node",
            must="another network makes a difference between nodes only",
            todo="Take more GPUs: --gpus.",
            code="contradiction",
        )
