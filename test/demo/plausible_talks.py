"""Made-up conversations: what a server and people would have written, in seconds from 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from test.core.events.lines import Line
from timely_llm.core.slo import TEXT, VOICE, Listener

WORDS = ("The ", "moon", " is a ", "ball ", "of ", "rock ", "that ", "tra", "vels. ")
STEP_S = 0.02


def talk_events(people: int = 2, duration_s: float = 20.0, seed: int = 0) -> list[tuple[str, Line]]:
    """Return ("server" | "talkers", event) in the order of time."""
    rng = np.random.default_rng(seed)
    made = [("talkers", person(f"person_{i}", i)) for i in range(people)]
    for i in range(people):
        now, count = float(rng.exponential(1.0)), 0
        while now < duration_s:
            count += 1
            one = talk(f"person_{i}-{count}", f"person_{i}", i, now, int(rng.integers(2, 60)), rng)
            made += one
            now = one[-1][1]["t"] + float(rng.exponential(2.0))
    return sorted(made, key=lambda pair: pair[1]["t"])


def person(agent: str, number: int) -> Line:
    slo_class = (VOICE, TEXT)[number % 2].name
    return {
        "event": "person", "t": 0.0, "agent": agent, "slo_class": slo_class, "words_per_s": 3.0,
    }  # fmt: skip


def talk(
    request_id: str, agent: str, number: int, asked_s: float, tokens: int, rng: np.random.Generator
) -> list[tuple[str, Line]]:
    """Return all of one question: its tokens come at about their rate, some of them late."""
    level = (VOICE, TEXT)[number % 2]
    listener, at_s = Listener(3.0), asked_s + float(rng.uniform(0.1, 0.8))
    made = [
        ("talkers", question(asked_s, request_id, agent, level.name)),
        ("server", stream(asked_s + 0.01, request_id, agent, level.slo.tpot_s)),
    ]
    times = []
    for index in range(tokens):
        text = WORDS[index % len(WORDS)]
        listener.receive(text, at_s)
        made += [
            ("server", {"event": "step", "t": at_s - STEP_S, "s": STEP_S, "ids": [request_id]}),
            ("server", chunk(at_s, request_id, index, text, listener.credit_s(at_s),
                             final=index == tokens - 1)),
        ]  # fmt: skip
        times.append(at_s)
        at_s += level.slo.tpot_s * float(rng.uniform(0.5, 1.4)) + 2.0 * (rng.random() < 0.02)
    tpot_s = (times[-1] - times[0]) / max(tokens - 1, 1)
    end = {"event": "end", "t": times[-1], "id": request_id, "code": "none", "message": ""}
    ended = answered(
        times[-1] + 0.01, request_id, agent, ttft_s=times[0] - asked_s, tpot_s=tpot_s,
        slo_met=tpot_s <= level.slo.tpot_s, tokens=tokens, stalled_s=listener.stalled_s,
    )  # fmt: skip
    return [*made, ("server", end), ("talkers", ended)]


def question(t: float, request_id: str, agent: str, slo_class: str = "voice") -> Line:
    return {
        "event": "question", "t": t, "id": request_id, "agent": agent, "slo_class": slo_class,
        "text": "Tell me about the moon.", "conversation": f"{agent}/1", "turn": 0,
    }  # fmt: skip


def stream(t: float, request_id: str, agent: str, tpot_s: float = 0.125) -> Line:
    return {
        "event": "stream", "t": t, "id": request_id, "agent": agent, "ttft_s": 1.0,
        "tpot_s": tpot_s, "deadline_s": None, "weight": 1.0, "words_per_s": 3.0,
    }  # fmt: skip


def chunk(
    t: float, request_id: str, index: int, text: str, credit_s: float, final: bool = False
) -> Line:
    return {
        "event": "chunk", "t": t, "id": request_id, "index": index, "text": text, "final": final,
        "due_s": t + credit_s, "credit_s": round(credit_s, 6),
    }  # fmt: skip


def answered(t: float, request_id: str, agent: str, **changes: Any) -> Line:
    return {
        "event": "answered", "t": t, "id": request_id, "agent": agent, "outcome": "answered",
        "error_code": 0, "error_msg": "", "ttft_s": 0.2, "tpot_s": 0.1, "largest_gap_s": 0.3,
        "completion_s": 2.0, "slo_met": True, "stalls": 0, "stalled_s": 0.0, "tokens": 20,
        "cut": False, "kept_tokens": 0, "recomputed_tokens": 0, **changes,
    }  # fmt: skip
