"""The simulated engine in stages: stages and links are FIFO resources."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.core.clock import VirtualClock
from timely_llm.core.errors import EngineError
from timely_llm.core.step import StepPlan
from timely_llm.engines.pipelined import Pipeline, PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import AdmittedSequence, EngineLimits
from timely_llm.engines.simulated import Profile, SimulatedEngine

SECOND = Profile("second", "made up", 1.0, 0.0, 0.0)
ROWS = Profile("rows", "made up", 1.0, 0.5, 0.0)  # prompts are free: each is a row
HALF = StageLink(0.5, 0.0)


def profile(
    *stages: Profile, link: StageLink = HALF, blocking: bool = True, kv: tuple[int, ...] = ()
) -> PipelineProfile:
    return PipelineProfile("made", "up", stages, (link,) * (len(stages) - 1), blocking, kv)


def engine(made: PipelineProfile, micro_batches: int | None = None) -> PipelinedEngine:
    return PipelinedEngine(made, lambda key, _: "so " * 9, VirtualClock(), None, micro_batches)


@pytest.mark.parametrize(
    ("blocking", "second_s", "ends"),
    [
        (True, 1.0, [2.5, 4.0, 5.5]),
        (False, 1.0, [2.5, 3.5, 4.5]),
        (True, 3.0, [4.5, 8.0, 11.5]),
        (False, 3.0, [4.5, 7.5, 10.5]),
        (True, 0.25, [1.75, 3.25, 4.75]),
        (False, 0.25, [1.75, 2.75, 3.75]),
    ],
)
def test_steps_pass_two_stages_and_the_link_between_them_in_order(
    blocking: bool, second_s: float, ends: list[float]
) -> None:
    pipeline = Pipeline(2, blocking)
    passed = [pipeline.enter(0.0, [1.0, second_s], [0.5]) for _ in ends]
    assert [one.ended_s for one in passed] == ends


def test_both_ends_of_a_blocking_transfer_meet() -> None:
    pipeline = Pipeline(2, blocking=True)
    pipeline.enter(0.0, [1.0, 3.0], [0.5])
    times = pipeline.enter(0.0, [1.0, 3.0], [0.5]).times
    # The first stage has computed at 2.5, and waits until the second one is free at 4.5.
    assert times.begins_s == (1.5, 5.0)
    assert times.blocked_s == (0.5, 0.5)
    assert times.idle_s == (2.0, 0.0)


def test_an_overlapping_transfer_keeps_no_stage_from_computing() -> None:
    pipeline = Pipeline(2, blocking=False)
    pipeline.enter(0.0, [1.0, 0.25], [2.0])
    times = pipeline.enter(0.0, [1.0, 0.25], [2.0]).times
    assert times.begins_s == (1.0, 5.0)  # the link sends the first one until 3, this one until 5
    assert times.blocked_s == (0.0, 0.0)
    assert times.idle_s == (0.0, 1.75)


_seconds = st.floats(0.0, 3.0)


@given(st.data())
@examples(60)
def test_computing_transfers_and_idle_times_add_up_to_the_time_of_each_stage(
    data: st.DataObject,
) -> None:
    stages, blocking = data.draw(st.integers(1, 5)), data.draw(st.booleans())
    now = first_s = data.draw(_seconds)  # the time before the first step is no idle time
    pipeline = Pipeline(stages, blocking)
    spent_s, ended_s = [0.0] * stages, 0.0
    for step in range(data.draw(st.integers(1, 12))):
        now += data.draw(_seconds) if step else 0.0
        stage_s = data.draw(st.lists(_seconds, min_size=stages, max_size=stages))
        link_s = data.draw(st.lists(_seconds, min_size=stages - 1, max_size=stages - 1))
        passage = pipeline.enter(now, stage_s, link_s)
        begins_s, computing_s, links_s, blocked_s, idle_s = passage.times
        assert (computing_s, links_s) == (tuple(stage_s), tuple(link_s))
        assert min(idle_s) >= -1e-9
        assert passage.ended_s >= max(ended_s, now + sum(stage_s) + sum(link_s) - 1e-9)
        ended_s = passage.ended_s
        for stage in range(stages):
            spent_s[stage] += computing_s[stage] + blocked_s[stage] + idle_s[stage]
            free_s = now + begins_s[stage] + computing_s[stage]
            if blocking and stage < stages - 1:
                free_s = now + begins_s[stage + 1]  # the transfer has kept it until then
            assert spent_s[stage] == pytest.approx(free_s - first_s)


def test_a_lone_step_takes_all_stages_and_links() -> None:
    made = engine(profile(SECOND, ROWS, SECOND, link=StageLink(0.5, 0.25)))
    made.add("a", [1, 2, 3])
    made.submit(StepPlan((("a", 3),)))
    result = made.collect()
    # One row in the middle, and links of 0.5 s + 3 tokens of 0.25 s.
    assert result.duration_s == made._clock.now() == 1.0 + 1.5 + 1.0 + 2 * 1.25
    assert result.stages is not None
    assert result.stages.stage_s == (1.0, 1.5, 1.0)
    assert result.stages.link_s == (1.25, 1.25)


def test_tokens_come_in_order_while_later_steps_are_under_way() -> None:
    made = engine(profile(SECOND, SECOND), micro_batches=3)
    for key in "abc":
        made.add(key, [1, 2])
        made.submit(StepPlan(((key, 2),)))
    came = []
    for key in "abc":
        result = made.collect()
        assert list(result.tokens) == [key]
        came.append((made._clock.now(), result.duration_s))
    assert came == [(2.5, 2.5), (4.0, 4.0), (5.5, 5.5)]


def test_a_step_that_has_ended_is_collected_at_once() -> None:
    made = engine(profile(SECOND, SECOND))
    made.add("a", [1, 2])
    made.submit(StepPlan((("a", 2),)))
    clock = made._clock
    assert isinstance(clock, VirtualClock)
    clock.advance(60.0)
    assert made.collect().duration_s == 2.5
    assert clock.now() == 60.0


@pytest.mark.parametrize("one", [SECOND, ROWS])
def test_one_stage_takes_as_long_as_the_engine_without_stages(one: Profile) -> None:
    took = []
    for made in (
        engine(profile(one)),
        SimulatedEngine(one, lambda key, _: "so " * 9, VirtualClock()),
    ):
        made.add("a", [1, 2, 3])
        made.add("b", [4, 5])
        durations = []
        for plan in ((("a", 3),), (("a", 1), ("b", 2)), (("a", 1), ("b", 1))):
            made.submit(StepPlan(plan))
            durations.append(made.collect().duration_s)
        took.append((durations, made.in_flight, made.capacity))
    assert took[0] == took[1]


def test_the_stage_with_the_least_memory_limits_the_kv() -> None:
    made = engine(profile(SECOND, SECOND, SECOND, kv=(90, 60, 70)))
    assert made.capacity.free_tokens == 60
    limits = EngineLimits(kv_tokens=50)
    assert profile(SECOND, SECOND, kv=(90, 60)).within(limits).kv_tokens == 50


def test_the_capacity_names_stages_and_micro_batches() -> None:
    capacity = engine(profile(SECOND, SECOND), micro_batches=5).capacity
    assert (capacity.stages, capacity.micro_batches, capacity.steps_in_flight) == (2, 5, 0)


def test_an_engine_takes_as_many_steps_as_it_has_stages() -> None:
    assert engine(profile(SECOND, SECOND, SECOND)).in_flight == 3
    with pytest.raises(EngineError, match=r"micro_batches must be at least .* 3, not 2"):
        engine(profile(SECOND, SECOND, SECOND), micro_batches=2)


def test_a_profile_needs_a_link_between_each_two_stages() -> None:
    with pytest.raises(EngineError, match="2 stages and 0 links"):
        PipelineProfile("made", "up", (SECOND, SECOND), ())
    with pytest.raises(EngineError, match="KV limits of 1 stages, not of 2"):
        profile(SECOND, SECOND, kv=(90,))


def test_without_a_step_there_is_nothing_to_collect() -> None:
    with pytest.raises(EngineError, match="no step to collect"):
        engine(profile(SECOND, SECOND)).collect()


class FailsOnce(PipelinedEngine):
    """Fails to compute its first step."""

    failed = False

    def compute(self, parts: Sequence[AdmittedSequence]) -> dict[str, tuple[int]]:
        if not self.failed:
            self.failed = True
            raise EngineError("out of memory")
        return super().compute(parts)


def test_after_a_step_that_failed_each_step_has_its_own_times() -> None:
    made = FailsOnce(profile(SECOND, SECOND), lambda key, _: "so " * 9, VirtualClock())
    for key, prompt in (("a", [1, 2]), ("b", [1, 2, 3])):
        made.add(key, prompt)
        made.submit(StepPlan(((key, len(prompt)),)))
    with pytest.raises(EngineError, match="out of memory"):
        made.collect()
    assert made.collect().duration_s == 4.0
    assert not made._passages


def test_a_sequence_that_is_removed_in_flight_brings_no_token_and_frees_its_kv() -> None:
    made = engine(profile(SECOND, SECOND), micro_batches=2)
    free = made.capacity.free_tokens
    for key in "ab":
        made.add(key, [1, 2])
        made.submit(StepPlan(((key, 2),)))
    made.remove("a")
    assert not made.collect().tokens
    assert list(made.collect().tokens) == ["b"]
    made.remove("b")
    assert made.capacity.free_tokens == free
