"""Several tokens a step through the loop: what comes of them, and what is forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.serving.scripted import ARM, DRONE, FIND, Scene, request
from test.serving.test_streams import WORDS, ask, talk
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.generation import State
from timely_llm.core.request import ErrorCode, ReportState
from timely_llm.core.step import Capacity, SequenceProgress, StepPlan, StepResult
from timely_llm.engines.ledger_engine import allowed_speculation, rounded
from timely_llm.engines.sequences import AdmittedSequence, AdmittedStep, EngineLimits, SequenceState
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.publisher import Stats
from timely_llm.skills.skill_set import SkillSet

GUESSES = 7


class Guessing(SimulatedEngine):
    """Guesses every token right, and so goes on after each end that is not its own."""

    @property
    def capacity(self) -> Capacity:
        return replace(super().capacity, speculative_tokens=GUESSES)

    def submit(self, plan: StepPlan) -> Mapping[str, SequenceProgress]:
        admitted = self._ledger.admit(plan)
        offered = dict.fromkeys(plan.keys, GUESSES)
        speculative = allowed_speculation(
            plan, admitted, offered, self._sequences.limits, block_tokens=GUESSES + 1
        )
        new_tokens = {
            part.sequence.key: list(
                islice(self._answers[part.sequence.key], 1 + speculative.get(part.sequence.key, 0))
            )
            for part in admitted.sequences
            if part.finishes
        }
        duration_s = self.step_s(admitted, 0.0)
        self._made = self._ledger.commit(admitted, new_tokens, duration_s, speculative)
        return {}

    def collect(self) -> StepResult:
        self._pass_time(self._made.duration_s)
        return self._made

    def take_back(self, key: str, tokens: int) -> SequenceProgress:
        rest = self._sequences[key].token_ids[-tokens:]
        progress = super().take_back(key, tokens)
        self._answers[key] = chain(rest, self._answers[key])
        return progress


def both(plans: dict[str, str], skill_set: SkillSet = DRONE) -> tuple[Scene, Scene]:
    """Return a scene without guesses and one with."""
    return (
        Scene(plans, Stream(), skill_set=skill_set),
        Scene(plans, Stream(), skill_set=skill_set, engine=Guessing),
    )


def test_an_answer_is_the_same_in_fewer_steps() -> None:
    plain, guessing = both({"r": WORDS, "s": "Yes.", "t": "No."})
    for scene in (plain, guessing):
        talk(scene, "r", "s", "t")
    assert guessing.sink.chunks == plain.sink.chunks
    for key in "rst":
        one, other = plain.sink.answers[key], guessing.sink.answers[key]
        assert (one.text, one.generated_tokens) == (other.text, other.generated_tokens)
        assert one.kept_tokens == other.kept_tokens
    assert guessing.prompts == plain.prompts
    assert guessing.loop.free_kv_tokens == plain.loop.free_kv_tokens
    assert len(guessing.sink.steps) < len(plain.sink.steps) / 2


def test_guesses_are_counted_and_the_right_ones_among_them() -> None:
    stats = Stats()
    tokens = {"a": [1, 2, 3], "b": [4], "c": [5]}
    result = StepResult(tokens, {"a": 3, "b": 1, "c": 9}, 0.01, speculative={"a": 3, "b": 2})
    stats.take(StepEvent(0.0, 0.01, ("a", "b", "c"), result=result))
    assert (stats.guessed_tokens, stats.right_guesses, stats.generated_tokens) == (5, 2, 5)
    plain, guessing = both({"r": WORDS})
    for scene in (plain, guessing):
        talk(scene, "r")
    assert plain.loop.stats.guessed_tokens == plain.loop.stats.right_guesses == 0
    assert guessing.loop.stats.guessed_tokens == guessing.loop.stats.right_guesses > 0


@pytest.mark.parametrize("most", range(1, 12))
def test_an_answer_that_is_cut_is_kept_as_far_as_it_was_published(most: int) -> None:
    plain, guessing = both({"r": WORDS, "s": "Yes."})
    for scene in (plain, guessing):
        scene.loop.admit(ask("r", conversation="c", max_tokens=most))
        scene.run()
        scene.loop.admit(ask("s", conversation="c", turn=1))
        scene.run()
    assert guessing.sink.chunks == plain.sink.chunks
    assert guessing.prompts == plain.prompts
    assert guessing.sink.answers["s"].prompt_tokens == plain.sink.answers["s"].prompt_tokens


@pytest.mark.parametrize("before", ["", "open();", "open();close();"])
def test_what_follows_a_call_that_waits_is_forgotten(before: str) -> None:
    # The model goes on, and guesses the value itself.
    plan = before + "look();=> a book\\nopen();close();...pick('cup');->True;"
    scenes = both({"r": plan}, ARM)
    for scene in scenes:
        scene.loop.admit(request("r", skill_set="arm"))
        while not (scene.sink.segments and scene.sink.segments[-1].blocking):
            scene.turns(1)
        assert scene.plans[0].state is State.BLOCKED
        assert not scene.loop.turn().stepped
        last = len(scene.sink.segments) - 1
        scene.report("r", ReportState.FINISHED, last, duration_s=0.7, value="cup")
        assert scene.prompts["r"][1].endswith("look();=> cup\n")
        scene.run()
    plain, guessing = scenes
    assert guessing.prompts == plain.prompts
    assert guessing.sink.texts("r") == plain.sink.texts("r")
    result = guessing.sink.results["r"]
    assert result.error_code is ErrorCode.NONE
    assert result.generated_tokens == plain.sink.results["r"].generated_tokens
    assert guessing.loop.free_kv_tokens == guessing.free_at_start
    assert len(guessing.sink.steps) < len(plain.sink.steps) / 2


def test_segments_are_the_same() -> None:
    scenes = both({"p": FIND, "q": "mf(50);mf(100);tp();->True;"})
    for scene in scenes:
        for key in "pq":
            scene.loop.admit(request(key))
        scene.run()
        assert all(r.error_code is ErrorCode.NONE for r in scene.sink.results.values())
        assert scene.loop.free_kv_tokens == scene.free_at_start
    plain, guessing = scenes
    for key in "pq":
        assert guessing.sink.texts(key) == plain.sink.texts(key)
        one, other = plain.sink.results[key], guessing.sink.results[key]
        assert one.generated_tokens == other.generated_tokens


def test_a_plan_that_is_too_long_ends_at_its_most_tokens() -> None:
    scenes = both({"p": "mf(50);" * 40})
    for scene in scenes:
        scene.loop.admit(request("p", max_tokens=20))
        scene.run()
        result = scene.sink.results["p"]
        assert (result.error_code, result.generated_tokens) == (ErrorCode.TOO_LONG, 20)
    assert scenes[1].sink.texts("p") == scenes[0].sink.texts("p")


def test_the_step_time_model_hears_of_rows_and_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, scene = both({"r": WORDS})
    heard: list[tuple[int, int]] = []

    def observe(seconds: float, rows: int, prefill_tokens: int, context_tokens: int) -> None:
        heard.append((rows, prefill_tokens))

    monkeypatch.setattr(scene.loop.step_time, "observe", observe)
    scene.loop.admit(ask("r"))
    scene.run()
    prompt = scene.sink.answers["r"].prompt_tokens
    assert heard == [(0, prompt)] + [(1, 0)] * (len(heard) - 1)
    assert any(len(step.tokens["r"]) > 1 for step in scene.sink.steps)


class Sequence(NamedTuple):
    """One sequence of a step: its tokens, how many are computed, and what it may do."""

    tokens: int
    computed: int
    wanted: int
    offered: int


sequences = st.integers(1, 60).flatmap(
    lambda tokens: st.builds(
        Sequence, st.just(tokens), st.integers(0, tokens - 1), st.integers(1, 40), st.integers(0, 9)
    )
)


@given(st.lists(sequences, min_size=1, max_size=6), st.integers(1, 20), st.integers(0, 40))
def test_guesses_take_only_what_a_plan_leaves(
    members: list[Sequence], block_tokens: int, spare: int
) -> None:
    parts, entries, offered = [], {}, {}
    for number, (tokens, computed, wanted, speculative_tokens) in enumerate(members):
        key = str(number)
        sequence = SequenceState(key, list(range(tokens)), None, 0, computed, computed)
        parts.append(AdmittedSequence.of(sequence, computed, min(wanted, tokens - computed)))
        entries[key], offered[key] = wanted, speculative_tokens
    total = sum(part.tokens for part in parts)
    limits = EngineLimits(max_model_len=62, max_step_tokens=total + spare)
    plan = StepPlan(tuple(entries.items()))
    speculative = allowed_speculation(
        plan, AdmittedStep(tuple(parts), (), {}), offered, limits, block_tokens
    )
    assert total + sum(speculative.values()) <= limits.max_step_tokens
    for part in parts:
        key, speculative_tokens = part.sequence.key, speculative.get(part.sequence.key, 0)
        assert speculative_tokens <= offered[key]
        assert part.tokens + speculative_tokens <= entries[key]
        assert rounded(part.stop + speculative_tokens, block_tokens) == rounded(
            part.stop, block_tokens
        )
        if speculative_tokens:
            assert part.finishes
            assert part.stop + speculative_tokens < limits.max_model_len
