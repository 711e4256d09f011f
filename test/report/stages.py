"""A timeline of a model in two stages, for tests."""

from __future__ import annotations

from timely_llm.core.step import StageTimes
from timely_llm.report.timeline import Bar, EngineStep, Lane, Timeline

BLOCKING = StageTimes((0.0, 0.3), (0.2, 0.3), (0.1,), (0.1, 0.1), (0.0, 0.2))
OVERLAPPING = BLOCKING._replace(blocked_s=(0.0, 0.0))


def in_stages(times: StageTimes = BLOCKING) -> Timeline:
    """Return two steps, the second of which follows the first through the stages."""
    bars = (
        Bar("waiting", "urgent", 0.0, 0.6, "a"),
        Bar("generating", "urgent", 0.0, 0.6, "a"),
        Bar("executing", "urgent", 0.6, 1.0, "a", "mf(1)"),
    )
    steps = tuple(EngineStep(at_s, at_s + 0.6, 1, stages=times) for at_s in (0.0, 0.3))
    return Timeline("t", (Lane("robot_0", bars),), steps, (0.0, 1.0))
