"""The cost of a row, which no paper states."""

from pathlib import Path

from test.experiments.bursts import bursts_file
from timely_llm.experiments.catalog.row.cost import EXPERIMENT, ROWS_MS
from timely_llm.experiments.catalog.timelyllm.drone import EXPERIMENT as DRONE


def quiet(done: int, total: int) -> None:
    pass


def test_dearer_rows_make_every_answer_later_and_the_first_are_the_profile_s(
    tmp_path: Path,
) -> None:
    given = {"trace": bursts_file(tmp_path), "seeds": 1, "jobs": 1, "policies": ("fcfs", "timely")}
    run = EXPERIMENT.run(EXPERIMENT.options(**given), quiet)
    plain = DRONE.run(DRONE.options(**given, network_s=0.001), quiet)
    for policy in ("fcfs", "timely"):
        rows = [row for row in run.rows if row["policy"] == policy]
        assert [row["row_ms"] for row in rows] == list(ROWS_MS)
        waiting_s = [float(row["waiting_s"] or 0) for row in rows]
        assert waiting_s == sorted(set(waiting_s))
        (known,) = (row for row in plain.rows if row["policy"] == policy and row["load"] == 1)
        assert rows[0]["waiting_s"] == known["waiting_s"]
