"""Any trace that there can be, and a small one to read."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility
from timely_llm.traces.model import LONGEST_SPAN_S, Conversation, Job, SkillTime, Trace

SMALL = Trace(
    "small",
    "by hand",
    (
        Job(
            "a", 0.1, "drone_0", "1", "drone", "Find the cat.\nNow.", NORMAL,
            (SkillTime("s", 3.7132), SkillTime("g", 2.5)), "?s('cat'){g('cat');}", (7, 4, 2),
        ),
        Job("b", 0.101, "drone_1", "8", "drone", "Un chien arrive ! 🐕", URGENT),
    ),
    (Conversation("c", 0.05, "person_0", 20, 400, deadline_s=30.0, text="A story."),),
)  # fmt: skip

_letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_texts = st.text(_letters, max_size=40)
_printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
_words = st.text(_printable, max_size=20)
_names = st.text(_printable, min_size=1, max_size=20)
_given_plans = st.text(_letters, min_size=1, max_size=40)
_seconds = st.floats(0, 86_400)
_counts = st.integers(1, 10_000_000)
_arrivals = st.floats(0, LONGEST_SPAN_S) | st.integers(0, 100).map(float)
_utilities = st.builds(
    TimeUtility, st.floats(0, 1e300), st.floats(-1e300, 0), st.floats(0, 1e300)
)  # fmt: skip
_jobs = st.builds(
    Job,
    id=_names,
    arrival_s=_arrivals,
    agent=_names,
    task=_words,
    skill_set=_words,
    text=_texts,
    time_utility=_utilities,
    skill_times=st.lists(st.builds(SkillTime, _names, _seconds), max_size=3).map(tuple),
    plan=_texts,
    segment_tokens=st.lists(_counts, max_size=3).map(tuple),
) | st.builds(
    Job, _names, _arrivals, _names, _words, _words, _texts, _utilities, plan=_given_plans,
    given=st.just(True),
)  # fmt: skip
_conversations = st.builds(
    Conversation,
    id=_names,
    arrival_s=_arrivals,
    agent=_names,
    prompt_tokens=st.integers(0, 10_000_000),
    output_tokens=_counts,
    ttft_s=_seconds,
    tpot_s=_seconds,
    deadline_s=_seconds | st.just(math.inf),
    weight=st.floats(0, 1e6),
    text=_texts,
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any trace."""
    requests = draw(st.lists(_jobs | _conversations, max_size=6, unique_by=lambda r: r.id))
    requests.sort(key=lambda request: request.arrival_s)
    return Trace(
        draw(_words),
        draw(_texts),
        tuple(request for request in requests if isinstance(request, Job)),
        tuple(request for request in requests if isinstance(request, Conversation)),
    )
