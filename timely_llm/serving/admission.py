"""Admission: from a request to a generation that the engine knows."""

from __future__ import annotations

from dataclasses import replace

from timely_llm.core.clock import SAME
from timely_llm.core.errors import EngineError, EngineLost, PlanError
from timely_llm.core.generation import PlanGeneration, PlanTally
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected
from timely_llm.engines.contract import Decoding, Engine
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.serving.given_plans import GivenDelivery
from timely_llm.serving.journal.saved import SavedRequest
from timely_llm.serving.limits import AdmissionLimits
from timely_llm.serving.prompts import SkillSetPrompts
from timely_llm.serving.removals import Removals

_WARM_UP = ""  # a key that no request has


class Admission:
    """Makes generations of plans.

    Args:
        engine: takes the sequences.
        removals: frees them.
        prompts: the known skill sets.
        limits: what is taken on.
        whole: deliver whole plans.

    Attributes:
        robot_time: how robots' time passes now.
    """

    def __init__(
        self,
        engine: Engine,
        removals: Removals,
        prompts: SkillSetPrompts,
        limits: AdmissionLimits,
        whole: bool,
    ) -> None:
        self._engine = engine
        self._removals = removals
        self._prompts = prompts
        self._limits = limits
        self._whole = whole
        self.robot_time = SAME

    def warm_up(self, skill_set: str) -> None:
        """Let the engine read a skill set's grammar before the first request needs it."""
        grammar = self._prompts.known(skill_set).grammar
        if self._limits.constrained and grammar is not None:
            word = self._engine.tokenizer.encode("a")
            self._engine.add(_WARM_UP, word, None, Decoding(grammar=grammar))
            self._removals.remove(_WARM_UP)

    def begin(
        self, request: PlanRequest, arrival_s: float, tally: PlanTally, epoch: int
    ) -> PlanDelivery:
        """Give a request's prompt to the engine; return the delivery of what it will say.

        Args:
            request: what is asked.
            arrival_s: when it was asked.
            tally: what the request got in earlier epochs.
            epoch: epoch of its segments.

        Raises:
            Rejected: it cannot be taken, and why; the engine does not know it then.
        """
        known = self._prompts.known(request.skill_set)
        self._limits.check_characters(len(request.task), "the task")
        token_ids, prefix = self._prompts.build(request)
        generation = PlanGeneration(
            request.request_id, request, arrival_s, len(token_ids), len(token_ids),
            epoch=epoch, tally=tally, robot_time=self.robot_time,
        )  # fmt: skip
        self._limits.check(len(token_ids))
        most = self._engine.capacity.max_model_len - len(token_ids)
        generation.max_tokens = min(request.max_tokens, most)
        decoding = self._decoding(request)
        try:
            generation.set_progress(self._engine.add(generation.key, token_ids, prefix, decoding))
        except EngineLost:
            raise
        except EngineError as error:
            raise Rejected(ErrorCode.INVALID_REQUEST, str(error)) from error
        tally.prompt_tokens += len(token_ids)
        return PlanDelivery(generation, self._engine.tokenizer, known.checker(), self._whole)

    def _decoding(self, request: PlanRequest) -> Decoding:
        known = self._prompts.known(request.skill_set)
        grammar = known.grammar if self._limits.constrained else None
        return Decoding(request.temperature, request.seed, grammar)

    def go_on(self, generation: PlanGeneration, token_ids: list[int], read: list[int]) -> None:
        """Let a generation that has begun go on behind what another engine has made of it.

        Args:
            generation: the engine has its prompt, and computed nothing of it.
            token_ids: of what follows the prompt.
            read: what a grammar has read of it: it reads no tool output.

        Raises:
            EngineError: the engine does not take it, or the grammar does not allow it.
        """
        key, decoding = generation.key, self._decoding(generation.request)
        if decoding.grammar is None:
            generation.set_progress(self._engine.append(key, token_ids))
            return
        self._removals.remove(key)
        prompt, prefix = self._prompts.build(generation.request)
        decoding = replace(decoding, read=tuple(read))
        generation.set_progress(self._engine.add(key, [*prompt, *token_ids], prefix, decoding))

    def begin_given(self, request: PlanRequest, arrival_s: float) -> GivenDelivery:
        """Check a plan that was written by hand; return its delivery. The engine never sees it.

        Raises:
            Rejected: it is no plan of its skill set, and why.
        """
        known = self._prompts.known(request.skill_set)
        generation = PlanGeneration(
            request.request_id, request, arrival_s, 0, 0,
            epoch=request.epoch, robot_time=self.robot_time,
        )  # fmt: skip
        generation.tally.task = request.task
        try:
            return GivenDelivery(
                generation, self._engine.tokenizer, known.checker(), self._whole, known.skill_set
            )
        except PlanError as error:
            raise Rejected(ErrorCode.MALFORMED_PLAN, str(error)) from error

    def begin_again(self, saved: SavedRequest, now: float) -> PlanDelivery:
        """Begin the newest epoch of a saved plan; return its delivery.

        Raises:
            Rejected: it cannot be taken, and why.
        """
        request = saved.asked
        if request.given_plan:
            return self.begin_given(request, now)
        assert isinstance(saved.request, PlanRequest)
        tally = PlanTally(task=saved.request.task, history=saved.history)
        return self.begin(request, now, tally, saved.epoch)
