from dataclasses import replace
from pathlib import Path

import pytest

from timely_llm.core.errors import EngineError
from timely_llm.experiments.catalog.timelyllm import chatbot as timelyllm_chatbot
from timely_llm.experiments.catalog.timelyllm.chatbot import (
    BY_READING,
    EXPERIMENT,
    LLAMA,
    PHI,
    SplitRule,
    stories,
)
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.results.document import RunDocument
from timely_llm.experiments.sources import SKIP
from timely_llm.traces.files import write_trace
from timely_llm.traces.model import Conversation, Trace


def quiet(done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def run() -> RunDocument:
    """What comes of the first stories of one seed on Phi 3."""

    def first(rule: SplitRule, seed: int, minutes: float | None, asked: Trace | None) -> Trace:
        trace = stories(rule, seed, minutes, asked)
        return replace(trace, jobs=trace.jobs[:40])

    options = EXPERIMENT.options(
        policies=("fcfs", BY_READING), loads=(1,), seeds=1, profile=PHI, jobs=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timelyllm_chatbot, "stories", first)
        return EXPERIMENT.run(options, quiet)


def test_each_policy_is_run_with_each_rule_but_whole_plans_have_none(run: RunDocument) -> None:
    found = [(row["policy"], row["rule"]) for row in run.rows]
    assert found == [("fcfs", "none"), (BY_READING, "sentence"), (BY_READING, "paragraph")]
    assert set(run.measures) <= run.rows[0].keys()
    assert set(run.measures) | {"rule"} <= run.definitions.keys()


def test_sentences_come_sooner_than_paragraphs_and_these_than_whole_stories(
    run: RunDocument,
) -> None:
    waits = {row["rule"]: row["waiting_s"] for row in run.rows}
    none, sentence, paragraph = (waits[rule] for rule in ("none", "sentence", "paragraph"))
    assert isinstance(none, float)
    assert isinstance(sentence, float)
    assert isinstance(paragraph, float)
    assert 2 * sentence < paragraph < none / 2


def test_the_papers_best_case_stands_beside_a_setting_that_is_run(run: RunDocument) -> None:
    (paper,) = run.papers
    settings = {tuple(row[key] for key in run.keys) for row in run.rows}
    assert {tuple(row[key] for key in run.keys) for row in paper.rows} <= settings
    assert {key for row in paper.rows for key in row} <= run.rows[0].keys()


def test_all_assumptions_are_listed(run: RunDocument) -> None:
    assert "Phi-3 mini" in str(run.setup["step times"])
    assert run.setup["prompt tokens, shared and computed once"] == 30
    assert "5 words a second" in str(run.setup["execution times"])
    assert any("median 14 words" in note for note in run.notes)


def test_several_profiles_may_be_named_and_each_must_be_known() -> None:
    assert EXPERIMENT.defaults.profile == f"{LLAMA},{PHI}"
    with pytest.raises(EngineError, match="unknown profile 'abacus'"):
        EXPERIMENT.run(EXPERIMENT.options(profile=f"{PHI}, abacus"), quiet)


def test_minutes_are_the_time_in_which_stories_are_asked_for() -> None:
    short, long = (stories("sentence", 0, minutes).jobs for minutes in (1.0, 10.0))
    assert short[-1].arrival_s <= 60.0 < 500.0 < long[-1].arrival_s <= 600.0


def test_conversations_of_a_trace_are_asked_as_stories(tmp_path: Path) -> None:
    file, given = tmp_path / "people.jsonl", {"policies": (BY_READING,), "loads": (1,), "jobs": 1}
    people = [Conversation(f"p{n}", 20.0 * n, f"person-{n}", 20, 100) for n in range(12)]
    write_trace(Trace("people", conversations=tuple(people)), file)
    made = EXPERIMENT.run(EXPERIMENT.options(trace=file, profile=PHI, seeds=1, **given), quiet)
    assert {row["requests"] for row in made.rows} == {12 - SKIP}
    assert made.setup["workload"] == "people"
    with pytest.raises(ExperimentError, match="a trace has its own length: leave out minutes"):
        EXPERIMENT.run(EXPERIMENT.options(trace=file, minutes=2.0), quiet)
    write_trace(Trace("few", conversations=tuple(people[:SKIP])), file)
    few = "people.jsonl has 10 conversations, and the first 10 do not count"
    with pytest.raises(ExperimentError, match=few):
        EXPERIMENT.run(EXPERIMENT.options(trace=file), quiet)
