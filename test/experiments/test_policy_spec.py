import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.engines.pipeline_profiles import pipeline_profile
from timely_llm.experiments.contract import ExperimentError
from timely_llm.experiments.policy_spec import (
    HARNESS,
    MOST_MICRO_BATCHES,
    WORDS,
    chosen,
    parse,
)
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.policies.batch_bound import BatchBound, BudgetEnd, MostUrgent, SpeedSource
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.fcfs import Fcfs
from timely_llm.policies.micro_batches.policy import MicroBatches, Mode
from timely_llm.policies.registry import POLICIES, options_of
from timely_llm.policies.timely import QueueOrder, Slack, StreamSegments, Timely


def test_a_policy_takes_words_and_options_of_its_own() -> None:
    spec = parse("timely:drops:rows=4:lead_s=inf:adaptive=off")
    policy, settings = spec.make(), spec.settings(SimulationSettings(seed=3))
    assert isinstance(policy, Timely)
    assert (policy.rows, policy.lead_s, policy.adaptive) == (4, math.inf, False)
    assert settings == SimulationSettings(seed=3, drop_late=True)


def test_an_option_can_be_a_word() -> None:
    paper = parse("timely:slack=completion:budget=ert:urgent=laxity:speed=measured").make()
    assert isinstance(paper, Timely)
    assert paper.slack is Slack.COMPLETION
    bound = paper.bound
    assert (bound.budget, bound.urgent) == (BudgetEnd.ERT, MostUrgent.LAXITY)
    assert bound.speed is SpeedSource.MEASURED
    chat = parse("timely:order=reading:streams=sentences:segment_tokens=20").make()
    assert isinstance(chat, Timely)
    assert (chat.order, chat.streams) == (QueueOrder.READING, StreamSegments.SENTENCES)
    assert chat.segment_tokens == 20


def test_timelyllm_is_timely_with_the_paper_s_bound() -> None:
    named = parse("timelyllm:rows=16:drops")
    spelled = parse("timely:budget=ert:urgent=laxity:speed=measured:rows=16:drops")
    assert named.words == spelled.words == {"drops"}
    one, other = named.make(), spelled.make()
    assert isinstance(one, Timely) and isinstance(other, Timely)
    assert (one.rows, one.bound.budget, one.bound.urgent, one.bound.speed) == (
        other.rows, other.bound.budget, other.bound.urgent, other.bound.speed
    )  # fmt: skip
    changed = parse("timelyllm:speed=predicted").make()
    assert isinstance(changed, Timely) and changed.bound.budget is BudgetEnd.ERT
    assert changed.bound.speed is SpeedSource.PREDICTED


def test_without_words_timely_has_the_papers_slack_and_this_packages_bound() -> None:
    made = parse("timely").make()
    assert isinstance(made, Timely)
    assert (made.slack, made.order, made.network_s) == (Slack.COMPLETION, QueueOrder.UTILITY, 0.0)
    assert made.streams is StreamSegments.TOKENS
    assert vars(made.bound).keys() == vars(BatchBound()).keys()
    assert (made.bound.budget, made.bound.urgent) == (BudgetEnd.ZERO, MostUrgent.ZERO)
    assert made.bound.speed is SpeedSource.PREDICTED


def test_the_harness_bounds_baselines_as_it_bounds_timely() -> None:
    policy = parse("fcfs:harness").make()
    assert isinstance(policy, Fcfs)
    assert (policy.rows, policy.admissions) == (Timely().rows, Timely().admissions) == (8, 1)
    sized = parse("fcfs:harness:rows=12").make()
    assert isinstance(sized, Fcfs)
    assert (sized.rows, sized.admissions) == (12, 1)


def test_words_change_the_conditions_and_not_the_policy() -> None:
    settings = parse("deadline:uncached:open-loop").settings(SimulationSettings())
    assert (settings.shared_tokens, settings.own_tokens) == (0, 2884)
    assert not settings.reports
    assert parse("deadline:uncached:open-loop").make().__dict__.keys() == Deadline().__dict__.keys()
    assert parse("deadline").settings(SimulationSettings()) == SimulationSettings()


def test_a_rule_of_micro_batches_is_put_around_a_policy() -> None:
    spec = parse("deadline:micro-batches=cycle:kappa=1")
    made, staged = spec.make(), SimulationSettings(pipeline=pipeline_profile())
    assert isinstance(made, MicroBatches)
    assert made.mode is Mode.CYCLE
    assert isinstance(made.policy, Deadline)
    assert spec.settings(staged).micro_batches == MOST_MICRO_BATCHES
    assert spec.settings(SimulationSettings()) == SimulationSettings()  # one stage has no rule
    plain = parse("deadline:micro-batches=off")
    assert isinstance(plain.make(), Deadline)
    assert plain.settings(staged) == staged


def test_step_times_are_misjudged_at_one_engine_only() -> None:
    spec = parse("deadline:step-times=0.7:kappa=1")
    assert isinstance(spec.make(), Deadline)
    assert spec.settings(SimulationSettings()) == SimulationSettings(step_times=0.7)
    assert parse("deadline:step-times=1").settings(SimulationSettings()) == SimulationSettings()
    staged = SimulationSettings(pipeline=pipeline_profile())
    with pytest.raises(ExperimentError, match="step-times is for an engine without stages"):
        spec.settings(staged)


def test_step_times_are_wrong_at_first_at_one_engine_only() -> None:
    spec = parse("deadline:first-step-times=1.4")
    assert spec.settings(SimulationSettings()) == SimulationSettings(first_step_times=1.4)
    staged = SimulationSettings(pipeline=pipeline_profile())
    with pytest.raises(ExperimentError, match="first-step-times is for an engine without stages"):
        spec.settings(staged)


