"""Words with which a cloud is asked for a sketch, and an edge to expand one part of it."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.core.request import ChatMessage

_ANSWER = (
    "Write only a sketch of your answer to the last message of the user: a numbered list of {parts}"
    " short sentences, one a line, together about {words} words. Each sentence says one point"
    " completely, so that another writer can expand it without the others. Leave out all words that"
    " the writer can add. Do not greet, explain or repeat the question. In the first line write the"
    ' length that the whole answer should have, such as "Length: 120 words".'
)
_PLAN_SKETCH = "Write only a sketch of a plan for the task of the user:"
_PLAN = (
    "A robot has these skills:\n{skills}\n"
    f"{_PLAN_SKETCH}"
    " a numbered list of at most {parts} simple tasks, one a line, in the order in which the robot"
    " does them. Each task says in a few words what to do with which thing, so that it can be"
    " planned alone with these skills. Write no code. Do not greet, explain or repeat the task."
)


def answer_sketch(
    messages: Sequence[ChatMessage], words: int, most_parts: int = 12
) -> tuple[ChatMessage, ...]:
    """Return the chat that asks for a sketch of an answer and for the answer's expected length.

    Zhan et al. 2025, §IV-A, have both written by the cloud, and give the sketch's length in the
    prompt; their prompt is not published. The form follows the skeletons of Ning et al. 2024.

    Args:
        messages: the conversation; the last message is the user's.
        words: length of the sketch, words.
        most_parts: most sentences of the sketch.
    """
    parts = "1" if most_parts == 1 else f"1 to {most_parts}"
    instruction = _ANSWER.format(parts=parts, words=words)
    return _instructed(instruction, messages)


def plan_sketch(task: str, skills: str, most_parts: int = 8) -> tuple[ChatMessage, ...]:
    """Return the chat that asks for a sketch of a plan.

    Args:
        task: what the robot should do.
        skills: what it can do, such as `SkillSet.prompt_text`.
        most_parts: most tasks of the sketch.
    """
    instruction = _PLAN.format(skills=skills.strip(), parts=most_parts)
    return _instructed(instruction, [ChatMessage("user", task)])


def asks_plan_sketch(message: ChatMessage) -> bool:
    """Return whether a message is the instruction of `plan_sketch`."""
    return message.role == "system" and _PLAN_SKETCH in message.content


def expansion(query: str, sketch: str, sentence: str) -> tuple[ChatMessage, ...]:
    """Return the chat that asks an edge to expand one sentence of a sketch.

    The words are those of Zhan et al. 2025, §IV-B, "The prompt template is as follows". There they
    are the system's; here they are the user's, as many templates take no chat without one. All
    sentences of a whole sketch share everything up to the last one. A prompt computes only what
    differs from that of an earlier sentence that has ended.

    Args:
        query: what was asked.
        sketch: the whole sketch.
        sentence: the sentence to expand.
    """
    query, sketch, sentence = (text.strip(" .\n") for text in (query, sketch, sentence))
    words = (
        f"I have a question about {query}. The simplification answer is as follows: {sketch}. Now,"
        f" please help me complete and only complete the writing of a short sentence {sentence}."
        " Do not continue with other sentences!"
    )
    return (ChatMessage("user", words),)


def _instructed(instruction: str, messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return messages after one instruction; a system's own words stand before it."""
    system = [m.content for m in messages if m.role == "system"]
    rest = [m for m in messages if m.role != "system"]
    return (ChatMessage("system", "\n\n".join([*system, instruction])), *rest)
