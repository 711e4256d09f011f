"""Admission: from a request to a generation that the engine knows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from timely_llm.core.errors import EngineError, EngineLost
from timely_llm.core.generation import PlanGeneration, PlanTally
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.serving.prompts import Prompts
from timely_llm.serving.removals import Removals

MAX_TOKEN_CHARACTERS = 8
"""Characters of a token, in the mean of a long text: texts of any language have fewer."""
_WARM_UP = ""  # a key that no request has


@dataclass(frozen=True)
class AdmissionLimits:
    """What a loop takes on.

    Attributes:
        max_prompt_tokens: tokens of the longest prompt, the shared part included.
        constrained: allow the model only tokens that its skill set's grammar allows.
    """

    max_prompt_tokens: float = math.inf
    constrained: bool = False

    def check_characters(self, characters: int, what: str = "the prompt") -> None:
        """Find out whether a text of so many characters can be within the limit.

        So no text is made tokens for that cannot be taken: that would hold up the steps of others.

        Raises:
            Rejected: it is too long.
        """
        most = MAX_TOKEN_CHARACTERS * self.max_prompt_tokens
        if characters > most:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{what} has {characters} characters, at most {most:g} are taken where prompts may"
                f" have {self.max_prompt_tokens:g} tokens",
            )

    def check(self, tokens: int, what: str = "the prompt") -> None:
        """Find out whether a prompt of so many tokens is taken.

        Raises:
            Rejected: it is too long.
        """
        if tokens > self.max_prompt_tokens:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{what} has {tokens} tokens, at most {self.max_prompt_tokens:g} are allowed",
            )


class Admission:
    """Makes generations of plans.

    Args:
        engine: takes the sequences.
        removals: frees them.
        prompts: the known skill sets.
        limits: what is taken on.
        whole: deliver whole plans.
    """

    def __init__(
        self,
        engine: Engine,
        removals: Removals,
        prompts: Prompts,
        limits: AdmissionLimits,
        whole: bool,
    ) -> None:
        self._engine = engine
        self._removals = removals
        self._prompts = prompts
        self._limits = limits
        self._whole = whole

    def warm_up(self, skill_set: str) -> None:
        """Let the engine read a skill set's grammar now, not while somebody waits."""
        grammar = self._prompts.known(skill_set).grammar
        if self._limits.constrained and grammar is not None:
            word = self._engine.tokenizer.encode("a")
            self._engine.add(_WARM_UP, word, None, Decoding(grammar=grammar))
            self._removals.remove(_WARM_UP)

    def begin(
        self, request: PlanRequest, arrival_s: float, tally: PlanTally, epoch: int = 0
    ) -> PlanDelivery:
        """Give a request's prompt to the engine; return the delivery of what it will say.

        Args:
            request: what is asked.
            arrival_s: when it was asked.
            tally: what the request got in earlier epochs.
            epoch: how many plans were made for it before.

        Raises:
            Rejected: it cannot be taken, and why; the engine does not know it then.
        """
        known = self._prompts.known(request.skill_set)
        self._limits.check_characters(len(request.task), "the task")
        token_ids, prefix = self._prompts.build(request)
        generation = PlanGeneration(
            request.request_id, request, arrival_s, len(token_ids), len(token_ids),
            epoch=epoch, tally=tally,
        )  # fmt: skip
        tally.prompt_tokens += len(token_ids)
        self._limits.check(len(token_ids))
        most = self._engine.capacity.max_model_len - len(token_ids)
        generation.max_tokens = min(request.max_tokens, most)
        grammar = known.grammar if self._limits.constrained else None
        decoding = Decoding(request.temperature, request.seed, grammar)
        try:
            generation.to_compute = self._engine.add(generation.key, token_ids, prefix, decoding)
        except EngineLost:
            raise
        except EngineError as error:
            raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from error
        generation.shared_tokens = len(token_ids) - generation.to_compute
        generation.context_tokens = generation.shared_tokens
        return PlanDelivery(generation, self._engine.tokenizer, known.checker(), self._whole)
