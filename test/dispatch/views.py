"""Requests and views of servers, for tests of rules."""

from __future__ import annotations

from hypothesis import strategies as st

from timely_llm.core.request import ChatMessage, PlanRequest, StreamRequest
from timely_llm.core.slo import Slo
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.dispatch.contract import Due, ServerView, Waiting

QUESTION = (ChatMessage("user", "Why?"),)
SKILL_SETS = ("drone", "arm", "unknown")


def plan(
    name: str = "r", utility: TimeUtility = NORMAL, asked_s: float = 0.0, skill_set: str = "drone"
) -> Waiting:
    request = PlanRequest(name, f"robot-{name}", skill_set, "Go.", utility)
    return Waiting(request, asked_s, 760)


def question(
    name: str = "p", conversation: str = "", prompt_tokens: int = 100, ttft_s: float = 1.0
) -> Waiting:
    request = StreamRequest(name, "person", QUESTION, Slo(ttft_s), conversation=conversation)
    return Waiting(request, 0.0, prompt_tokens, 1.0, 100.0)


def server(
    name: str = "a", step_s: float = 0.02, row_s: float = 0.001, **changes: object
) -> ServerView:
    known: dict[str, object] = {
        "steps_s": tuple(step_s + row_s * row for row in range(8)),
        "row_s": row_s,
        "prefill_token_s": step_s / 200,
        "kv_tokens": 10_000,
        "free_kv_tokens": 10_000,
        "max_rows": 64,
        "skill_sets": {"drone": 700},
    }
    return ServerView(name, **{**known, **changes})  # type: ignore[arg-type]


seconds = st.floats(-1e4, 1e4)
positive = st.floats(1e-6, 1e3)
dues = st.builds(
    Due, seconds, st.floats(0, 1e4), st.floats(0, 1e6), st.floats(1e-3, 1e3), st.integers(0, 10**5)
)


@st.composite
def some_servers(draw: st.DrawFn) -> list[ServerView]:
    """Servers of any kind, also with impossible loads; none or several."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    return [
        ServerView(
            name,
            tuple(draw(st.lists(positive, min_size=1, max_size=5))),
            draw(st.floats(0, 10)),
            draw(st.floats(0, 1)),
            draw(st.integers(0, 10**6)),
            draw(st.integers(0, 10**6)),
            draw(st.integers(1, 8)),
            draw(st.dictionaries(st.sampled_from(SKILL_SETS[:2]), st.integers(0, 900))),
            {("person", "talk"): draw(st.integers(0, 500))} if draw(st.booleans()) else {},
            tuple(draw(st.lists(positive, max_size=3))),
            tuple(draw(st.lists(dues, max_size=5))),
            draw(st.integers(0, 100)),
            frozenset(draw(st.sets(st.sampled_from(("r0", "r1", "gone"))))),
            draw(st.floats(0, 1)),
            draw(st.floats(0, 1e4)),
        )
        for name in names
    ]  # fmt: skip


@st.composite
def some_waiting(draw: st.DrawFn) -> list[Waiting]:
    """Requests of any kind, each with an id of its own."""
    made = []
    for number in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            worth = TimeUtility(
                draw(st.floats(0, 1e6)), -draw(st.floats(0, 1e6)), draw(st.floats(0, 1e4))
            )
            made.append(plan(f"r{number}", worth, draw(seconds), draw(st.sampled_from(SKILL_SETS))))
        else:
            made.append(question(f"p{number}", draw(st.sampled_from(("", "talk")))))
    return made
