"""Which batches of a layout fit: as its estimate says of each, and the same from some pass of a step on."""

from __future__ import annotations

import pytest

from dsgen.memory import Verdict, estimate, fits, parts, resident_bytes, room, sequence_bytes
from dsgen.memory.fits import Fits, _passes
from dsgen.strategies.buffers import choose
from dsgen.strategies.strategies import Layout, Rejection, batches, layouts, strategy


def tried(job):
    """Every layout that a search tries, with its buffers."""
    for item in layouts(job):
        if isinstance(item, Layout):
            yield item, choose(job, item.stage, item.tp, item.offload_optimizer, item.offload_param)


@pytest.mark.parametrize(
    ("hardware", "model", "facts"),
    [
        ("a100-40g", "7b", {}),
        ("a100-40g", "70b", {}),
        ("l4-24g", "13b", {"training.global_batch": 512}),
        ("h100-80g", "mixtral-8x7b", {"training.method": "lora"}),
        ("a100-80g", "7b", {"deepspeed.data_types.grad_accum_dtype": "fp32"}),
    ],
)
def test_a_batch_surely_fits_whose_estimate_does(make_job, hardware, model, facts):
    job = make_job(hardware, model, **facts)
    answers = set()

    for layout, buffers in tried(job):
        triples = batches(job, layout)
        fit = fits(job, layout, buffers, triples, room(job, layout, buffers))
        estimates = [estimate(job, strategy(layout, triple, buffers)) for triple in triples]
        answers.add(type(fit))
        if isinstance(fit, Rejection):
            places = {name: getattr(estimates[-1], name) for name in ("gpu", "host", "nvme")}
            lacks = {name: place.least_bytes - place.limit_bytes for name, place in places.items()}
            assert fit.place == next(name for name, lack in lacks.items() if lack > 0)
            assert fit.missing_bytes == lacks[fit.place]
            assert fit.layout == layout
        else:
            assert fit.sure == tuple(i for i, one in enumerate(estimates) if one.verdict is Verdict.FITS)
            assert [fit.parts(steps).peak(micro) for micro, steps, _ in triples] == [
                one.gpu.peak_bytes for one in estimates
            ]

    assert answers == {Fits, Rejection}


@pytest.mark.parametrize(
    ("model", "facts"), [("7b", {}), ("qwen2.5-1.5b", {}), ("mixtral-8x7b", {}), ("7b", {"training.method": "lora"})]
)
def test_memory_is_the_same_from_some_pass_of_a_step_on(make_job, model, facts):
    """So a layout is weighed at no more passes than these."""
    job = make_job("a100-80g", model, **facts)

    def held(layout, buffers, passes):
        counted = parts(job, layout, buffers, passes)
        return counted.peak(1), counted.peak(4), counted.host

    every = list(tried(job))
    assert every
    for layout, buffers in every:
        passes = _passes(job, layout)
        assert held(layout, buffers, passes) == held(layout, buffers, passes + 1) == held(layout, buffers, 8)


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("said", [{}, {"training.chunked_loss": True}, {"training.attention": "eager"}])
@pytest.mark.parametrize(
    "model", ["7b", "gemma-2-2b", "qwen2.5-0.5b", "mixtral-8x7b", "gpt2", "falcon-7b", "gpt-j-6b", "qwen3-30b-a3b"]
)
def test_what_is_soon_known_is_no_more_than_the_peak(make_job, model, method, said):
    """A search leaves out what cannot fit by states and activations alone, before it knows what stage 3 gathers."""
    job = make_job("a100-80g", model, **{"training.method": method, **said})
    seen = set()

    for layout, buffers in tried(job):
        held, each = resident_bytes(job, layout, buffers), sequence_bytes(job, layout)
        triples = batches(job, layout)
        for micro, steps, _ in () if isinstance(triples, str) else triples:
            seen.add(layout.stage)
            assert 0 < held + each * micro <= parts(job, layout, buffers, steps).peak(micro), (layout, micro)

    assert seen == {0, 1, 2, 3}
