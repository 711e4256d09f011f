"""What a server may ask of a cloud, and when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from timely_llm.core.request import PlanRequest, Request, RequestMode, StreamRequest


@dataclass(frozen=True)
class HelpSettings:
    """When a cloud is asked, and how its sketch is expanded.

    Attributes:
        timeout_s: longest time that the cloud may take for a sketch, seconds.
        sketch_tokens: most tokens of a sketch.
        sketch_words: words of a sketch of an answer, about.
        max_requests: requests at the edge with which nothing new gets help, whatever its mode.
        auto_tokens: with `AUTO`, least tokens that an answer may have to get help.
        auto_words: with `AUTO`, least words of a task for which a plan gets help.
        auto_requests: with `AUTO`, requests at the edge with which nothing new gets help.
        token_price: with `AUTO`, worth that a token of the cloud costs; 0: none.
        alone_worth: with `AUTO`, worth of a long answer or a plan of the edge alone, beside 1 with
            help.
        opening_tokens: most tokens of the edge's own beginning once a sketch is there.
        part_tokens: most tokens of the expansion of one part.
        lead_s: a part is expanded beside the one before while the listener has words for less time
            than this, seconds.
        plan_lead_s: how long before a robot is through it gets the next segment of an opening, and
            its next step is expanded, seconds.
        most_parallel: most texts of one answer, the opening included, that the edge writes at a
            time.
        plan_candidates: most plans that the edge makes of a sketch's steps, while it has room; from
            2 on a dry run decides between them.
        never_for: agents; nothing of their requests leaves the edge.
        pause_s: after a failure of the cloud, `AUTO` does without it for this time, seconds.
    """

    timeout_s: float = 20.0
    sketch_tokens: int = 256
    sketch_words: int = 60
    max_requests: int = 4
    auto_tokens: int = 200
    auto_words: int = 16
    auto_requests: int = 4
    token_price: float = 0.0
    alone_worth: float = 0.9
    opening_tokens: int = 48
    part_tokens: int = 128
    lead_s: float = 0.3
    plan_lead_s: float = 1.0
    most_parallel: int = 2
    plan_candidates: int = 1
    never_for: Collection[str] = ()
    pause_s: float = 30.0

    def refusal(
        self, request: Request, now: float, failed_s: float, serving: int = 0
    ) -> str | None:
        """Return why no cloud is asked for a request.

        Args:
            request: the request.
            now: seconds on the clock of `failed_s`.
            failed_s: when the cloud failed last.
            serving: requests that the edge serves, parts of others included.

        Returns:
            None: one is asked. Empty: the request does not want it.
        """
        if request.mode is RequestMode.DIRECT:
            return ""
        if request.agent in self.never_for:
            return "nothing of this agent's requests may leave the edge"
        is_auto = request.mode is RequestMode.AUTO
        if serving >= self.max_requests or (is_auto and serving >= self.auto_requests):
            return f"the server has {serving} requests already, and help would delay them"
        if not is_auto:
            return None
        if now < failed_s + self.pause_s:
            return f"the cloud failed in the last {self.pause_s:g} s"
        if isinstance(request, StreamRequest) and request.max_tokens < self.auto_tokens:
            return f"an answer of fewer than {self.auto_tokens} tokens needs no help"
        if isinstance(request, PlanRequest) and len(request.task.split()) < self.auto_words:
            return f"a task of fewer than {self.auto_words} words needs no help"
        return None
