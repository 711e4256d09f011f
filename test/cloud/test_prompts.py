"""The chats with which a cloud and an edge are asked."""

from __future__ import annotations

from timely_llm.cloud.prompts import answer_sketch, expansion, plan_sketch
from timely_llm.core.request import ChatMessage


def test_a_sketch_of_an_answer_is_asked_after_the_system_s_own_words() -> None:
    chat = (ChatMessage("system", "Be {brief}."), ChatMessage("user", "Why {tea}?"))
    system, user = answer_sketch(chat, words=40, most_parts=6)
    assert system.role == "system" and system.content.startswith("Be {brief}.\n\n")
    assert "1 to 6 short sentences" in system.content and "about 40 words" in system.content
    assert '"Length: 120 words"' in system.content
    assert user == chat[1]


def test_a_sketch_of_a_plan_is_asked_with_the_skills() -> None:
    system, user = plan_sketch("fetch the {cup}", "go(place) {x}\n", most_parts=5)
    assert "skills:\ngo(place) {x}\nWrite" in system.content
    assert "at most 5 simple tasks" in system.content
    assert user == ChatMessage("user", "fetch the {cup}")


def test_all_parts_of_a_sketch_share_the_beginning_of_their_prompts() -> None:
    one, other = (
        expansion("tea.", "1. It cools.\n2. It stains.", s) for s in ("It cools.", "It stains.")
    )
    assert one[0].content == (
        "I have a question about tea. The simplification answer is as follows: 1. It cools.\n2. It"
        " stains. Now, please help me complete and only complete the writing of a short sentence It"
        " cools. Do not continue with other sentences!"
    )
    shared = one[0].content.index("short sentence") + len("short sentence It ")
    assert other[0].content[:shared] == one[0].content[:shared]
    assert [message.role for message in one] == ["user"]
