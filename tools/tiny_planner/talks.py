"""Whether an answer in a conversation is about what was asked last."""

from __future__ import annotations

from tools.tiny_planner.chat_tasks import parts
from tools.tiny_planner.corpus import Sample


def is_right(sample: Sample, answer: str) -> bool:
    """Return whether an answer is one of the right ones.

    These are the topic's facts in their order, the words for a greeting or a joke, and any story
    with the hero and the thing.

    Args:
        sample: of a family of chat; its last objects say what was asked.
        answer: the model's.
    """
    words = " ".join(answer.split())
    *_, topic, last = ("", *sample.objects)
    if topic in parts()["facts"] and last.isdigit():
        facts = parts()["facts"][topic]
        return words in {" ".join(facts[:count]) for count in (4, 5)}
    for talk in parts()["small_talk"]:
        if last in talk["ask"]:
            return any(words.startswith(begins) for begins in talk["answer"])
    return topic in words and last in words and words.endswith((".", "!", "?"))
