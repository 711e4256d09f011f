"""The stand-in for a cloud, asked by the client of clouds and by plain HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import pytest

from test.cloud.asking import BOUND_S, Asking, question
from timely_llm.cloud.contract import CloudWords
from timely_llm.cloud.prompts import plan_sketch
from timely_llm.core.clock import WallClock
from timely_llm.demo.stand_in import CloudStandIn
from timely_llm.engines.simulated import Profile, SimulatedEngine

SAID = "Tea cools in a cup."
QUICK = Profile("quick", "this test", base_s=0.0005, row_s=0.0, prefill_token_s=0.0)
SLOW = Profile("slow", "this test", base_s=0.02, row_s=0.0, prefill_token_s=0.0)
CHAT: dict[str, Any] = {"model": "large", "messages": [{"role": "user", "content": "Why?"}]}


def serve(profile: Profile = QUICK, said: str = SAID, most: int = 64) -> CloudStandIn:
    return CloudStandIn(
        lambda: SimulatedEngine(profile, lambda key, prompt: said, WallClock()), "large", most=most
    )


@pytest.fixture(scope="module")
def stand_in() -> Iterator[CloudStandIn]:
    with closing(serve()) as made:
        yield made


def ask(stand_in: CloudStandIn, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return the status and the document of an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", stand_in.server_port, timeout=30)) as line:
        if isinstance(body, int):  # bytes that are announced, and not sent
            line.request(method, path, headers={"Content-Length": str(body)})
        else:
            line.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        response = line.getresponse()
        return response.status, json.loads(response.read())


def test_the_client_of_clouds_gets_an_answer_word_by_word(stand_in: CloudStandIn) -> None:
    with Asking(stand_in.url) as asking:
        for _ in range(2):
            said, end = asking.answer()
            assert (said, end.error) == (SAID, "")
            assert end.prompt_tokens > 0 and end.tokens > 5
        asking.ask(question())
        asking.wait(lambda: bool(asking.ends))
        assert len([event for event in asking.events if isinstance(event, CloudWords)]) > 5
        said, end = asking.answer(question("short", max_tokens=3))
        assert SAID.startswith(said) and said != SAID and end.tokens == 3


def test_an_answer_in_one_piece(stand_in: CloudStandIn) -> None:
    status, answer = ask(stand_in, "POST", "/v1/chat/completions", CHAT)
    assert (status, answer["object"], answer["model"]) == (200, "chat.completion", "large")
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": SAID}
    assert choice["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    status, answer = ask(stand_in, "POST", "/v1/chat/completions", {**CHAT, "max_tokens": 2})
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_small_model_gets_no_instructions_but_the_question_for_steps() -> None:
    asked: list[str] = []

    def said(key: str, prompt: str) -> str:
        asked.append(prompt)
        return SAID

    def engine() -> SimulatedEngine:
        return SimulatedEngine(QUICK, said, WallClock())

    told = {**CHAT, "messages": [{"role": "system", "content": "A list!"}, *CHAT["messages"]]}
    steps = [asdict(message) for message in plan_sketch("Go to the cup.", "g: go to a thing")]
    for heeds in (True, False):
        with closing(CloudStandIn(engine, "large", heeds_system=heeds)) as made:
            assert ask(made, "POST", "/v1/chat/completions", told)[0] == 200
            assert ask(made, "POST", "/v1/chat/completions", {**CHAT, "messages": steps})[0] == 200
    assert ["A list!" in prompt for prompt in asked] == [True, False, False, False]
    assert ["go to a thing" in prompt for prompt in asked] == [False, True, False, True]


def test_its_model_is_listed(stand_in: CloudStandIn) -> None:
    status, models = ask(stand_in, "GET", "/v1/models")
    assert (status, [model["id"] for model in models["data"]]) == (200, ["large"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/v1/chat/completions", b"{", 400, "Invalid JSON"),
        ("POST", "/v1/chat/completions", {"model": "large"}, 400, "messages: Field required"),
        ("POST", "/v1/chat/completions", {**CHAT, "messages": []}, 400, "1 to 256 messages"),
        ("POST", "/v1/chat/completions", {**CHAT, "temperature": 9}, 400, "temperature"),
        ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 0}, 400, "max_tokens"),
        ("POST", "/v1/chat/completions", {**CHAT, "model": "x"}, 404, "no model 'x': 'large' is"),
        ("POST", "/v1/chat/completions", 1_000_001, 413, "1,000,000 bytes"),
        ("POST", "/v1/nothing", CHAT, 404, "there is no '/v1/nothing'"),
        ("GET", "/", None, 404, "there is no '/'"),
        ("DELETE", "/v1/models", None, 501, "Unsupported method"),
    ],
)
def test_a_wrong_request_is_refused_as_openai_does(
    stand_in: CloudStandIn, method: str, path: str, body: Any, status: int, words: str
) -> None:
    found, answer = ask(stand_in, method, path, body)
    assert found == status
    assert words in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_beyond_its_most_answers_it_is_busy_and_a_canceled_one_makes_room() -> None:
    with closing(serve(SLOW, "word " * 500, most=1)) as busy, Asking(busy.url) as asking:
        asking.ask(question("a", max_tokens=400))
        asking.wait(lambda: bool(asking.events))
        status, answer = ask(busy, "POST", "/v1/chat/completions", CHAT)
        assert (status, answer["error"]["type"]) == (429, "rate_limit_error")
        asking.cloud.cancel("a")
        free = threading.Event()
        for _ in range(int(BOUND_S / 0.1)):
            if not busy.answers._server.serving:
                free.set()
                break
            free.wait(0.1)
        assert free.is_set()


def test_an_engine_that_cannot_be_made_frees_the_port() -> None:
    def fail() -> SimulatedEngine:
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        CloudStandIn(fail, "large")


def test_close_ends_an_answer_in_a_sentence() -> None:
    stand_in = serve(SLOW, "word " * 500)
    with Asking(stand_in.url) as asking:
        asking.ask(question("a", max_tokens=400))
        asking.wait(lambda: bool(asking.events))
        stand_in.close()
        asking.wait(lambda: bool(asking.ends))
    assert "failed within its answer: 'the server stops'" in asking.ends[0].error
