"""Chats and requests for code that come at once, after Huang et al. 2025, §5.1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from statistics import fmean

from timely_llm.core.generation import Generation
from timely_llm.core.slo import Slo
from timely_llm.engines.simulated import Profile
from timely_llm.experiments.results.document import RowValue
from timely_llm.experiments.results.metrics import MeasuredRow, plain
from timely_llm.experiments.results.talks import met, slo_of
from timely_llm.experiments.virtual.annealing_testbeds import PREDICTORS
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import LIMITS, SimulationSettings, simulate
from timely_llm.policies.annealing.branches import MOST_NODES
from timely_llm.policies.annealing.lengths import LearnedLengths
from timely_llm.policies.annealing.objective import SizedRequest
from timely_llm.policies.annealing.policy import Annealing
from timely_llm.policies.contract import Policy
from timely_llm.policies.deadline.policy import Deadline
from timely_llm.policies.lengths import AnswerLengths
from timely_llm.traces.model import Conversation, Trace

MOST_TOKENS = 2000
"""Most tokens of a prompt, and of an answer."""

MOST_TRIED = 8
"""Most requests of which `search=exhaustive` tries all orders in experiments."""

MOST_LABELLED = 10
"""Most requests for which `search=exact` finds the best order in experiments."""

SEEN = 200
"""Earlier answers of each type that the policies have learned from."""


@dataclass(frozen=True)
class TaskKind:
    """A type of task, with log-normal lengths.

    Attributes:
        prompt_tokens, output_tokens: (mean, sigma of the logarithm).
        ttft_s, tpot_s, deadline_s: service level.
    """

    prompt_tokens: tuple[float, float]
    output_tokens: tuple[float, float]
    ttft_s: float = 10.0
    tpot_s: float = 0.05
    deadline_s: float = math.inf

    def conversation(self, name: str, draw: Random) -> Conversation:
        """Return a request that comes at once."""
        prompt, output = _tokens(self.prompt_tokens, draw), _tokens(self.output_tokens, draw)
        return Conversation(
            name, 0.0, name, prompt, output, self.ttft_s, self.tpot_s, self.deadline_s,
            max_tokens=MOST_TOKENS,
        )  # fmt: skip


CHAT = TaskKind((161.0, 1.1), (338.0, 0.9))
"""Mean and spread of lengths are this package's."""

CODE = TaskKind((100.0, 0.5), (180.0, 0.5), deadline_s=30.0)
"""180 tokens take the 3 s of the paper's mean request; all else is this package's."""

_WORKLOAD = (
    f"half chats (time to the first token {CHAT.ttft_s:g} s, {1e3 * CHAT.tpot_s:g} ms a token),"
    f" half code (whole answer in {CODE.deadline_s:g} s), {{arrival}}, in random order; log-normal"
    " lengths of up to 2,000 tokens with the means 161 and 338 (chats) and 100 and 180 (code, 3 s),"
    " sigma 1.1, 0.9, 0.5 and 0.5: this package's, since the paper's data sets are not used"
)


WORKLOAD = _WORKLOAD.format(arrival="all at once")
WORKLOAD_OVER_TIME = _WORKLOAD.format(arrival="at Poisson times")


