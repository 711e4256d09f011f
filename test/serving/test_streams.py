"""Answers of conversations, token by token, through the loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.serving.scripted import ARM, FIND, Scene, request
from timely_llm.core.errors import EngineError, RequestError
from timely_llm.core.request import ChatMessage, ErrorCode, Request, StreamRequest
from timely_llm.core.slo import Slo
from timely_llm.core.step import StepPlan
from timely_llm.policies.fcfs import Stream
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.limits import AdmissionLimits, Timeouts

WORDS = "There is a cup on the chair."


class Never(Stream):
    """Lets the engine rest."""

    def plan(self, now: float, *_: Any) -> StepPlan:
        return StepPlan(wake_s=now + 0.1)


def ask(request_id: str, text: str = "What do you see?", **fields: Any) -> StreamRequest:
    values: dict[str, Any] = {"messages": (ChatMessage("user", text),)}
    return StreamRequest(request_id, fields.pop("agent", "ann"), **(values | fields))


def talk(scene: Scene, first: str, *others: str) -> None:
    """Have a conversation, a turn for each request id."""
    for turn, request_id in enumerate((first, *others)):
        scene.loop.admit(ask(request_id, f"turn {turn}", conversation="c", turn=turn))
        scene.run()


def test_every_token_is_a_chunk() -> None:
    scene = Scene({"r": WORDS}, Stream())
    scene.loop.admit(ask("r"))
    scene.run()
    chunks, result = scene.sink.chunks, scene.sink.answers["r"]
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert "".join(chunk.text for chunk in chunks) == WORDS == result.text
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert {chunk.agent for chunk in chunks} == {"ann"}
    assert (result.error_code, result.cut) == (ErrorCode.NONE, False)
    assert result.generated_tokens == len(chunks)
    assert scene.loop.free_kv_tokens == scene.free_at_start


def test_the_tokens_of_an_answer_that_goes_on_here_are_numbered_on() -> None:
    scene, first = Scene({"r": WORDS}, Stream()), Scene({"r": WORDS}, Stream())
    scene.loop.admit(ask("r", first_token=7))
    first.loop.admit(ask("r"))
    for one in (scene, first):
        one.run()
    chunks = scene.sink.chunks
    assert [chunk.index for chunk in chunks] == list(range(7, 7 + len(chunks)))
    assert scene.sink.answers == first.sink.answers, "its times are those of the tokens made here"


def test_the_result_has_the_times() -> None:
    scene = Scene({"r": WORDS}, Stream())
    scene.loop.admit(ask("r", slo=Slo(ttft_s=0.5, tpot_s=0.03)))
    scene.run()
    result = scene.sink.answers["r"]
    steps = [step.duration_s for step in scene.sink.steps]
    assert result.ttft_s == pytest.approx(steps[0])
    assert result.completion_s == pytest.approx(sum(steps))
    assert result.tpot_s == pytest.approx(sum(steps[1:]) / len(steps[1:]))
    assert result.largest_gap_s == pytest.approx(max(steps[1:]))
    assert result.slo_met
    assert scene.loop.stats.slo_met == 1.0
    assert scene.loop.stats.ttft_s(50) == pytest.approx(steps[0])


def test_a_service_level_can_be_missed() -> None:
    scene = Scene({"r": WORDS}, Stream())
    scene.loop.admit(ask("r", slo=Slo(deadline_s=0.05)))
    scene.run()
    result = scene.sink.answers["r"]
    assert (result.error_code, result.slo_met) == (ErrorCode.NONE, False)


def test_an_answer_is_cut_at_its_most_tokens() -> None:
    scene = Scene({"r": WORDS}, Stream())
    scene.loop.admit(ask("r", max_tokens=3))
    scene.run()
    result = scene.sink.answers["r"]
    assert (result.error_code, result.cut, result.generated_tokens) == (ErrorCode.NONE, True, 3)
    assert WORDS.startswith(result.text)
    assert scene.sink.chunks[-1].final


def test_a_listener_stalls_when_words_come_late() -> None:
    scene = Scene({"r": WORDS, "p": FIND}, Stream())
    scene.loop.admit(ask("r", words_per_s=1000.0))
    scene.run()
    assert scene.sink.answers["r"].stalled_s > 0.0
    slow = Scene({"r": WORDS}, Stream())
    slow.loop.admit(ask("r", words_per_s=1.0))
    slow.run()
    assert slow.sink.answers["r"].stalled_s == 0.0


def test_plans_and_answers_share_the_engine() -> None:
    scene = Scene({"r": WORDS, "p": FIND}, Stream())
    scene.loop.admit(ask("r"))
    scene.loop.admit(request("p"))
    scene.run()
    assert scene.sink.answers["r"].text == WORDS
    assert "".join(scene.sink.texts("p")) == FIND
    assert any(len(step.computed) == 2 for step in scene.sink.steps)


def test_a_later_turn_computes_only_what_is_new() -> None:
    scene = Scene({"r": WORDS, "s": "Yes.", "t": "No."}, Stream())
    talk(scene, "r", "s", "t")
    first, second, third = (scene.sink.answers[key] for key in "rst")
    assert first.kept_tokens == 0
    # All but the newest token, which was generated and not computed.
    assert second.kept_tokens == first.prompt_tokens + first.generated_tokens - 1
    assert third.kept_tokens == second.prompt_tokens + second.generated_tokens - 1
    computed = sum(step.computed.get("s", 0) for step in scene.sink.steps)
    assert computed == second.prompt_tokens - second.kept_tokens + second.generated_tokens - 1
    prompt = scene.prompts["t"][0]
    assert prompt == (
        f"<user>\nturn 0\n<assistant>\n{WORDS}\n<user>\nturn 1\n<assistant>\nYes."
        "\n<user>\nturn 2\n<assistant>\n"
    )
    assert second.recomputed_tokens == 0


def test_a_canceled_answer_is_part_of_the_conversation() -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream())
    scene.loop.admit(ask("r", "first", conversation="c"))
    while len(scene.sink.chunks) < 3:
        scene.loop.turn()
    assert scene.loop.cancel("r", ErrorCode.CANCELED, "enough")
    said = scene.sink.answers["r"].text
    assert 0 < len(said) < len(WORDS)
    scene.loop.admit(ask("s", "second", conversation="c", turn=1))
    scene.run()
    assert f"<assistant>\n{said}\n<user>\nsecond" in scene.prompts["s"][0]
    assert scene.sink.answers["s"].kept_tokens > 0


def test_kept_memory_is_lent_and_computed_again() -> None:
    room = Scene({}).prefix_tokens + 300
    scene = Scene({"r": WORDS, "s": "Yes.", "p": WORDS}, Stream(), kv_tokens=room)
    free = scene.free_at_start
    scene.loop.admit(ask("r", "x " * 60, conversation="c"))
    scene.run()
    kept = free - scene.engine.capacity.free_tokens
    assert scene.loop.free_kv_tokens == free, "no request needs it"
    first = scene.sink.answers["r"]
    assert kept == first.prompt_tokens + first.generated_tokens - 1
    scene.loop.admit(ask("p", "y " * ((free - kept) // 2 - 10), agent="bob"))
    scene.run()
    assert scene.sink.answers["p"].error_code is ErrorCode.NONE
    assert scene.loop.stats.evictions == 1
    scene.loop.admit(ask("s", "And?", conversation="c", turn=1))
    scene.run()
    again = scene.sink.answers["s"]
    assert (again.text, again.kept_tokens) == ("Yes.", 0)
    assert again.recomputed_tokens == kept


def test_a_skill_set_may_have_the_memory_that_is_only_kept() -> None:
    room = Scene({}).prefix_tokens + Scene({}, skill_set=ARM).prefix_tokens
    scene = Scene({"r": WORDS}, Stream(), kv_tokens=room + 20)
    scene.loop.admit(ask("r", conversation="c"))
    scene.run()
    assert scene.engine.capacity.free_tokens < scene.loop.register(ARM)
    assert scene.loop.kept_conversations == 0
    another = ARM.model_copy(update={"name": "another", "prompt": f"Another arm. {ARM.prompt}"})
    with pytest.raises(EngineError, match="no room to pin a prefix"):
        scene.loop.register(another)


@pytest.mark.parametrize("fields", [{"turn": 2}, {"conversation": "d"}, {"agent": "bob"}])
def test_an_unknown_conversation_is_refused(fields: dict[str, Any]) -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream())
    talk(scene, "r")
    values: dict[str, Any] = {"conversation": "c", "turn": 1}
    scene.loop.admit(ask("s", **(values | fields)))
    result = scene.sink.answers["s"]
    assert result.error_code is ErrorCode.UNKNOWN_CONVERSATION
    assert "is kept: send all its messages, with turn 0" in result.error_msg
    assert scene.loop.stats.slo_met == 1.0, "a question that is to be asked anew is no answer"
    # And the one that is kept is still there.
    scene.loop.admit(ask("t", conversation="c", turn=1))
    scene.run()
    assert scene.sink.answers["t"].kept_tokens > 0


def test_a_turn_that_is_too_long_leaves_the_conversation() -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream(), None, AdmissionLimits(300))
    talk(scene, "r")
    scene.loop.admit(ask("s", "long " * 300, conversation="c", turn=1))
    assert scene.sink.answers["s"].error_code is ErrorCode.INVALID_REQUEST
    assert scene.sink.answers["s"].error_msg.startswith("the conversation has ")
    assert "tokens, at most 300 are allowed" in scene.sink.answers["s"].error_msg
    scene.loop.admit(ask("t", conversation="c", turn=1))
    scene.run()
    assert scene.sink.answers["t"].kept_tokens > 0


def test_conversations_are_forgotten() -> None:
    scene = Scene(
        {"r": WORDS}, Stream(), retention=RetentionLimits(max_conversations=2, timeout_s=60.0)
    )
    for name in ("c", "d", "e"):
        scene.loop.admit(ask(name, conversation=name))
        scene.run()
    assert scene.loop.kept_conversations == 2  # the oldest gave way
    scene.loop.admit(ask("s", conversation="c", turn=1))
    assert scene.sink.answers["s"].error_code is ErrorCode.UNKNOWN_CONVERSATION
    scene.clock.advance(61.0)
    scene.loop.turn()
    assert scene.engine.capacity.free_tokens == scene.free_at_start


def test_a_new_beginning_frees_the_old_one() -> None:
    scene = Scene({"r": WORDS, "s": "Yes....No."}, Stream())
    talk(scene, "r")
    scene.loop.admit(ask("s", "anew", conversation="c"))
    scene.run()
    scene.sink.answers.clear()
    scene.loop.admit(ask("s", "the same id", agent="bob"))  # as an id that ended may be
    scene.run()
    assert scene.engine.capacity.free_tokens == scene.free_at_start


def test_a_plan_may_have_the_id_of_an_answer_that_ended() -> None:
    scene = Scene({"r": f"Yes...{FIND}"}, Stream())
    talk(scene, "r")
    scene.sink.answers.clear()
    scene.loop.admit(request("r"))
    scene.run()
    assert scene.sink.results["r"].error_code is ErrorCode.NONE
    assert scene.engine.capacity.free_tokens == scene.free_at_start


def test_an_answer_that_never_begins_expires() -> None:
    scene = Scene({"r": WORDS}, Never(), Timeouts(queue_timeout_s=0.5))
    scene.loop.admit(ask("r"))
    scene.run()
    result = scene.sink.answers["r"]
    assert result.error_code is ErrorCode.EXPIRED
    assert (result.ttft_s, result.text) == (-1.0, "")


def test_control_words_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene({"r": WORDS}, Stream())
    monkeypatch.setattr(scene.engine.tokenizer, "control_text", lambda text: "<|end|>")
    scene.loop.admit(ask("r"))
    assert "a message spells '<|end|>'" in scene.sink.answers["r"].error_msg


def test_an_unknown_kind_of_request_is_refused() -> None:
    with pytest.raises(RequestError, match="a server cannot serve a Request"):
        Scene({}).loop.admit(Request("r", "ann"))


STORY = "A long story of a cup on a chair, which all parts of an answer have in common. "


def part(request_id: str, text: str, answer: str = "x", **fields: Any) -> StreamRequest:
    return ask(request_id, f"{STORY}{text}", part_of=answer, **fields)


def test_a_part_of_an_answer_computes_only_what_differs() -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream())
    for request_id, text in (("r", "One."), ("s", "Another.")):
        scene.loop.admit(part(request_id, text))
        scene.run()
    first, second = scene.sink.answers["r"], scene.sink.answers["s"]
    assert scene.prompts["s"] == [f"<user>\n{STORY}Another.\n<assistant>\n"], "the whole prompt"
    assert second.text == "Yes."
    assert (first.kept_tokens, second.recomputed_tokens) == (0, 0)
    alike = len(scene.engine.tokenizer.encode(f"<user>\n{STORY}"))
    assert second.kept_tokens == alike
    computed = sum(step.computed.get("s", 0) for step in scene.sink.steps)
    assert computed == second.prompt_tokens - alike + second.generated_tokens - 1
    assert scene.loop.free_kv_tokens == scene.free_at_start, "what is kept can be taken"
    assert scene.loop.capacity.free_tokens < scene.free_at_start
    assert scene.loop.cancel("x", ErrorCode.CANCELED, "the answer has ended")
    assert scene.loop.capacity.free_tokens == scene.free_at_start
    assert not scene.loop.cancel("x", ErrorCode.CANCELED, "again")


def test_parts_of_other_answers_share_nothing() -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream())
    for request_id, answer in (("r", "x"), ("s", "y")):
        scene.loop.admit(part(request_id, "One.", answer))
        scene.run()
    assert scene.sink.answers["s"].kept_tokens == 0
    assert scene.loop.kept_tokens == {}, "parts are no conversations"


def test_parts_are_forgotten_after_a_while() -> None:
    scene = Scene({"r": WORDS}, Stream(), retention=RetentionLimits(timeout_s=1.0))
    scene.loop.admit(part("r", "One."))
    scene.run()
    scene.clock.advance(1.1)
    scene.loop.turn()
    assert scene.loop.capacity.free_tokens == scene.free_at_start


def test_the_parts_that_are_kept_are_bounded() -> None:
    scene = Scene(
        dict.fromkeys("rst", WORDS), Stream(), retention=RetentionLimits(max_conversations=2)
    )
    for key in "rst":
        scene.loop.admit(part(key, "One.", answer=key))
        scene.run()
    assert [scene.loop.cancel(key, ErrorCode.CANCELED, "") for key in "rst"] == [False, True, True]


def test_a_part_that_the_server_cannot_read_leaves_what_is_kept() -> None:
    scene = Scene({"r": WORDS, "s": "Yes."}, Stream())
    scene.loop.admit(part("r", "One."))
    scene.run()
    scene.loop.admit(part("bad", "word " * 2000))
    scene.run()
    assert scene.sink.answers["bad"].error_code is ErrorCode.INVALID_REQUEST
    scene.loop.admit(part("s", "Another."))
    scene.run()
    assert scene.sink.answers["s"].kept_tokens > 0


@settings(max_examples=6)
@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(0, 30), st.integers(0, 12)),
        min_size=1, max_size=8,
    ),
    st.integers(150, 300),
)  # fmt: skip
def test_parts_end_whatever_room_there_is_and_nothing_is_left(
    parts: list[tuple[str, int, int]], room: int
) -> None:
    names = [f"r{number}" for number in range(len(parts))]
    kv_tokens = Scene({}).prefix_tokens + room
    scene = Scene(dict.fromkeys(names, WORDS), Stream(), kv_tokens=kv_tokens)
    for name, (answer, alike, turns) in zip(names, parts, strict=True):
        scene.loop.admit(part(name, f"{'so ' * alike}{name}", answer, max_tokens=6))
        scene.turns(turns)
    scene.run()
    ended = [scene.sink.answers[name].error_code for name in names]
    assert ended == [ErrorCode.NONE] * len(names), "what is kept makes room"
    assert scene.loop.free_kv_tokens == scene.free_at_start
    for answer in "xyz":
        scene.loop.cancel(answer, ErrorCode.CANCELED, "")
    assert scene.loop.capacity.free_tokens == scene.free_at_start
