"""A dialogue sends only new messages, and all of them to a server that has forgotten the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from timely_llm.core.request import ChatMessage, ErrorCode, StreamChunk, StreamResult
from timely_llm.robots.client.pending import PlanClientError, PlanTimeout
from timely_llm.ros.client.talk import Answer, Dialogue

SOON_S = 0.05


class Server:
    """Answers at once with the question, and keeps conversations as the real server does."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.asked: list[tuple[list[str], int]] = []
        self.silent = self.begins = self.fails = False

    def ask(self, said: Sequence[ChatMessage], /, *, conversation: str, turn: int) -> Answer:
        self.asked.append(([message.content for message in said], turn))
        answer = Answer(str(len(self.asked)), "me", self)
        if turn and self.kept.get(conversation) != turn:
            self._end(answer, ErrorCode.UNKNOWN_CONVERSATION)
        elif self.fails:
            self._end(answer, ErrorCode.ENGINE_FAILED)
        else:
            self.kept[conversation] = turn + 1
            self.open = answer
            self.text = f"{said[-1].content}!"
            if self.begins:
                answer.offer(StreamChunk(answer.request_id, "me", 0, self.text[0]))
            elif not self.silent:
                self._end(answer, ErrorCode.NONE, self.text)
        return answer

    def cancel(self, request_id: str) -> None:
        self._end(self.open, ErrorCode.CANCELED, self.text[:1])

    def _end(self, answer: Answer, code: ErrorCode, text: str = "") -> None:
        error = "" if code is ErrorCode.NONE else code.name
        answer.finish(StreamResult(answer.request_id, "me", code, error, text))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def dialogue(server: Server) -> Dialogue:
    return Dialogue(server.ask, "Be kind.")


def say(dialogue: Dialogue, words: str) -> str:
    text = "".join(dialogue.say(words, SOON_S))
    assert dialogue.finish(SOON_S).text == text
    return text


def test_each_turn_sends_what_is_new(server: Server, dialogue: Dialogue) -> None:
    assert [say(dialogue, "One"), say(dialogue, "Two"), say(dialogue, "Three")] == [
        "One!", "Two!", "Three!",
    ]  # fmt: skip
    assert server.asked == [(["Be kind.", "One"], 0), (["Two"], 1), (["Three"], 2)]


def test_a_server_that_has_forgotten_hears_everything(server: Server, dialogue: Dialogue) -> None:
    say(dialogue, "One")
    server.kept.clear()
    assert say(dialogue, "Two") == "Two!"
    assert server.asked[1:] == [(["Two"], 1), (["Be kind.", "One", "One!", "Two"], 0)]
    say(dialogue, "Three")
    assert server.asked[-1] == (["Three"], 1)


def test_a_new_conversation_knows_nothing_of_the_old_one(
    server: Server, dialogue: Dialogue
) -> None:
    say(dialogue, "One")
    dialogue.begin_anew()
    say(dialogue, "Two")
    assert server.asked[-1] == (["Be kind.", "Two"], 0)
    assert len(server.kept) == 2


def test_the_text_of_a_canceled_answer_is_kept(server: Server, dialogue: Dialogue) -> None:
    server.begins = True
    reading = dialogue.say("One", SOON_S)
    assert next(reading) == "O"
    assert dialogue.finish(SOON_S).error_code is ErrorCode.CANCELED
    server.begins = False
    say(dialogue, "Two")
    server.kept.clear()
    say(dialogue, "Three")
    assert server.asked[-1] == (["Be kind.", "One", "O", "Two", "Two!", "Three"], 0)


def test_before_the_first_message_there_is_nothing_to_finish(dialogue: Dialogue) -> None:
    with pytest.raises(PlanClientError, match="no message was sent"):
        dialogue.finish(SOON_S)


def test_an_error_is_raised_and_its_turn_does_not_count(server: Server, dialogue: Dialogue) -> None:
    server.fails = True
    with pytest.raises(PlanClientError, match="ENGINE_FAILED"):
        list(dialogue.say("One", SOON_S))
    server.fails = False
    say(dialogue, "Two")
    assert server.asked[-1] == (["Be kind.", "Two"], 0)


def test_an_answer_that_failed_is_not_that_of_words_that_were_never_sent(
    server: Server, dialogue: Dialogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fails = True
    with pytest.raises(PlanClientError, match="ENGINE_FAILED"):
        list(dialogue.say("One", SOON_S))

    def interrupt(*_: object, **__: object) -> Answer:
        raise KeyboardInterrupt

    monkeypatch.setattr(dialogue, "_ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(dialogue.say("Two", SOON_S))
    with pytest.raises(PlanClientError, match="no message was sent"):
        dialogue.finish(SOON_S)


def test_a_silent_server_is_given_up(server: Server, dialogue: Dialogue) -> None:
    server.silent = True
    with pytest.raises(PlanTimeout, match="sent nothing within"):
        list(dialogue.say("One", SOON_S))
    assert server.open.done
