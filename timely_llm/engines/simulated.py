"""An engine without a model: scripted text, step times from a profile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat

from timely_llm.core.clock import Clock, WallClock
from timely_llm.engines.contract import GREEDY, Decoding, Prefix, StepResult
from timely_llm.engines.flights import Flights
from timely_llm.engines.ledger import Ledger
from timely_llm.engines.profiles import Profile
from timely_llm.engines.script_tokenizer import ScriptTokenizer
from timely_llm.engines.track import Admission, Limits
from timely_llm.policies.contract import Capacity, StepPlan

Script = Callable[[str, str], str | Sequence[str]]
"""(key, prompt text) -> the whole answer; as a sequence of texts, each is one token."""


class SimulatedEngine:
    """Keeps books as a real engine does, and lets time pass instead of computing.

    Args:
        profile: how long steps take.
        script: what the model would answer. After outside words it is asked again, with all the
            text so far, and what it then answers follows.
        clock: a clock with `advance` (a virtual one) is advanced by each step; with any other the
            engine sleeps.
        limits: what it takes.
        in_flight: steps that can be submitted before one is collected; they take their time one
            after another.
        ahead: whether a sequence can take part in a step before its newest token has come.
    """

    def __init__(
        self,
        profile: Profile,
        script: Script,
        clock: Clock | None = None,
        limits: Limits | None = None,
        in_flight: int = 1,
        ahead: bool = False,
    ) -> None:
        self.in_flight = in_flight
        self.ahead = ahead
        self.tokenizer = ScriptTokenizer()
        self._profile = profile
        self._script = script
        clock = clock or WallClock()
        self._pass_time: Callable[[float], None] = getattr(clock, "advance", time.sleep)
        self._ledger = Ledger(limits or Limits(), ahead=ahead)
        self._answers: dict[str, Iterator[int]] = {}
        self._flights = Flights[Admission](in_flight)

    @property
    def capacity(self) -> Capacity:
        """What the next step can take."""
        return self._ledger.capacity

    def pin_prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Keep a prefix; it takes no time, as if it had been done before the engine started."""
        known = self._ledger.prefix(token_ids)
        if known is None:
            self._ledger.reserve(token_ids)
            known = self._ledger.pin(token_ids)
        return known

    def prepare_prefix(self, token_ids: Sequence[int], tokens: int) -> int:
        """Take room for a prefix; see `Engine.prepare_prefix`. It takes no time."""
        if self._ledger.prefix(token_ids) is None:
            self._ledger.reserve(token_ids)
        return 0

    def unpin_prefix(self, token_ids: Sequence[int]) -> None:
        """Forget a prefix; see `Engine.unpin_prefix`."""
        self._ledger.unpin(token_ids)

    def add(
        self,
        key: str,
        token_ids: Sequence[int],
        prefix: Prefix | None = None,
        decoding: Decoding = GREEDY,
    ) -> int:
        """Make a sequence known; see `Engine.add`."""
        track = self._ledger.add(key, token_ids, prefix, decoding)
        self._ask(key)
        return track.to_compute

    def submit(self, plan: StepPlan) -> None:
        """Start a step; see `Engine.submit`."""
        self._flights.check_room()
        admission = self._ledger.admit(plan)
        self._ledger.start(admission)
        self._flights.start(admission)

    def collect(self) -> StepResult:
        """Let the step's time pass and return what it did."""
        admission = self._flights.land()
        live = [part for part in admission.parts if part.live]
        new_tokens = {p.track.key: (next(self._answers[p.track.key]),) for p in live if p.finishes}
        result = self._ledger.commit(admission, new_tokens, self._duration_s(admission))
        self._pass_time(result.duration_s)
        return result

    def take_back(self, key: str, tokens: int) -> int:
        """Forget the newest tokens of a sequence; see `Engine.take_back`."""
        return self._ledger.take_back(key, tokens).to_compute  # it guesses nothing

    def append(self, key: str, token_ids: Sequence[int], drop: int = 0) -> int:
        """Add outside words; see `Engine.append`."""
        track = self._ledger.append(key, token_ids, drop)
        self._ask(key)
        return track.to_compute

    def resume(
        self, key: str, new_key: str, token_ids: Sequence[int], decoding: Decoding = GREEDY
    ) -> int:
        """Go on with a sequence under another name; see `Engine.resume`."""
        track = self._ledger.resume(key, new_key, token_ids, decoding)
        del self._answers[key]
        self._ask(new_key)
        return track.to_compute

    def remove(self, key: str) -> None:
        """Free everything of a sequence at once; an unknown key is not an error."""
        self._ledger.remove(key)
        self._answers.pop(key, None)

    def close(self) -> None:
        """Forget everything."""
        self._ledger.clear()
        self._answers.clear()
        self._flights.clear()

    def _ask(self, key: str) -> None:
        """Take the answer of a sequence from the script."""
        prompt = self.tokenizer.decode(self._ledger[key].token_ids)
        said = self._script(key, prompt)
        answer = self.tokenizer.encode(said) if isinstance(said, str) else self.tokenizer.ids(said)
        # A model that was not stopped at its EOS goes on saying it.
        self._answers[key] = chain(answer, repeat(self.tokenizer.eos_id))

    def _duration_s(self, admission: Admission) -> float:
        rows = sum(1 for part in admission.parts if part.tokens == 1)
        if self._profile.prompts_are_free:
            rows = len(admission.parts)
        prefill = sum(part.tokens for part in admission.parts if part.tokens > 1)
        context = sum(part.start for part in admission.parts)
        return self._profile.step_s(rows, prefill, context)
