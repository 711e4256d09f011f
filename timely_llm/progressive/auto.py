"""Whether a request of mode AUTO gets help: by its worth, less the cloud's price."""

from __future__ import annotations

from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    PlanResult,
    Request,
    Result,
    StreamResult,
)
from timely_llm.progressive.choice import KindLengths, Way, best_way
from timely_llm.progressive.settings import HelpSettings

_PLAN, _ANSWER = "plan", "answer"


class AutoHelp:
    """Learns how long answers are and how many tokens of the cloud they take.

    An answer with help is worth 1. One of the edge alone is worth `alone_worth`, or 1 if it has
    fewer than `auto_tokens` tokens. Both begin at once with words of the edge, so they are alike
    in time.

    Args:
        settings: of the help.
    """

    def __init__(self, settings: HelpSettings) -> None:
        self._settings = settings
        self._made = KindLengths()
        self._asked = KindLengths(settings.sketch_tokens)

    def learn(self, result: Result) -> None:
        """Take how a request ended; one that failed says nothing."""
        if not isinstance(result, PlanResult | StreamResult):
            return
        if result.error_code is ErrorCode.NONE:
            kind = _PLAN if isinstance(result, PlanResult) else _ANSWER
            self._made.learn(kind, result.generated_tokens)
            if result.cloud_tokens:
                self._asked.learn(kind, result.cloud_tokens)

    def refusal(self, request: Request) -> str | None:
        """Return why help is not worth its price; None: it is, or it costs nothing."""
        settings = self._settings
        if not settings.token_price:
            return None
        plans = isinstance(request, PlanRequest)
        kind = _PLAN if plans else _ANSWER
        lengths = [min(tokens, request.max_tokens) for tokens in self._made.known(kind)]
        long = [tokens for tokens in lengths if plans or tokens >= settings.auto_tokens]
        gain = (1.0 - settings.alone_worth) * len(long) / len(lengths)
        asked = self._asked.mean(kind)
        ways = (
            Way("alone", 1.0 - gain, _at_once, lambda tokens: 0.0),
            Way("help", 1.0, _at_once, lambda tokens: asked),
        )
        if best_way(ways, lengths, lambda seconds: 1.0, settings.token_price).name == "help":
            return None
        cost = settings.token_price * asked
        return f"help would cost {cost:.3g}, for about {asked:.0f} tokens, and gain {gain:.3g}"


def _at_once(tokens: float) -> float:
    return 0.0
