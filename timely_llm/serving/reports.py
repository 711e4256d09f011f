"""The closed loop: what a robot's reports do to its plan (Ling et al. 2024, §4.3 and §8)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from timely_llm.core.errors import EngineError, EngineLost, RequestError
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import AnswerEvent, ReplanEvent, ReportEvent
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.core.request import ErrorCode, ExecutionReport, ReportState
from timely_llm.core.text import count_of, quoted
from timely_llm.core.time_utility import URGENT
from timely_llm.engines.contract import Engine
from timely_llm.serving.admission import Admission
from timely_llm.serving.delivery import PlanDelivery, correct
from timely_llm.serving.failures import in_words
from timely_llm.serving.limits import RequestWatchdog
from timely_llm.serving.pool import Pool
from timely_llm.serving.prompts import SkillSetPrompts
from timely_llm.serving.removals import Removals
from timely_llm.skills.skill_set import MAX_VALUE_CHARACTERS, one_line

log = logging.getLogger(__name__)
MAX_LIST_CHARACTERS = 65_536
"""Read characters of a client's list of open requests."""


class Reports:
    """Takes reports: corrects due times, hands values to the model, asks for new plans.

    Args:
        pool: the requests being served.
        engine: where their sequences are.
        removals: frees them.
        prompts: the known skill sets.
        admission: makes the generations of new epochs.
        events: takes reports, answers and new plans.
        watchdog: learns of each word of an agent; its timeouts have the most new plans that this
            server makes for a request with failed segments.
        now: returns seconds on the loop's clock.

    Attributes:
        foreign: reports about a request of another agent than the report names; they were ignored.
    """

    def __init__(
        self,
        pool: Pool,
        engine: Engine,
        removals: Removals,
        prompts: SkillSetPrompts,
        admission: Admission,
        events: list[RunEvent],
        watchdog: RequestWatchdog,
        now: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._engine = engine
        self._removals = removals
        self._prompts = prompts
        self._admission = admission
        self._events = events
        self._watchdog = watchdog
        self.foreign = 0
        self._now = now

    def take(self, report: ExecutionReport, now: float) -> None:
        """Take a report; one about another agent's request or an older epoch changes nothing."""
        delivery = self._pool.of_agent(report.request_id, report.agent)
        if delivery is None and report.request_id in self._pool:
            self._ignore(report)
            return
        self._hear(report, now)
        if not isinstance(delivery, PlanDelivery):
            return  # an answer is not executed
        if report.epoch != delivery.generation.epoch:
            return
        generation = delivery.generation
        report = replace(report, value=report.value[:MAX_VALUE_CHARACTERS])
        if report.state is ReportState.RETURNED:
            self._pool.end(generation, ErrorCode.NONE, "")
        elif report.state is ReportState.FAILED:
            self._replan(delivery, report, now)
        elif report.state is not ReportState.ALIVE and report.index < len(generation.segments):
            durations = self._learn(generation, report)
            correct(generation, report, now)
            self._events.append(
                ReportEvent(
                    self._now(), generation.key, report.index, report.state.name.lower(),
                    round(generation.due_s, 6), durations,
                )
            )  # fmt: skip
            last = report.index == len(generation.segments) - 1
            if report.state is ReportState.FINISHED and last:
                self._executed(delivery, report.value)

    def _ignore(self, report: ExecutionReport) -> None:
        """Count a report about another agent's request; the log has the 1st, 10th, 100th."""
        self.foreign += 1
        if str(self.foreign).strip("0") == "1":
            log.warning(
                "%s changed nothing: the last one was of %s about request %s of another agent",
                count_of(self.foreign, "report"), quoted(report.agent), quoted(report.request_id),
            )  # fmt: skip

    def _hear(self, report: ExecutionReport, now: float) -> None:
        """Record for which requests an agent has spoken."""
        agent = report.agent
        self._watchdog.seen(agent, now)
        if report.request_id:
            self._watchdog.speak_for([report.request_id], now)
        elif report.state is ReportState.ALIVE and report.value:
            for key in report.value[:MAX_LIST_CHARACTERS].split("\n"):
                if self._pool.of_agent(key, agent):
                    self._watchdog.claim(key, now)
        else:
            served = (one.request for one in self._pool.generations)
            its_own = (one.request_id for one in served if one.agent == agent)
            self._watchdog.speak_for(its_own, now)

    def _learn(
        self, generation: PlanGeneration, report: ExecutionReport
    ) -> tuple[float, float] | None:
        """Let the execution-time model learn from a segment's true duration.

        Returns:
            Error and bias of the predicted durations; None: there was nothing to learn.
        """
        if report.state is not ReportState.FINISHED or report.index <= generation.finished:
            return None
        times = self._prompts.known(generation.request.skill_set).execution_times
        segment = generation.segments[report.index]
        times.observe(segment.calls, report.duration_s, segment.predicted_s)
        return times.error, times.bias

    def _executed(self, delivery: PlanDelivery, value: str) -> None:
        """All that was delivered is executed."""
        if delivery.generation.state is State.BLOCKED:
            self._answer(delivery, value)
        elif delivery.generation.state is State.EXECUTING:
            self._pool.end(delivery.generation, ErrorCode.NONE, "")

    def _answer(self, delivery: PlanDelivery, value: str) -> None:
        """Append a blocking skill's value to the context.

        An engine may compute some tokens before it again, no more than a block of its KV. A given
        plan has no context: what it says next was written before the value was known.
        """
        generation = delivery.generation
        if generation.given:
            generation.state = State.SUSPENDED
            self._events.append(AnswerEvent(self._now(), generation.key, value))
            return
        skill_set = self._prompts.known(generation.request.skill_set).skill_set
        try:
            token_ids, drop = delivery.answer(skill_set.answer_text(value))
            generation.set_progress(self._engine.append(generation.key, token_ids, drop))
        except EngineLost:
            raise
        except EngineError as error:
            self._pool.end(generation, ErrorCode.TOO_LONG, str(error))
            return
        except Exception as error:  # one generation's failure ends no other
            log.exception("the answer to %r could not be taken", generation.key)
            reason = f"its skill's value could not be taken: {in_words(error)}"
            self._pool.end(generation, ErrorCode.ENGINE_FAILED, reason)
            return
        generation.state = State.SUSPENDED
        self._events.append(AnswerEvent(self._now(), generation.key, value))

    def _replan(self, delivery: PlanDelivery, report: ExecutionReport, now: float) -> None:
        """Offer a failed segment to the model, as an urgent request with its history.

        A given plan ends here: its author vouches for that text, not for one of the model's.
        """
        generation, tally = delivery.generation, delivery.generation.tally
        reason = one_line(report.value, "no reason given")
        failure = f"segment {report.index} failed: {reason}"
        if generation.given:
            failure += "; a plan written by hand is not replaced by one of the model's"
            self._pool.end(generation, ErrorCode.EXECUTION_FAILED, failure)
            return
        if generation.epoch - generation.request.epoch >= self._watchdog.timeouts.max_replans:
            self._pool.end(generation, ErrorCode.EXECUTION_FAILED, failure)
            return
        skill_set = self._prompts.known(generation.request.skill_set).skill_set
        tally.history += [segment.text for segment in generation.segments[: report.index]]
        plan = "".join(segment.text for segment in generation.segments)
        self._removals.remove(generation.key)
        try:
            task = skill_set.recovery_text(tally.task, plan, reason, "".join(tally.history))
            request = replace(generation.request, task=task, time_utility=URGENT)
            begun = self._admission.begin(request, now, tally, generation.epoch + 1)
        except RequestError as error:
            failure += f"; no new plan could be asked for: {error}"
            self._pool.end(generation, ErrorCode.EXECUTION_FAILED, failure)
            return
        except EngineLost:
            raise
        except Exception as error:
            log.exception("no new plan could be asked for %r", generation.key)
            failure += f"; no new plan could be asked for: {in_words(error)}"
            self._pool.end(generation, ErrorCode.ENGINE_FAILED, failure)
            return
        generation.state = State.ENDED
        self._pool[generation.key] = begun
        plan_again = begun.generation
        self._events.append(
            ReplanEvent(
                self._now(), plan_again.key, plan_again.epoch, failure,
                round(plan_again.due_s, 6), plan_again.prompt_tokens,
            )
        )  # fmt: skip
