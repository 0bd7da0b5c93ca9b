"""The network between nodes where nobody names one, and the one that nodes of a GPU usually have."""

from __future__ import annotations

from typing import Any

import pytest

import dsgen
from dsgen.asking.plan_questions.offers import offers
from dsgen.jobs import fabrics
from dsgen.planning.planner import plan
from dsgen.report import plan as plan_report
from dsgen.report import summary


def job(hardware: str, **said: Any) -> dsgen.Job:
    return dsgen.job({"hw": hardware, "model": "llama-3.1-70b", "nodes": 4, **said})


@pytest.mark.parametrize(
    ("hardware", "name"),
    [
        ("a100-80g", "ib-hdr-1600g"),
        ("h100-80g", "ib-ndr-3200g"),
        ("h200-141g", "ib-ndr-3200g"),
        ("b200-180g", "ib-ndr-3200g"),
        ("mi300x-192g", "roce-3200g"),
        ("l40s-48g", "ib-hdr-200g"),
        ("v100-32g", "ib-hdr-200g"),
        ("rtx4090-24g", "ib-hdr-200g"),
    ],
)
def test_nodes_have_the_network_of_their_vendors_own_system(hardware: str, name: str) -> None:
    said, words = fabrics.reference(dsgen.job({"hw": hardware, "model": "7b"}).hardware)

    assert said == name
    assert (
        fabrics.named(name).bandwidth_bytes_per_second
        > fabrics.named(fabrics.ASSUMED_NETWORK).bandwidth_bytes_per_second
    )
    assert "adapter" in words


def test_only_what_nobody_named_is_assumed() -> None:
    unnamed, named = job("h100-80g"), job("h100-80g", network="ethernet-25g")

    assert fabrics.assumes(unnamed)
    assert not fabrics.assumes(named)
    assert not fabrics.assumes(dsgen.job({"hw": "h100-80g", "model": "7b"}))
    assert unnamed.network == named.network
    assert fabrics.joined(unnamed, "ethernet-25g").warnings == named.warnings


def test_the_warning_follows_the_number_of_nodes() -> None:
    said = ("another", fabrics.assumed(4))

    assert fabrics.counted_anew(said, 4, 2) == ("another", fabrics.assumed(2))
    assert fabrics.counted_anew(said, 4, 1) == ("another",)


def test_what_the_usual_network_changes_is_the_first_thing_offered() -> None:
    """A 70B on four nodes of H100 is another plan there, several times as fast; a named network is left alone."""
    asked, named = plan(job("h100-80g")), plan(job("h100-80g", network="ethernet-25g"))
    first = offers(asked)[0]
    alone = plan(job("h100-80g", network="ib-ndr-3200g")).chosen

    assert first.change.option == "--network ib-ndr-3200g"
    assert (first.chosen.strategy, first.chosen.speed) == (alone.strategy, alone.speed)
    assert first.gain > 4
    assert not [one for one in offers(named) if one.change.field == "network"]
    assert [one.change.option for one in offers(asked)[1:]] == [one.change.option for one in offers(named)]


def test_every_screen_says_that_a_network_is_assumed() -> None:
    asked, named = (dsgen.render(job("a100-80g", **more)) for more in ({}, {"network": "ethernet-25g"}))

    assert "over ethernet-25g (assumed), 4096 tokens" in plan_report.job_line(asked.plan.job)
    assert "over ethernet-25g, 4096 tokens" in plan_report.job_line(named.plan.job)
    told, other = (" ".join(summary.text(one).split()) for one in (asked, named))
    assert "4 nodes over ethernet-25g (assumed)" in told
    assert (
        "with --network ib-hdr-1600g (if your nodes have an adapter of 200 Gb/s for each GPU, as a DGX A100 has)"
        in told
    )
    assert "--network" not in other
