"""Question sets: what simulated people ask, from YAML."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents.read import load_document
from timely_llm.core.errors import TimelyError
from timely_llm.robots.tasks import WordChoices, check_words, choose_words


class QuestionSetError(TimelyError):
    """A question set cannot be read or is not valid."""


class QuestionSet(BaseModel):
    """Texts of questions, with words that fill their {placeholders}.

    Attributes:
        system: system message of each conversation; empty: none.
        first: questions that begin a conversation.
        later: questions that go on with it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str = ""
    words: WordChoices = {}
    first: list[str] = Field(min_length=1)
    later: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _placeholders_have_words(self) -> QuestionSet:
        check_words((*self.first, *self.later), self.words)
        return self

    def draw(self, first: bool, rng: np.random.Generator) -> str:
        """Return a question with its words filled in."""
        text = str(rng.choice(self.first if first else self.later))
        return text.format(**choose_words(text, self.words, rng))


def load_question_set(path: str | Path) -> QuestionSet:
    """Return the question set in the YAML file at `path`.

    Raises:
        QuestionSetError: one line naming the place and what is allowed there.
    """
    return load_document(path, QuestionSet, "question set", QuestionSetError)
