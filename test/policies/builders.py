"""Generations in the states that policy tests need."""

import math

from timely_llm.core.generation import PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ChatMessage, PlanRequest, StreamRequest
from timely_llm.core.segment import Segment
from timely_llm.core.slo import TEXT, SloClass
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.policies.step_time import StepTime

ROOMY = Capacity(free_tokens=1_000_000, max_rows=256, max_step_tokens=2048)
DEAR = StepTime(0.0168, 0.0093, 0.00011)
"""Each row takes half as long as an empty step."""


def generation(
    key: str,
    arrival_s: float = 0.0,
    *,
    utility: TimeUtility = NORMAL,
    state: State = State.QUEUED,
    to_compute: int = 110,
    context: int = 0,
    robot_free_s: float | None = None,
    segment_tokens: int = 0,
) -> PlanGeneration:
    """Return a generation; with `robot_free_s` it has delivered a segment."""
    request = PlanRequest(key, f"agent-{key}", "drone", "fly", utility)
    made = PlanGeneration(key, request, arrival_s, 110, to_compute, context, state=state)
    made.segment_tokens = segment_tokens
    if robot_free_s is not None:
        made.segments.append(Segment(key, request.agent, 0, "mf(50);", predicted_s=2.0))
        made.robot_free_s = robot_free_s
    return made


def running(key: str, **values: object) -> PlanGeneration:
    """Return a generation that decodes."""
    fields = {"state": State.RUNNING, "to_compute": 1, "context": 120} | values
    return generation(key, **fields)  # type: ignore[arg-type]


def suspended(key: str, robot_free_s: float, **values: object) -> PlanGeneration:
    """Return a generation at a boundary."""
    fields = {"state": State.SUSPENDED, "to_compute": 1, "context": 120} | values
    return generation(key, robot_free_s=robot_free_s, **fields)  # type: ignore[arg-type]


def stream(
    key: str,
    arrival_s: float = 0.0,
    *,
    of_class: SloClass = TEXT,
    state: State = State.QUEUED,
    to_compute: int = 40,
    context: int = 0,
    tokens: int = 0,
    first_s: float = math.nan,
) -> StreamGeneration:
    """Return a stream that has `tokens` tokens at its rate, the first one at `first_s`."""
    asked = (ChatMessage("user", "hello"),)
    request = StreamRequest(key, f"agent-{key}", asked, of_class.slo, of_class.weight)
    made = StreamGeneration(key, request, arrival_s, 40, to_compute, context, state=state)
    made.token_ids = [0] * tokens
    made.first_s = first_s
    made.last_s = first_s + max(tokens - 1, 0) * of_class.slo.tpot_s
    return made


def talking(key: str, **values: object) -> StreamGeneration:
    """Return a stream that decodes; with no other values its second token is due next."""
    fields = {"state": State.RUNNING, "to_compute": 1, "context": 40, "tokens": 1, "first_s": 0.0}
    return stream(key, **(fields | values))  # type: ignore[arg-type]
