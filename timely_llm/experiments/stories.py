"""Workloads of people who ask for stories and read them as they come (paper 001 §7.4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal

import numpy as np

from timely_llm.core.documents import load_document
from timely_llm.core.time_utility import NORMAL
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece
from timely_llm.traces.compose import compose
from timely_llm.traces.model import Conversation, Job, SkillTime, Trace, TraceError
from timely_llm.traces.recipes import presets
from timely_llm.traces.tasks import Prompts, TraceTasks

Rule = Literal["sentence", "paragraph"]
RULES: tuple[Rule, ...] = ("sentence", "paragraph")

PRESET = "chatbot"
WORDS_PER_TOKEN = 0.75
READING_WORDS_PER_S = 5.0
"""An adult's 300 words a minute (paper 001 §7.1)."""

SENTENCE_WORDS, SENTENCE_SPREAD, MOST_SENTENCE_WORDS = 14.0, 0.5, 45
"""Median of a log-normal distribution, standard deviation of the logarithm, and bound."""

PARAGRAPH_SENTENCES = 4.0
"""Mean of one and a Poisson number."""

LATE_TOKENS: dict[Rule, int] = {"sentence": 1, "paragraph": 0}
"""Tokens after a piece's last one until its end is seen: white space begins the next word."""

_QUOTED, _COMMA, _ABBREVIATION = 0.12, 0.08, 0.01
_ENDS = (".", "?", "!", "…", "...")
_END_SHARES = (0.82, 0.07, 0.07, 0.02, 0.02)
_ABBREVIATIONS = ("Mr.", "Mrs.", "Dr.", "St.")
_VOCABULARY = (
    "the a and of to in it was she he that her his with for at on had but they as from out up"
    " one old light keeper letter lamp door night sea wind clock village snow story window hand"
    " mother train stone bread market whistled opened waited walked remembered knew came began"
    " slowly never again under between silence morning"
)
_WORDS = tuple(_VOCABULARY.split())
_TEXTS = 1  # what the randomness is for


@lru_cache(maxsize=64)
def stories(rule: Rule, seed: int) -> Trace:
    """Return people's requests for stories as jobs whose segments are read one after the other.

    Who asks what and when, and how many tokens the story has, is the preset `chatbot`'s. The texts
    are made up, and the same for both rules; the stop checker of the rule cuts them.

    Args:
        rule: where stories are cut.
        seed: of the arrivals, the choice of prompts, and the texts.
    """
    rng = np.random.default_rng([seed, _TEXTS])
    jobs = tuple(_job(talk, rule, story(rng, talk.output_tokens)) for talk in _talks(seed))
    return Trace(f"stories by the {rule}", f"preset {PRESET}, seed {seed}", jobs)


def story(rng: np.random.Generator, tokens: int) -> str:
    """Return a text of about so many tokens, with the punctuation of stories.

    It has two paragraphs or more: the first one has at most half of its words.
    """
    left = max(round(tokens * WORDS_PER_TOKEN), 2)
    paragraphs: list[str] = []
    while left > 0:
        room = left if paragraphs else left // 2
        sentences = list(_sentences(rng, room))
        left -= sum(len(sentence.split()) for sentence in sentences)
        paragraphs.append(" ".join(sentences))
    return "\n\n".join(paragraphs)


def segment_tokens(pieces: list[Piece], late_tokens: int) -> tuple[int, ...]:
    """Return how many tokens are generated until the end of each piece is seen, one by one."""
    words = accumulate(len(piece.text.split()) for piece in pieces)
    ends = [round(count / WORDS_PER_TOKEN) for count in words]
    seen = [0, *(end + late_tokens for end in ends[:-1]), ends[-1]]
    return tuple(max(end - begin, 1) for begin, end in pairwise(seen))


def _talks(seed: int) -> tuple[Conversation, ...]:
    """Return who asks when for how long a story."""
    recipe = presets()[PRESET].model_copy(update={"seed": seed})
    prompts = load_document(
        resource("config/traces/story_prompts.yaml"), Prompts, "prompts", TraceError
    )
    no_tasks = TraceTasks.model_construct(tasks={})
    return compose(recipe, no_tasks, {}, prompts, PRESET).conversations


def _job(talk: Conversation, rule: Rule, text: str) -> Job:
    reader = SkillSet(
        name=rule, prompt="Tell a story.", language=rule, words_per_s=READING_WORDS_PER_S
    )
    pieces = [piece for piece in cut(reader, text) if isinstance(piece, Piece)]
    return Job(
        id=talk.id,
        arrival_s=talk.arrival_s,
        agent=talk.agent,
        task="story",
        skill_set=reader.name,
        text=talk.text,
        time_utility=NORMAL,
        skill_times=tuple(SkillTime("read", piece.predicted_s) for piece in pieces),
        plan=text,
        segment_tokens=segment_tokens(pieces, LATE_TOKENS[rule]),
    )


def _sentences(rng: np.random.Generator, most_words: int) -> Iterator[str]:
    """Yield the sentences of a paragraph."""
    left = most_words
    for _ in range(1 + int(rng.poisson(PARAGRAPH_SENTENCES - 1))):
        drawn = round(SENTENCE_WORDS * float(rng.lognormal(0.0, SENTENCE_SPREAD)))
        words = min(max(drawn, 1), MOST_SENTENCE_WORDS, left)
        if words:
            yield _sentence(rng, words)
        left -= words


def _sentence(rng: np.random.Generator, words: int) -> str:
    """Return one sentence of so many words."""
    said = [_WORDS[place] for place in rng.integers(len(_WORDS), size=words)]
    chances = rng.random(words - 1)  # the last word is followed by the sentence's end
    for place in np.flatnonzero(chances < _ABBREVIATION + _COMMA):
        if chances[place] < _ABBREVIATION:
            said[place] = str(rng.choice(_ABBREVIATIONS))
        else:
            said[place] += ","
    text = " ".join(said)
    text = text[0].upper() + text[1:] + str(rng.choice(_ENDS, p=_END_SHARES))
    return f"“{text}”" if rng.random() < _QUOTED else text