def mixed(count: int, seed: int, rate: float | None = None) -> Trace:
    """Return some requests, half of them chats.

    Args:
        count: of the requests.
        seed: of their lengths, order and times.
        rate: requests a second, at Poisson times; None: all come at once.
    """
    draw = Random(1000 * seed + count)
    kinds = [CHAT, CODE] * (count // 2) + [CHAT] * (count % 2)
    draw.shuffle(kinds)
    made = tuple(kind.conversation(f"r{place}", draw) for place, kind in enumerate(kinds))
    if rate:
        times_s = accumulate(draw.expovariate(rate) for _ in made)
        made = tuple(replace(one, arrival_s=at) for one, at in zip(made, times_s, strict=True))
    return Trace(f"chats and code {count}", "after Huang et al. 2025, §5.1", (), made)


def requests_of(trace: Trace) -> list[SizedRequest]:
    """Return the requests of a workload with their true lengths."""
    made = []
    for talk in trace.conversations:
        whole = talk.deadline_s < math.inf
        limits = (talk.deadline_s, math.inf, math.inf)
        chat = (math.inf, talk.ttft_s, talk.tpot_s)
        made.append(
            SizedRequest(talk.prompt_tokens, talk.output_tokens, *(limits if whole else chat))
        )
    return made


class ErroneousLengths:
    """True lengths with a relative error, as of a length predictor of that accuracy.

    Args:
        trace: the workload.
        error: largest error, as a share of the length; uniform.
        seed: of the errors.
    """

    def __init__(self, trace: Trace, error: float, seed: int) -> None:
        draw = Random(seed)
        self._tokens = {
            talk.id: max(round(talk.output_tokens * (1.0 + draw.uniform(-error, error))), 1)
            for talk in trace.conversations
        }

    def expected(self, generation: Generation) -> int:
        """Return the length of a generation with its error."""
        return self._tokens[generation.key]

    def watch(self, generations: object) -> None:
        """Learn nothing."""


def search_at_length(policy: Annealing) -> None:
    """Let searches take longer than the loop of a server has time for."""
    policy.most_tried, policy.most_labelled = MOST_TRIED, MOST_LABELLED
    policy.most_nodes = MOST_NODES


def prepare(policy: Policy, profile: Profile, seed: int) -> None:
    """Give a policy that predicts what a profiler has measured before: step times and lengths.

    Its searches take the time that they need. `deadline` gets the same lengths.
    """
    if isinstance(policy, Deadline):
        _learn(policy.streams.lengths, seed)
    if not isinstance(policy, Annealing):
        return
    search_at_length(policy)
    policy.predictor = PREDICTORS.get(profile.name)
    if isinstance(policy.output_lengths, LearnedLengths):
        _learn(policy.output_lengths, seed)


def _learn(lengths: LearnedLengths | AnswerLengths, seed: int) -> None:
    """Let a policy learn the lengths of earlier answers."""
    draw = Random(seed + 1)
    for kind in (CHAT, CODE):
        for number in range(SEEN):
            talk = kind.conversation(f"seen{number}", draw)
            slo = Slo(talk.ttft_s, talk.tpot_s, talk.deadline_s)
            lengths.observe((slo, talk.weight), talk.output_tokens)


def serve(trace: Trace, policy: Policy, profile: Profile, batch: int) -> Run:
    """Serve a workload in virtual time, in batches of at most `batch`."""
    settings = SimulationSettings(
        profile=profile, network_s=0.0, limits=replace(LIMITS, max_rows=batch)
    )
    return simulate(trace, policy, settings)


def g_row(run: Run, **names: RowValue) -> MeasuredRow:
    """Return a row with G, its parts, and the columns `names` (Huang et al. 2025, Eq. 2)."""
    talks = run.conversations
    latency_s = math.fsum(talk.completion_s for talk in talks)
    attained = [met(talk) for talk in talks]
    chats = [one for one, talk in zip(attained, talks, strict=True) if not slo_of(talk).real_time]
    return plain(
        {
            **names,
            "g": sum(attained) / latency_s,
            "attainment": fmean(attained),
            "chat_attainment": fmean(chats) if chats else math.nan,
            "latency_s": latency_s / len(talks),
        }
    )


G_DEFINITIONS: Mapping[str, str] = {
    "requests": "requests that come at once",
    "batch": "most requests in a batch",
    "g": "G: requests that met their service level over the sum of all latencies, 1/s (Huang et al."
    " 2025, Eq. 2)",
    "attainment": "share of the requests that met their service level",
    "chat_attainment": "the same, of chats",
    "latency_s": "from arrival to the whole answer, seconds, mean",
}


def _tokens(lengths: Sequence[float], draw: Random) -> int:
    mean, sigma = lengths
    median = mean * math.exp(-sigma * sigma / 2)
    return min(max(round(draw.lognormvariate(math.log(median), sigma)), 1), MOST_TOKENS)
