"""Chat samples: facts, small talk and short stories put together from chat.yaml."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.tiny_planner.words import THINGS, noun_of, with_article

AFTER_QUESTION, AFTER_ANSWER = "\n<|assistant|>", "<|end|><|user|>"
"""What the chat template writes between the texts of a conversation."""
Chat = tuple[str, str, tuple[str, ...]]  # question, answer, the objects of its key


@cache
def parts() -> dict[str, Any]:
    """Return the content of chat.yaml."""
    text = Path(__file__).with_name("chat.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def chat(rng: random.Random) -> Chat:
    """Return a question, its answer and what the question is about."""
    return rng.choice((_story, _story, _fact, _fact, _small_talk))(rng)


def talk(rng: random.Random) -> Chat:
    """Return a conversation up to the question of its last turn, that turn's answer, and its key.

    An earlier answer may have been cut off, as by the most tokens of an answer.
    """
    turns = [chat(rng) for _ in range(rng.choice((2, 2, 3, 4)))]
    said = ""
    for question, answer, _ in turns[:-1]:
        words = answer.split(" ")
        if rng.random() < 0.2:
            answer = " ".join(words[: rng.randint(1, len(words))])
        said += f"{question}{AFTER_QUESTION}{answer}{AFTER_ANSWER}"
    question, answer, _ = turns[-1]
    objects = tuple(name for _, _, about in turns for name in about)
    return said + question, answer, objects


def _fact(rng: random.Random) -> Chat:
    topic = rng.choice(tuple(parts()["facts"]))
    index = rng.randrange(len(parts()["questions"]))
    sentences = parts()["facts"][topic]
    answer = " ".join(sentences[: rng.choice((4, 5))])
    if rng.random() < 0.3:
        answer = " ".join(sentences[:3]) + "\n\n" + " ".join(sentences[3:])
    return parts()["questions"][index].format(topic), answer, (topic, str(index))


def _small_talk(rng: random.Random) -> Chat:
    talk = rng.choice(parts()["small_talk"])
    ask = rng.choice(talk["ask"])
    more = rng.sample(parts()["more"], rng.choice((1, 2)))
    return ask, " ".join([rng.choice(talk["answer"]), *more]), (ask,)


def _story(rng: random.Random) -> Chat:
    story = parts()["story"]
    hero, thing = rng.choice(story["heroes"]), rng.choice(THINGS)
    while with_article(thing) != f"a {noun_of(thing)}" or thing in (hero, "knife"):
        thing = rng.choice(THINGS)
    who, friend = rng.sample(story["names"], 2)
    words = {"hero": hero, "thing": thing, "who": who, "friend": friend,
             "where": rng.choice(story["places"])}  # fmt: skip
    paragraphs = [
        " ".join(rng.choice(sentence) for sentence in paragraph) for paragraph in story["parts"]
    ]
    answer = ("\n\n" if rng.random() < 0.6 else " ").join(paragraphs)
    return rng.choice(story["ask"]).format(**words), answer.format(**words), (hero, thing)
