"""The instant memory model against the simulation, for model types without a profile: every part in every phase.

Dense ones, mixtures of experts, and decoders behind an encoder.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import attrs
import pytest

from dsgen.asking.memory_questions.scenario_questions import refuse
from dsgen.families import FAMILIES
from dsgen.families.hf_config import model_from_hf, to_hf_config
from dsgen.families.parameters import model_types
from dsgen.memory.parts import parts
from dsgen.shapes.errors import DsgenError
from dsgen.shapes.profiles import Model
from dsgen.strategies.buffers import choose
from dsgen.strategies.strategies import Layout, layouts
from dsgen.strategies.wishes import check_wishes

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WITHIN = 1e-3  # of a simulated peak
# Group -> scenarios, those that offload, and module and name of the configs
GROUPS = {
    "OF_TYPES": (268, 2, "memory_types", "TYPES"),
    "OF_MIXTURES": (110, 20, "memory_types_mixtures", "MIXTURES"),
    "OF_ENCODERS": (60, 24, "memory_types_encoders", "ENCODERS"),
}
each = pytest.mark.parametrize("group", list(GROUPS))


@pytest.fixture(scope="module")
def benchmark():
    """benchmarks/memory_agreement.py."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("memory_agreement")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def compared(benchmark):
    return {group: benchmark.compared(getattr(benchmark, group)) for group in GROUPS}


@pytest.fixture(scope="module")
def more(benchmark):
    """benchmarks/memory_compared.py."""
    return importlib.import_module("memory_compared")


@each
def test_every_run_of_every_type_is_recorded_as_it_is_asked(benchmark, group):
    record = benchmark.read(getattr(benchmark, group))
    asked = list(getattr(benchmark, group.lower())())

    assert [row["name"] for row in record["cases"]] == [case.name for case in asked]
    assert [benchmark.facts(row) for row in record["cases"]] == [benchmark.attrs.asdict(case) for case in asked]
    assert set(record["versions"]) >= {"deepspeed", "torch", "transformers"}


@each
def test_types_are_sorted_known_and_written_as_they_are_read(benchmark, group):
    *_, module, name = GROUPS[group]
    types = getattr(importlib.import_module(module), name)

    assert list(types) == sorted(types)
    for name, config in types.items():
        facts = model_from_hf(config, name)
        assert facts["architecture"] == name.partition(" ")[0] in model_types()
        assert model_from_hf(to_hf_config(facts), name) == facts
        assert Model(**facts).layers <= 8  # a simulation of each takes seconds
        assert bool(Model(**facts).experts) is (group == "OF_MIXTURES")


@pytest.mark.parametrize("model_type", [name for name, family in FAMILIES.items() if family.autotp.refused])
def test_autotp_of_a_type_that_deepspeed_does_not_split_is_refused_and_never_proposed(benchmark, model_type):
    """Whatever the degree and the stage."""
    drawn = (*benchmark.cases(), *benchmark.of_types(), *benchmark.of_mixtures())
    job = next(
        case for case in drawn if case.options["method"] == "full" and case.job().model.architecture == model_type
    ).job()
    split = attrs.evolve(job, nodes=1, gpus_per_node=8, pins=())
    tried = [layout.tp for layout in layouts(split) if isinstance(layout, Layout)]

    assert set(tried) == {1}
    with pytest.raises(DsgenError, match=f"AutoTP (for|of) {model_type}"):
        refuse(split, attrs.evolve(layouts_at_2(split), tp=2))


def layouts_of(job):
    """Those that are not rejected."""
    return [layout for layout in layouts(job) if isinstance(layout, Layout)]


def layouts_at_2(job):
    """A layout of stage 2."""
    return next(layout for layout in layouts_of(job) if layout.stage == 2)


@pytest.mark.parametrize(
    ("layout", "training", "says"),
    [
        ({"stage": 3, "offload_param": "nvme"}, {}, "parameters on NVMe of mt5, a decoder behind an encoder"),
        ({"tp": 2}, {}, "AutoTP over 2 GPUs"),
        ({}, {"attention": "sdpa"}, "attention sdpa"),
        ({}, {"method": "qlora"}, "QLoRA of mt5"),
        ({}, {"optimizer": "Muon"}, "Muon of mt5"),
        ({}, {"method": "lora", "lora_targets": ("EncDecAttention.q",)}, "targets of adapters with a point"),
        ({}, {"chunked_loss": True}, "a chunked loss"),
    ],
)
def test_what_is_not_counted_of_a_model_with_an_encoder_is_refused_in_words(benchmark, layout, training, says):
    """It is simulated alone so far."""
    counted = next(iter(benchmark.of_encoders())).job()
    job = attrs.evolve(counted, training=attrs.evolve(counted.training, **training))
    asked = attrs.evolve(layouts_at_2(counted), **layout)

    with pytest.raises(DsgenError, match=rf"not counted: {says}(?s:.)*dsgen simulate"):
        parts(job, asked, choose(job, 2, 1), 1)
    if training:
        with pytest.raises(DsgenError, match=f"not counted: {says}"):
            check_wishes(job)
    else:
        check_wishes(job)


def test_adapters_of_a_model_with_an_encoder_at_stage_3_are_doubted(benchmark):
    """Simulated peaks lay 6 % below to 3 % above; the interval is as wide as where DeepSpeed itself is doubted."""
    job = next(iter(benchmark.of_encoders())).job()
    job = attrs.evolve(job, training=attrs.evolve(job.training, method="lora"))
    found = {layout.stage: parts(job, layout, choose(job, layout.stage, 1), 1) for layout in layouts_of(job)}

    assert {stage: one.doubted for stage, one in found.items()} == {0: False, 1: False, 2: False, 3: True}


@each
def test_every_peak_is_within_a_thousandth(compared, group):
    misses = {item.case.name: f"{item.error:+.2%}" for item in compared[group] if abs(item.error) > WITHIN}

    assert all(item.ours for item in compared[group])
    assert len(compared[group]) >= GROUPS[group][0]
    assert misses == {}


@each
def test_every_part_of_every_phase_is_close(compared, more, group):
    """Within a hundredth of the part, or a thousandth of the peak."""
    phases = ("load", "init", "forward", "backward", "step")
    apart = {
        (item.case.name, phase, one.part)
        for item in compared[group]
        for phase in phases
        for one in more.differences(item, phase)
        if not one.close
    }

    assert apart == set()


@each
def test_a_nodes_ram_is_what_its_ranks_hold_after_the_last_step(compared, more, group):
    offloading = {item.case.name: parts for item in compared[group] if (parts := more.differences_on_the_host(item))}

    assert len(offloading) >= GROUPS[group][1]
    assert {name for name, parts in offloading.items() if not all(one.close for one in parts)} == set()


@each
def test_intervals_cover_the_simulated_peaks(compared, group):
    outside = [
        item.case.name
        for item in compared[group]
        if item.ours and not item.ours.gpu.low_bytes <= item.simulated["peak"] <= item.ours.gpu.high_bytes
    ]

    assert outside == []
