"""How long steps take on named hardware: what the simulated engine keeps to."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.core.errors import EngineError


@dataclass(frozen=True)
class Profile:
    """Seconds of a step: `base_s + rows * row_s + prefill * prefill_token_s + context * ...`.

    Attributes:
        name: what users call it.
        source: where the numbers come from.
        base_s: seconds of an empty step.
        row_s: seconds for each sequence that decodes one token.
        prefill_token_s: seconds for each prompt token.
        context_token_s: seconds for each token that is attended to.
    """

    name: str
    source: str
    base_s: float
    row_s: float
    prefill_token_s: float
    context_token_s: float = 0.0

    def step_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the seconds of a step.

        Args:
            rows: sequences that decode one token each.
            prefill_tokens: tokens computed by sequences that compute more than one.
            context_tokens: tokens that the step's sequences attend to.
        """
        return (
            self.base_s
            + self.row_s * rows
            + self.prefill_token_s * prefill_tokens
            + self.context_token_s * context_tokens
        )


DEFAULT_PROFILE = "rtx4090-llama3-8b"

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            DEFAULT_PROFILE,
            "paper 001 (TimelyLLM), Table 1: Llama 3 8B on an RTX 4090",
            base_s=0.0216,
            row_s=0.00015,
            prefill_token_s=0.00011,
        ),
        Profile("millisecond", "made up, for tests: every step takes 1 ms", 0.001, 0.0, 0.0),
    )
}


def step_time_profile(name: str) -> Profile:
    """Return a profile by its name.

    Raises:
        EngineError: there is no profile of that name.
    """
    if name not in PROFILES:
        raise EngineError(f"unknown profile {name!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]