def test_the_harness_and_uncached_versions_come_after_the_others() -> None:
    found = chosen(("fcfs", "timely:drops", "deadline"), harness=True, uncached=True)
    plain = ["fcfs", "timely:drops", "deadline", "fcfs:harness"]
    assert [s.text for s in found] == plain + [f"{text}:uncached" for text in plain]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("best", "unknown policy 'best': choose one of fcfs, stream, fcfs-segments, edf, timely"),
        ("", "unknown policy ''"),
        (
            "fcfs:",
            "fcfs:: '' is not one of harness, drops, uncached, gate, open-loop,"
            " micro-batches=auto|off|budget-only|paper|throttle|fixed-chunk|cycle"
            "|cycle-kept|cycle-due|cycle-own, step-times=..., first-step-times=..., rows=...",
        ),
        (
            "deadline:harness",
            "'harness' is not one of drops, uncached, gate, open-loop, micro-batches=auto|off|",
        ),
        ("timely:kappa=1", "timely:kappa=1: 'kappa=1' is not one of harness, drops"),
        ("timely:rows", "'rows' is not one of"),
        ("fcfs:micro-batches", "'micro-batches' is not one of"),
        ("fcfs:step-times", "'step-times' is not one of"),
        ("fcfs:step-times=0", "fcfs:step-times must be 0.01 to 100, not 0"),
        ("fcfs:first-step-times=101", "fcfs:first-step-times must be 0.01 to 100, not 101"),
        (
            "fcfs:step-times=2:first-step-times=2",
            "fcfs:step-times=2:first-step-times=2: name one of step-times and first-step-times",
        ),
        ("fcfs:step-times=x", "fcfs:step-times must be a number from 0 on or inf, not 'x'"),
        ("fcfs:micro-batches=even", "fcfs:micro-batches must be auto, off, budget-only, paper,"),
        ("timely:rows=0", "timely:rows must be a whole number from 1 on, not '0'"),
        ("fcfs:rows=1.5", "fcfs:rows must be a whole number from 1 on, not '1.5'"),
        ("timely:lead_s=nan", "timely:lead_s must be a number from 0 on or inf, not 'nan'"),
        ("timely:lead_s=-1", "timely:lead_s must be a number from 0 on or inf, not '-1'"),
        ("timely:slack=late", "timely:slack must be due, completion or exp, not 'late'"),
        ("timely:streams=", "timely:streams must be tokens or sentences, not ''"),
        ("timely:kappa=1", "slack=due|completion|exp, order=utility|reading"),
        ("timely:adaptive=no", "timely:adaptive must be on or off, not 'no'"),
        ("deadline:batch=off", "'batch=off' is not one of drops"),
        ("deadline:kappa=inf", "deadline: kappa must be finite and from 0 on, not inf"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_is_allowed(text: str, complaint: str) -> None:
    with pytest.raises(ExperimentError) as error:
        parse(text)
    assert complaint in str(error.value)


def test_a_word_is_refused_where_it_would_have_no_effect() -> None:
    assert [spec.words for spec in chosen(("deadline:gate",))] == [{"gate"}]
    assert chosen(("fcfs", "deadline:kappa=0"), words=False)
    with pytest.raises(ExperimentError, match="deadline:gate: gate has no effect"):
        chosen(("fcfs", "deadline:gate"), words=False)


def test_no_policy_and_the_same_policy_twice_are_mistakes() -> None:
    with pytest.raises(ExperimentError, match="no policy is named"):
        chosen(())
    with pytest.raises(ExperimentError, match="the policy fcfs is named twice"):
        chosen(("fcfs", "stream", "fcfs"))


parts = st.lists(
    st.sampled_from(
        [
            *WORDS,
            "rows=2",
            "rows=0",
            "slack=exp",
            "budget=late",
            "kappa=inf",
            "urgent=1",
            "adaptive=x",
            "",
        ]
    )
    | st.text(max_size=8),
    max_size=4,
)


@given(st.sampled_from([*POLICIES, "slow"]) | st.text(max_size=8), parts)
def test_whatever_is_written_is_a_policy_or_a_mistake(name: str, words: list[str]) -> None:
    text = ":".join([name, *words])
    try:
        spec = parse(text)
    except ExperimentError:
        return
    assert spec.text == text
    assert type(spec.make()) is POLICIES[spec.name]
    assert spec.values.keys() <= options_of(spec.name).keys() | HARNESS.keys()
    assert spec.words <= WORDS.keys()


def test_a_policy_of_a_user_s_own_has_words_and_options_too() -> None:
    spec = parse("timely_llm.policies.fcfs:Fcfs:drops:rows=4")
    assert (spec.name, spec.values) == ("timely_llm.policies.fcfs:Fcfs", {"rows": 4})
    assert spec.words == {"drops"}
    assert getattr(spec.make(), "rows", None) == 4
    with pytest.raises(ExperimentError, match="'lines=4' is not one of"):
        parse("timely_llm.policies.fcfs:Fcfs:lines=4")
    with pytest.raises(ExperimentError, match="the module best is not found"):
        parse("best:Mine")
    with pytest.raises(ExperimentError, match="unknown policy 'best': choose one of fcfs"):
        parse("best:drops")


def test_limits_are_not_added_to_a_policy_that_is_named_with_them() -> None:
    found = chosen(("fcfs", "fcfs:harness", "timely"), harness=True)
    assert [spec.text for spec in found] == ["fcfs", "fcfs:harness", "timely"]
