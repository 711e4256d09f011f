from __future__ import annotations

import pytest

from timely_llm import msg
from timely_llm.ros.server.stats import merged


def stats(step_time: float, steps: int, *compute: float) -> msg.ServerStats:
    stages = [msg.StageUse(compute=share, idle=1.0 - share) for share in compute]
    return msg.ServerStats(
        steps=steps, step_time=step_time, response_p95=step_time, micro_batches=len(stages),
        stages=stages,
    )  # fmt: skip


def test_counts_are_added_and_times_are_means() -> None:
    made = merged([stats(0.1, 10), stats(0.4, 20)])
    assert (made.steps, made.response_p95) == (30, 0.4)
    assert made.step_time == pytest.approx(0.3)
    assert merged([]).steps == 0


def test_the_stages_of_servers_follow_each_other() -> None:
    made = merged([stats(0.1, 1, 0.5, 0.25), stats(0.1, 1), stats(0.1, 1, 0.75, 1.0)])
    assert [stage.compute for stage in made.stages] == [0.5, 0.25, 0.75, 1.0]
    assert made.micro_batches == 4
