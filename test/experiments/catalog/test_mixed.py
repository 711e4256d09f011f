from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.catalog.mixed import TALKS, with_talks
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.experiments.sources import composed
from timely_llm.experiments.virtual.slice_workload import LengthRange
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import render
from timely_llm.traces.model import Trace


def quiet(done: int, total: int) -> None:
    pass


def run(file: Path, **options: object) -> RunDocument:
    found = experiment("mixed")
    return found.run(found.options(trace=file, jobs=1, seeds=1, **options), quiet)


def of(made: RunDocument, **setting: object) -> Row:
    (row,) = (row for row in made.rows if all(row[key] == setting[key] for key in setting))
    return row


def test_plans_and_conversations_are_measured_side_by_side(tmp_path: Path) -> None:
    file = bursts_file(tmp_path)
    options = {"policies": ("fcfs", "timely"), "rates": (0.0, 1.0), "loads": (1, 2)}
    made = run(file, **options)
    assert [(row["load"], row["rate"], row["policy"]) for row in made.rows] == [
        (load, rate, policy)
        for load in (1, 2)
        for rate in (0.0, 1.0)
        for policy in ("fcfs", "timely")
    ]
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
    assert set(made.measures) <= made.definitions.keys()
    assert made.definitions["share_served"] != made.definitions["share_answered"]
    assert made == run(file, **options), "the same each time"
    assert "mixed" in render([LoadedRun.of(made)])


def test_without_conversations_plans_get_what_they_get_alone(tmp_path: Path) -> None:
    file = bursts_file(tmp_path)
    made = run(file, policies=("timely",), rates=(0.0,), loads=(1,))
    drone = experiment("timelyllm-drone")
    alone = drone.run(
        drone.options(
            trace=file, jobs=1, seeds=1, policies=("timely",), loads=(1,), network_s=0.001
        ),
        quiet,
    )
    ours, theirs = of(made, policy="timely"), of(alone, policy="timely")
    assert ours["conversations"] == 0
    assert ours["attainment"] is None
    assert {name: ours[name] for name in ("utility", "waiting_s", "share_served")} == {
        name: theirs[name] for name in ("utility", "waiting_s", "share_served")
    }


def test_people_ask_as_long_as_robots_do() -> None:
    drones = composed("wid2", 0)
    made = with_talks(drones, 1.0, seed=0)
    assert made.jobs == drones.jobs
    first_s, last_s = drones.jobs[0].arrival_s, drones.jobs[-1].arrival_s
    arrivals_s = [talk.arrival_s for talk in made.conversations]
    assert first_s < min(arrivals_s) and max(arrivals_s) <= last_s
    assert len(arrivals_s) == pytest.approx(last_s - first_s, rel=0.2)
    assert not any(talk.deadline_s < 1e9 for talk in made.conversations)
    assert with_talks(drones, 0.0, seed=0).conversations == ()
    assert with_talks(made, 0.0, seed=0) == drones, "conversations of its own are left out"
    with pytest.raises(ExperimentError, match="quiet has no plans"):
        with_talks(Trace("quiet", "", (), made.conversations), 1.0, seed=0)


def test_answers_have_the_lengths_that_were_asked_for() -> None:
    drones, given = composed("wid2", 0), LengthRange.parse("8-25:10-30")
    short, usual = (with_talks(drones, 1.0, 0, lengths) for lengths in (given, TALKS))
    tokens = [talk.output_tokens for talk in short.conversations]
    assert 10 <= min(tokens) < 15 and 25 < max(tokens) <= 30
    assert [talk.arrival_s for talk in short.conversations] == [
        talk.arrival_s for talk in usual.conversations
    ]


@pytest.mark.parametrize("lengths", [(), ("8-25:10-30", "8-25:40-160")])
def test_there_is_one_range_of_lengths(lengths: tuple[str, ...]) -> None:
    options = experiment("mixed").options(lengths=lengths, seeds=1, jobs=1)
    with pytest.raises(ExperimentError, match="mixed has one range of lengths, like 8-25:40-160"):
        experiment("mixed").run(options, lambda done, total: pytest.fail("it runs"))
