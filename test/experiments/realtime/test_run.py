"""The real engine in real time, and the same words in virtual time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.engines.simulated import PROFILES
from timely_llm.experiments.catalog.timelyllm.drone import EXPERIMENT
from timely_llm.experiments.contract import Experiment, ExperimentError, RealTimeOptions
from timely_llm.experiments.realtime.run import run
from timely_llm.experiments.realtime.serve import PLAN_TOKENS, again, fitted, serve
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.experiments.virtual.workload import JobInstance
from timely_llm.policies.fcfs import Fcfs, Stream
from timely_llm.resources import resource
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Conversation, Job, Trace

OPEN = SimulationSettings(profile=PROFILES["millisecond"], reports=False, skip=0)
TEXTS = (
    "Scene: [sofa, lamp]\nTask: [A] Where is the cat? Fly to it if you find it.",
    "Scene: [bed]\nTask: [A] Go up 50 cm.",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = make_engine("transformers", model=resource("models/tiny_planner"))
    yield made
    made.close()


def jobs(number: int, gap_s: float = 0.05) -> tuple[Job, ...]:
    return tuple(
        Job(f"j{i}", 3.0 + gap_s * i, f"r{i}", str(i % 2), "drone", TEXTS[i % 2],
            URGENT if i % 2 else NORMAL)
        for i in range(number)
    )  # fmt: skip


def asked(number: int) -> list[JobInstance]:
    return workload.asked(Trace("asked", jobs=jobs(number)), skip=0)


DRONE = {"drone": shipped_skill_sets()["drone"]}


def test_robots_get_what_the_model_says_in_real_time(engine: Engine) -> None:
    output = serve(asked(4), DRONE, engine, Stream(), OPEN)
    one, _, *rest = output.run.outcomes
    assert all(outcome.finished for outcome in output.run.outcomes)
    assert len(one.segments) == len(one.work.parts) > 1
    for outcome in output.run.outcomes:
        assert 0.0 < outcome.response_s < 60.0
        tokens = sum(part.tokens for part in outcome.work.parts)
        assert 0 < tokens <= PLAN_TOKENS
        for got, part in zip(outcome.segments, outcome.work.parts, strict=True):
            assert got.end_s - got.start_s == pytest.approx(part.true_s)
    assert [p.tokens for p in rest[0].work.parts] == [p.tokens for p in one.work.parts]
    assert output.shared_tokens > 300 > output.own_tokens > 5


def test_the_same_words_come_again_in_virtual_time(engine: Engine) -> None:
    output = serve(asked(3), DRONE, engine, Fcfs(), OPEN)
    virtual = again(output, Fcfs(), OPEN)
    assert [o.work for o in virtual.outcomes] == [o.work for o in output.run.outcomes]
    for real, simulated in zip(output.run.outcomes, virtual.outcomes, strict=True):
        assert len(real.segments) == len(simulated.segments)
        # A step of one millisecond is as short as none of the real engine's.
        assert simulated.response_s < real.response_s
    assert virtual == again(output, Fcfs(), OPEN)


TALKS = (
    Conversation("t0", 3.0, "ann", 30, 12),
    Conversation("t1", 3.1, "bob", 1, 20, text="Find the cat.", deadline_s=60.0),
)


def test_people_get_what_the_model_says_beside_robots(engine: Engine) -> None:
    output = serve(asked(2), DRONE, engine, Stream(), OPEN, conversations=TALKS)
    assert all(outcome.finished for outcome in output.run.outcomes)
    for talk, asked_ in zip(output.run.conversations, TALKS, strict=True):
        said = talk.conversation
        assert talk.finished and 0.0 < talk.ttft_s < 60.0
        assert 1 <= len(talk.times_s) == said.output_tokens <= asked_.output_tokens
        assert said.prompt_tokens > 5 and said.prompt_tokens != asked_.prompt_tokens
    virtual = again(output, Stream(), OPEN)
    assert [(t.conversation, len(t.times_s)) for t in virtual.conversations] == [
        (t.conversation, len(t.times_s)) for t in output.run.conversations
    ]


def test_conversations_alone_are_served(engine: Engine) -> None:
    output = serve([], {}, engine, Fcfs(), OPEN, conversations=TALKS)
    assert [talk.finished for talk in output.run.conversations] == [True, True]
    assert again(output, Fcfs(), OPEN).conversations[0].ttft_s < output.run.conversations[0].ttft_s


some: Experiment[RealTimeOptions] = Experiment(
    "some", "?", lambda options, progress: run(some, options, (), progress), RealTimeOptions()
)


def test_each_setting_has_a_row_of_both_engines(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    write_trace(Trace("small", jobs=jobs(14)), file)
    options = RealTimeOptions(
        policies=("stream",), seeds=1, engine="transformers", profile="millisecond", trace=file
    )
    told: list[tuple[int, int]] = []
    document = run(some, options, (), lambda done, total: told.append((done, total)))
    real, simulated = document.rows
    assert (real["engine"], simulated["engine"]) == ("transformers", "simulated")
    assert real["requests"] == simulated["requests"] == 9, "the first five do not count"
    assert real["share_served"] == simulated["share_served"] == 1.0
    assert float(real["step_s"] or 0) > float(simulated["step_s"] or 0) == pytest.approx(0.001)
    assert told[-1] == (14, 14)
    assert document.setup["seconds of each workload"] == 60.0


def test_rows_have_columns_of_conversations_too(tmp_path: Path) -> None:
    file = tmp_path / "talks.jsonl"
    write_trace(Trace("talks", conversations=TALKS), file)
    options = RealTimeOptions(
        policies=("stream",), seeds=1, engine="transformers", profile="millisecond", trace=file
    )
    document = run(some, options, (), lambda done, total: None)
    for row in document.rows:
        assert (row["conversations"], row["share_answered"], row["requests"]) == (2, 1.0, 0)
        assert row["rt_attainment"] == 1.0
    assert {"attainment", "ttft_p95_s"} <= set(document.measures) & document.definitions.keys()


def test_too_few_jobs_and_unknown_robots_are_refused(tmp_path: Path) -> None:
    options = RealTimeOptions(policies=("stream",), seeds=1, engine="transformers", seconds=5.0)
    few = tmp_path / "few.jsonl"
    write_trace(Trace("few", jobs=jobs(20, gap_s=2.0)), few)
    with pytest.raises(ExperimentError, match="ask for more seconds"):
        run(some, replace(options, trace=few), (), lambda done, total: None)
    foreign = tmp_path / "foreign.jsonl"
    strange = [replace(job, skill_set="submarine") for job in jobs(20)]
    write_trace(Trace("foreign", jobs=tuple(strange)), foreign)
    with pytest.raises(ExperimentError, match="cannot run in real time"):
        run(some, replace(options, trace=foreign), (), lambda done, total: None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (RealTimeOptions(noise=0.1), "leave out noise, or add scripted"),
        (RealTimeOptions(uncached=True), "in real time prompts are always cached"),
        (RealTimeOptions(durations="model"), "durations model is for virtual time"),
        (RealTimeOptions(uncached=True, scripted=True), "in real time prompts are always cached"),
    ],
)
def test_what_only_virtual_time_has_is_refused(options: RealTimeOptions, complaint: str) -> None:
    wanted = replace(options, policies=("stream",), engine="transformers")
    with pytest.raises(ExperimentError, match=complaint):
        run(some, wanted, ("wid1",), lambda done, total: None)


def test_the_workload_s_own_segments_are_served_at_the_engine_s_own_pace(tmp_path: Path) -> None:
    segments = (4, 9, 1)
    scripted = tuple(replace(job, segment_tokens=segments, text="") for job in jobs(14))
    file = tmp_path / "trace.jsonl"
    write_trace(Trace("small", jobs=scripted, conversations=TALKS[1:]), file)
    options = RealTimeOptions(
        policies=("stream",), seeds=1, engine="transformers", profile="millisecond", trace=file,
        scripted=True, own_pace=True, noise=0.1,
    )  # fmt: skip
    document = run(some, options, (), lambda done, total: None)
    real, simulated = document.rows
    for row in document.rows:
        assert (row["share_served"], row["share_answered"], row["requests"]) == (1.0, 1.0, 9)
    assert float(real["response_s"] or 0) > float(simulated["response_s"] or 0) > 0
    assert document.setup["pace"] == "the engine's own"


def test_prompts_are_as_long_as_the_engine_takes() -> None:
    most = OPEN.shared_tokens + OPEN.own_tokens + 30
    assert fitted(OPEN, most, 30) == fitted(OPEN, most + 1, 30) == OPEN
    assert fitted(OPEN, most - 7, 30).shared_tokens == OPEN.shared_tokens - 7
    with pytest.raises(ExperimentError, match="an answer of 30 tokens after a prompt of at least"):
        fitted(OPEN, 200, 30)


@pytest.mark.parametrize("option", [{"scripted": True}, {"model": "m"}, {"seconds": 9.0}])
def test_what_a_real_engine_needs_is_refused_without_one(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(ExperimentError, match=f"{name} is for a real engine: name one"):
        EXPERIMENT.options(**option)
    assert EXPERIMENT.options(engine="transformers", **option)


def test_a_conversation_that_no_server_takes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    write_trace(Trace("long", conversations=(Conversation("t", 0.0, "p", 5, 5000),)), file)
    options = RealTimeOptions(policies=("stream",), seeds=1, engine="transformers", trace=file)
    with pytest.raises(ExperimentError, match="'t' cannot run in real time: max_tokens must"):
        run(some, options, (), lambda done, total: None)
