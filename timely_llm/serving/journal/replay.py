"""Replay: from a saved plan to the state in which its server left it."""

from __future__ import annotations

from collections.abc import Callable

from timely_llm.core.generation import State
from timely_llm.core.segment import Segment
from timely_llm.serving.admission import Admission
from timely_llm.serving.delivery import PlanDelivery, correct
from timely_llm.serving.given_plans import GivenDelivery
from timely_llm.serving.journal.saved import SavedRequest


def replay(
    saved: SavedRequest,
    delivery: PlanDelivery,
    admission: Admission,
    answer_text: Callable[[str], str],
    now: float,
) -> list[Segment]:
    """Push what was generated and reported through a new delivery of the same plan.

    The engine gets the tokens behind the prompt, and computes them in the next steps. What was
    generated and not saved is generated again. A grammar reads the same tokens, but for values.

    Args:
        saved: the plan.
        delivery: its delivery, before the first token.
        admission: has begun it.
        answer_text: returns the tool output of a skill's value.
        now: seconds on the loop's clock.

    Returns:
        All segments, those that were published included.

    Raises:
        EngineError: the engine does not take the tokens.
        PlanError: the tokens are no plan: the model or the skill set has changed.
    """
    generation = delivery.generation
    if isinstance(delivery, GivenDelivery):
        made = _replay_given(saved, delivery, now)
    else:
        context: list[int] = []
        read: list[int] = []
        made = []
        for step in saved.steps:
            if isinstance(step, str):
                text = answer_text(step)
                kept = delivery.kept_ids(text)
                token_ids, drop = delivery.answer(text)
                context[len(context) - drop :] = token_ids
                read[len(read) - drop :] = kept
                generation.state = State.SUSPENDED
                continue
            for token_id in step:
                context.append(token_id)
                read.append(token_id)
                made += delivery.push(token_id, now)
        if generation.state is State.BLOCKED:
            kept = delivery.kept_ids("")
            if delivery.keep_for_answer():
                context.pop()
                read[-1:] = kept
        if context and not delivery.complete:
            admission.go_on(generation, context, read)
    tally = generation.tally
    tally.segments, tally.response_s, tally.waiting_s, tally.utility = saved.tally
    if generation.segments:  # the robot is at most as far behind as its reports say
        generation.robot_free_s = now + generation.segments[-1].predicted_s / generation.rate
    for report in saved.reports():
        correct(generation, report, now)
    return made


def _replay_given(saved: SavedRequest, delivery: GivenDelivery, now: float) -> list[Segment]:
    values = [step for step in saved.steps if isinstance(step, str)][::-1]
    made: list[Segment] = []
    while len(delivery.generation.segments) < len(saved.published):
        made += delivery.go_on(now)
        if delivery.generation.state is State.BLOCKED and values:
            values.pop()
            delivery.generation.state = State.SUSPENDED
    return made
