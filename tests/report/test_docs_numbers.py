"""Numbers that prose repeats are those of the page that a benchmark writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def prose(name: str) -> str:
    """A file's words with one blank between them, and no signs of comments."""
    return " ".join(re.sub(r"(?m)^# ", "", (REPOSITORY / name).read_text("utf-8")).split())


def only(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of the one place where a pattern stands."""
    places = re.findall(pattern, text)
    assert len(places) == 1, (pattern, places)
    return places[0] if isinstance(places[0], tuple) else (places[0],)


def test_the_scenarios_of_what_is_reserved_are_as_many_everywhere() -> None:
    page = prose("docs/reserved.md")
    (count,) = only(r"simulates (\d+) scenarios", page)
    grows = only(r"with expandable segments, which is enough in (\d+) of (\d+) scenarios", page)
    usual = only(r"default settings, enough in (\d+) of (\d+)", page)
    memory = prose("docs/memory.md")

    assert only(r"holds all that a run needs in (\d+) of (\d+) replayed scenarios", memory) == grows
    assert only(r"up to [\d.]+ times, enough in (\d+) of (\d+)", memory) == usual
    assert only(r"\[Reserved\]\(reserved\.md\) has (\d+) scenarios", prose("docs/simulate.md")) == (count,)
    assert only(r"\[(\d+) scenarios\]\(docs/reserved\.md\)", prose("README.md")) == (count,)
    assert only(r"\(reserved\.md\)[^.]* in (\d+) scenarios", prose("docs/index.md")) == (count,)
    constants = prose("dsgen/memory/estimates.py")
    assert only(r"With expandable segments (\d+) replayed scenarios", constants) == (count,)
    assert only(r"do not grow: (\d+) of these scenarios need no more", constants) == usual[:1]


def test_the_snapshots_that_the_allocator_is_held_against_are_those_recorded() -> None:
    record = json.loads((REPOSITORY / "benchmarks" / "snapshots.json").read_text("utf-8"))
    alike = [row for row in record if row["differences"] == 0]
    counts = f"{len(alike)}", f"{sum(row['events'] for row in alike):,}", f"{sum(row['requests'] for row in alike):,}"
    page = prose("docs/reserved.md")

    assert all(not row["differences"] for row in record)
    assert only(r"plays (\d+) of them into the port", page) == (f"{len(record)}",)
    assert only(r"In (\d+) all of it is so: ([\d,]+) events, ([\d,]+) of them requests", page) == counts
    assert only(r"says what came of (\d+) of them", prose("benchmarks/data/README.md")) == (f"{len(record)}",)


def test_the_errors_against_real_cards_stand_on_their_own_pages_alone() -> None:
    memory, published = prose("docs/memory.md"), prose("docs/published.md")

    assert only(r"stands in two places: \[published\.md\]\((\S+)\)", memory) == ("published.md",)
    assert not re.findall(r"[\d.]+ % (?:off|too low) in", memory)
    for meaning in ("allocated", "reserved", "the whole process, as nvidia-smi shows it", "not stated"):
        only(rf"\| {meaning} \| (\d+) \| [-+\d.]+ % \| ([\d.]+) % \|", published)


def test_what_readme_says_is_proven_is_what_was_recorded() -> None:
    """The record itself is held against the matrix by tests/proving/test_every_cell.py."""
    record = json.loads((REPOSITORY / "benchmarks" / "every_cell.json").read_text("utf-8"))
    readme = prose("README.md")

    assert only(r"rendered for ([\d,]+) cells of hardware", readme) == (f"{record['cells']:,}",)
    assert only(r"cluster \(([\d,]+) configs\)", readme) == (f"{record['configs']:,}",)
    assert only(r"share one of ([\d,]+) starts", readme) == (f"{record['starts']:,}",)
    assert only(r"all of their (\d+) structures train", readme) == (f"{record['structures']}",)


def test_what_readme_says_of_the_linter_is_what_was_judged() -> None:
    page, readme = prose("docs/agreement.md"), prose("README.md")
    configs = re.findall(r"(?:refused|taken) by DeepSpeed: [^|]*\| (\d+) \| (\d+) \|", page)
    rows = r"\| (?:stops at parse|does otherwise|does what it says|a matter of taste)[^|]*\| (\d+) \| (\d+) \|"
    probes = re.findall(rows, page)

    assert (len(configs), len(probes)) == (2, 4)
    assert all(judged == alike for judged, alike in (*configs, *probes))
    counts = tuple(str(sum(int(judged) for judged, _ in table)) for table in (configs, probes))
    assert only(r"Of (\d+) public configs and (\d+) probes", readme) == counts


def test_the_runs_of_a_lent_card_are_those_of_its_page() -> None:
    counts = only(r"cases, (\d+) compared: allocated within 2% in (\d+) \(worst [-+]([\d.]+)%\)", prose("docs/gpu.md"))
    readme = prose("README.md")
    error, runs, compared = only(r"within ([\d.]+) % in (\d+) of (\d+) runs", readme)
    assert (compared, runs, error) == counts
    tried = json.loads((REPOSITORY / "benchmarks" / "gpu_memory_limits.json").read_text("utf-8"))
    each = [{one["share"]: one["ran"] for one in record["measured"]} for record in tried.values()]
    went = sum(one[1.01] for one in each), len(each), sum(not one[0.99] for one in each), len(each)
    said = only(r"least memory (\d+) of (\d+) runs went through, held to 1 % less (\d+) of (\d+) died", readme)
    assert said == tuple(map(str, went))
