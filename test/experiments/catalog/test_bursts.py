from collections import Counter
from pathlib import Path

import pytest

from test.experiments.bursts import bursts_file
from timely_llm.experiments.catalog.bursts import EVERY_S, with_bursts
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.sources import composed
from timely_llm.traces.model import Trace


def test_a_burst_begins_at_once_and_the_first_one_with_the_robots() -> None:
    drones = composed("wid2", 0)
    made = with_bursts(drones, 7, seed=0)
    assert made.jobs == drones.jobs
    first_s, last_s = drones.jobs[0].arrival_s, drones.jobs[-1].arrival_s
    asked = Counter(talk.arrival_s for talk in made.conversations)
    assert sorted(asked) == pytest.approx([first_s + EVERY_S * n for n in range(len(asked))])
    assert last_s - EVERY_S < max(asked) <= last_s
    assert set(asked.values()) == {7}
    assert len({talk.id for talk in made.conversations}) == len(made.conversations)
    with pytest.raises(ExperimentError, match="quiet has no plans"):
        with_bursts(Trace("quiet", "", (), made.conversations), 7, seed=0)


def test_a_larger_burst_waits_longer_for_its_first_tokens(tmp_path: Path) -> None:
    found = experiment("bursts")
    options = found.options(
        trace=bursts_file(tmp_path), policies=("fcfs", "timely"), sizes=(2, 30), seeds=1, jobs=1
    )
    made = found.run(options, lambda done, total: None)
    assert [(row["size"], row["policy"]) for row in made.rows] == [
        (size, policy) for size in (2, 30) for policy in ("fcfs", "timely")
    ]
    waits = {(row["size"], row["policy"]): float(row["ttft_p95_s"] or 0) for row in made.rows}
    assert all(waits[2, policy] < waits[30, policy] for policy in ("fcfs", "timely"))
    assert set(made.keys) | set(made.measures) <= made.rows[0].keys()
