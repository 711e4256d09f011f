"""A workload that a real engine serves in real time, and the same words in virtual time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from timely_llm.core.clock import WallClock
from timely_llm.core.segment import Segment
from timely_llm.engines.contract import Engine
from timely_llm.experiments.outcome import Run, Talk
from timely_llm.experiments.simulation import Settings, request_for, simulate_works
from timely_llm.experiments.stage import Progress, Robot, Stage
from timely_llm.experiments.talkers import Talker
from timely_llm.experiments.workload import INSTANT_S, Part, Work
from timely_llm.policies.contract import Policy
from timely_llm.serving.admission import AdmissionLimits
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import request_of

MAX_TOKENS = 128
"""Of a plan."""

_HEAD_START_S = 0.5


@dataclass(frozen=True)
class Spoken:
    """What a model said to a workload.

    Attributes:
        run: what robots and people got; the works' parts and the conversations' lengths are what
            the model said.
        shared_tokens, own_tokens: of the prompts of plans, on average.
    """

    run: Run
    shared_tokens: int
    own_tokens: int


class TraceClock:
    """The wall's clock, on a trace's time."""

    def __init__(self) -> None:
        self._wall = WallClock()
        self._origin_s = self._wall.now()

    def start(self, works: Sequence[Work], conversations: Sequence[Conversation]) -> None:
        """Go on from shortly before the first of them arrives."""
        arrivals_s = [w.arrival_s for w in works[:1]] + [c.arrival_s for c in conversations[:1]]
        now_s = min(arrivals_s, default=0.0) - _HEAD_START_S
        self._origin_s = self._wall.now() - now_s

    def now(self) -> float:
        """Return the trace's time in seconds."""
        return self._wall.now() - self._origin_s

    def rest(self, until_s: float) -> None:
        """Sleep until a moment."""
        time.sleep(max(until_s - self.now(), 0.0))


class _Notes:
    """What segments were made of, and how long robots take for them."""

    def __init__(self, engine: Engine, rng: np.random.Generator, error: float) -> None:
        self._encode = engine.tokenizer.encode
        self._rng = rng
        self._error = error
        self.parts: dict[str, list[Part]] = {}

    def told(self, work: Work) -> Work:
        """Return a work with the parts that the model made of it."""
        return replace(work, parts=tuple(self.parts.get(work.id, ())))

    def seconds(self, robot: Robot, segment: Segment) -> float:
        """Return the true seconds of a segment, of which the predicted ones are off."""
        predicted_s = max(segment.predicted_s, INSTANT_S)
        error = self._rng.lognormal(0.0, self._error) if self._error else 1.0
        true_s = predicted_s / error if segment.calls else INSTANT_S
        part = Part(len(self._encode(segment.text)), true_s, predicted_s)
        self.parts.setdefault(robot.work.id, []).append(part)
        return true_s


def serve(
    works: Sequence[Work],
    skill_sets: dict[str, SkillSet],
    engine: Engine,
    policy: Policy,
    settings: Settings,
    progress: Progress = lambda done, total: None,
    conversations: Sequence[Conversation] = (),
) -> Spoken:
    """Serve works and conversations in real time; takes as long as they do.

    Plans are constrained to the grammar of their skill set, so that all of them can be executed.

    Args:
        works: in order of arrival; what their parts are does not matter.
        skill_sets: theirs, by name.
        engine: a real one, without requests; it is not closed.
        policy: a new one.
        settings: what the run is like.
        progress: called with requests ended and all requests.
        conversations: in order of arrival.

    Raises:
        RequestError: a conversation is longer than any server takes.
        SimulationError: requests are left that no policy serves.
    """
    clock = TraceClock()
    rng = np.random.default_rng(settings.seed)
    notes = _Notes(engine, rng, settings.prediction_error)
    stage = Stage(clock, notes.seconds, settings.network_s, settings.reports)
    loop = Loop(
        engine, policy, stage, clock, settings.step_time(), None, settings.patience(),
        AdmissionLimits(constrained=True),
    )  # fmt: skip
    shared = {name: loop.register(made) for name, made in skill_sets.items()}
    clock.start(works, conversations)
    for work in works:
        request = request_for(work, work.job.skill_set, work.job.text, settings)
        stage.enter(work, replace(request, max_tokens=MAX_TOKENS))
    for talk in conversations:
        stage.talk(talk, request_of(talk))
    run = stage.run(loop, clock.rest, progress)
    outcomes = tuple(replace(outcome, work=notes.told(outcome.work)) for outcome in run.outcomes)
    talks = tuple(map(_said, stage.talkers.values()))
    shared_tokens = round(fmean(shared.values())) if shared else 0
    prompts = loop.stats.prompt_tokens - sum(
        talker.result.prompt_tokens for talker in stage.talkers.values() if talker.result
    )
    own_tokens = round(prompts / max(len(works), 1)) - shared_tokens
    return Spoken(replace(run, outcomes=outcomes, talks=talks), shared_tokens, own_tokens)


def _said(talker: Talker) -> Talk:
    """Return what a listener got, with the lengths that prompt and answer really had."""
    talk, result = talker.outcome, talker.result
    known = talk.conversation
    heard = replace(
        known,
        prompt_tokens=result.prompt_tokens if result else known.prompt_tokens,
        output_tokens=len(talk.times_s) or known.output_tokens,
        max_tokens=known.output_tokens,
    )
    return replace(talk, conversation=heard)


def again(spoken: Spoken, policy: Policy, settings: Settings) -> Run:
    """Return the same in virtual time: the same words, times of execution and predictions."""
    heard = [outcome.work for outcome in spoken.run.outcomes if outcome.work.parts]
    virtual = replace(
        settings, shared_tokens=spoken.shared_tokens, own_tokens=max(spoken.own_tokens, 1)
    )
    asked = [talk.conversation for talk in spoken.run.talks if talk.times_s]
    return simulate_works(heard, policy, virtual, asked)
