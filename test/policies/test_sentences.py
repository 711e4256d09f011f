"""Answers as segments of sentences (Ling et al. 2024, §7.1 and §7.4.2)."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.policies.builders import ROOMY, generation, running, stream, talking
from test.policies.lanes import Lanes, asked
from timely_llm.conformance.policies.generations import mixed_pools
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.reason import Cause
from timely_llm.core.slo import REAL_TIME, TEXT, Slo, SloClass
from timely_llm.policies.contract import ask_for_reasons
from timely_llm.policies.sentences import SentenceGeneration, Sentences
from timely_llm.policies.step_time import StepTime
from timely_llm.policies.timely import MeanSegmentLength, QueueOrder, StreamSegments, Timely
from timely_llm.skills.prose import SentenceChecker

STEP = StepTime(0.02, 0.0, 0.001)
BY_SENTENCE = StreamSegments.SENTENCES
STORY = "The old lamp was lit. She waited by the door for the wind. They came! "


def say(stream: StreamGeneration, now: float, *tokens: str) -> None:
    """Add tokens that come at `now`, as the delivery of answers does."""
    for text in tokens:
        stream.token_ids.append(0)
        stream.token_arrived(now)
        stream.pieces.append(text)
        stream.listener.receive(text, now)
    stream.state, stream.to_compute, stream.context_tokens = State.RUNNING, 1, 60


def sentence_of(stream: StreamGeneration, now: float) -> SentenceGeneration:
    [made] = Sentences(MeanSegmentLength(4.0).observe).of([stream], now)
    return made


def test_the_first_sentence_has_the_time_utility_of_a_normal_request() -> None:
    first = sentence_of(stream("s", 2.0), 2.5)
    assert first.first
    assert (first.due_s, first.zero_s) == (3.0, 3.5)
    assert first.utility_at(2.8) == 1.0
    assert first.utility_at(3.25) == pytest.approx(0.5)
    voice = SloClass("own", Slo(ttft_s=0.4), weight=3.0)
    other = sentence_of(stream("w", 2.0, of_class=voice), 2.0)
    assert other.due_s == pytest.approx(2.4)
    assert other.zero_s == pytest.approx(2.9)
    assert other.utility_at(2.0) == 3.0


def test_a_later_sentence_is_due_at_the_end_of_reading() -> None:
    reader = stream("s")
    say(reader, 1.0, "One", " two", " three", " four.")  # five words a second
    later = sentence_of(reader, 1.3)
    assert later.due_s == pytest.approx(1.8)
    assert later.utility_at(1.8) == pytest.approx(1.0)
    assert later.utility_at(2.05) == pytest.approx(0.5)


def test_an_answer_with_a_deadline_is_one_response() -> None:
    machine = stream("m", 1.0, of_class=REAL_TIME)
    say(machine, 1.2, "Yes.", " ")
    answer = sentence_of(machine, 1.3)
    assert (answer.first, answer.due_s) == (True, 2.5)


def test_a_sentence_ends_where_the_stop_checker_for_prose_ends_it() -> None:
    length = MeanSegmentLength(4.0, weight=1.0)
    sentences, reader = Sentences(length.observe), stream("s")
    states = []
    for token in ("Mr.", " Fox", " ran", ".", " He", " hid", "."):
        say(reader, 1.0, token)
        [now] = sentences.of([reader], 1.0)
        sentences.resume({"s"})
        states.append((now.state, now.segment_tokens))
    running, suspended = State.RUNNING, State.SUSPENDED
    assert states == [
        (running, 1), (running, 2), (running, 3), (running, 4), (suspended, 0),
        (running, 1), (running, 2),
    ]  # fmt: skip
    assert length.mean_tokens == pytest.approx((4 + 5) / 2)


def test_an_answer_that_no_step_took_stays_suspended() -> None:
    sentences, reader = Sentences(MeanSegmentLength(4.0).observe), stream("s")
    say(reader, 1.0, "Go.", " ")
    for taken in ((), (), {"s"}):
        assert sentences.of([reader], 1.1)[0].state is State.SUSPENDED
        sentences.resume(taken)
    # It goes on: its token has not come, since the step is in flight.
    assert sentences.of([reader], 1.1)[0].state is State.RUNNING


def test_what_is_no_longer_served_is_forgotten() -> None:
    sentences = Sentences(MeanSegmentLength(4.0).observe)
    sentences.of([stream(f"s{n}") for n in range(9)], 0.0)
    sentences.of([], 0.0)
    assert not sentences._answers
    reader, same_key = stream("s"), stream("s")
    say(reader, 1.0, "Go.", " ")
    sentences.of([reader], 1.0)
    assert sentences.of([same_key], 1.0)[0].segment_tokens == 0


def test_answers_share_rows_and_admissions_with_plans() -> None:
    readers = [stream(f"s{n}", 0.1 * n) for n in range(4)]
    plan = generation("p", 0.05)
    shared = Timely(streams=BY_SENTENCE)
    assert len(shared.plan(0.5, [plan, *readers], STEP, ROOMY).keys) == 1
    assert Timely().plan(0.5, [plan, *readers], STEP, ROOMY).keys > {"p", "s0", "s1"}
    full = [running(f"r{n}", arrival_s=0.4) for n in range(8)]
    assert shared.plan(0.5, [*full, *readers], STEP, ROOMY).keys == {g.key for g in full}


def test_a_sentence_that_runs_goes_on_and_one_that_ended_returns_to_the_queue() -> None:
    policy = Timely(streams=BY_SENTENCE, lead_s=0.5)
    reader = stream("s")
    assert policy.plan(0.0, [reader], STEP, ROOMY).keys == {"s"}
    say(reader, 0.1, "I", " will", " not", " come", " today", ".")
    assert policy.plan(0.1, [reader], STEP, ROOMY).keys == {"s"}
    say(reader, 0.2, " ")
    resting = policy.plan(0.2, [reader], STEP, ROOMY)
    assert not resting
    assert resting.wake_s == pytest.approx(0.1 + 5 / 5 - 0.5), "five words, 0.5 s before their end"
    assert policy.plan(resting.wake_s, [reader], STEP, ROOMY).keys == {"s"}


def test_in_order_of_reading_the_reader_that_runs_out_first_goes_first() -> None:
    policy = Timely(streams=BY_SENTENCE, order=QueueOrder.READING)
    slow, quick, new = stream("slow"), stream("quick"), stream("new", 1.0)
    say(slow, 1.0, *("word " for _ in range(8)), "end. ")
    say(quick, 1.0, "Yes. ")
    assert policy.plan(1.1, [new, slow, quick], STEP, ROOMY).keys == {"quick"}
    assert policy.plan(1.1, [new, slow], STEP, ROOMY).keys == {"new"}
    ask_for_reasons(policy)
    why = dict(policy.plan(1.1, [slow], STEP, ROOMY).reasons)
    assert why["slow"].cause is Cause.DEADLINE


def test_the_bound_protects_a_sentence_as_it_protects_a_plan() -> None:
    reader = stream("s")
    say(reader, 1.0, "word ")  # read after 0.2 s, worth nothing 0.5 s later; nine to go, 0.18 s
    policy = Timely(streams=BY_SENTENCE)
    assert policy.plan(1.3, [reader, generation("p", 1.2)], STEP, ROOMY).keys == {"s", "p"}
    assert policy.plan(1.6, [reader, generation("p", 1.2)], STEP, ROOMY).keys == {"s"}


def test_answers_come_complete_and_are_suspended_between_sentences() -> None:
    policy = Timely(streams=BY_SENTENCE, order=QueueOrder.READING, lead_s=0.2)
    answers = {f"t{n}": STORY * 2 for n in range(3)} | {"p": "mf(50);tc(90);->True;"}
    lanes = Lanes(answers, policy)
    lanes.serve([(0.0, asked(key, TEXT)) for key in answers if key != "p"])
    assert {key: answer.text for key, answer in lanes.sink.answers.items()} == {
        key: STORY * 2 for key in answers if key != "p"
    }
    for key in lanes.sink.answers:
        assert max(lanes.gaps_s(key)) > 0.5, "no token while the reader has more than 0.2 s"
        assert lanes.sink.answers[key].stalled_s < 0.5


@given(mixed_pools(), st.floats(0, 20), st.sampled_from(QueueOrder))
def test_plans_alone_are_served_as_without_sentences(
    pool: list[Generation], now: float, order: QueueOrder
) -> None:
    plans = [g for g in pool if isinstance(g, PlanGeneration)]
    plain, sentences = Timely(order=order), Timely(order=order, streams=BY_SENTENCE)
    assert sentences.plan(now, plans, STEP, ROOMY) == plain.plan(now, plans, STEP, ROOMY)
    assert len(sentences.plan(now, pool, STEP, ROOMY).keys) <= sentences.rows


@given(st.text(alphabet="ab. !?\n", max_size=60), st.integers(1, 4))
def test_sentences_do_not_depend_on_the_tokens_in_which_they_come(text: str, size: int) -> None:
    sentences, reader = Sentences(MeanSegmentLength(4.0).observe), stream("s")
    sentences.of([reader], 0.0)
    ends, said = [], 0
    for begin in range(0, len(text), size):
        token = text[begin : begin + size]
        say(reader, 1.0, token)
        said += len(token)
        if sentences.of([reader], 1.0)[0].state is State.SUSPENDED:
            ends.append(said)
        sentences.resume({"s"})
    places = accumulate(len(piece.text) for piece in SentenceChecker(5.0).feed(text))
    assert ends == sorted({min(math.ceil(place / size) * size, len(text)) for place in places})


def test_a_token_of_a_stream_without_text_ends_no_sentence() -> None:
    silent = talking("s", tokens=30)
    made = sentence_of(silent, 4.0)
    assert (made.state, made.segment_tokens) == (State.RUNNING, 30)
    assert made.due_s == 4.0
    assert not math.isnan(made.zero_s)
