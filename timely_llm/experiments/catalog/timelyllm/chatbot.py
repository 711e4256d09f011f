"""`timelyllm-chatbot`: stories by sentence, by paragraph, whole (Ling et al. 2024, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from timely_llm.core.documents.read import load_document
from timely_llm.core.time_utility import NORMAL
from timely_llm.engines.paces import step_time_profile
from timely_llm.experiments.contract import Experiment, ExperimentError, PlanOptions, ReportProgress
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.results.document import Paper, RunDocument
from timely_llm.experiments.results.metrics import definition, gains
from timely_llm.experiments.sources import SKIP, given, recipe_of
from timely_llm.experiments.sweep import (
    GAIN_BASELINE,
    GAIN_MEASURES,
    RunSpec,
    Scored,
    document,
    score,
    settings,
)
from timely_llm.experiments.virtual.simulation import SimulationSettings
from timely_llm.resources import resource
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece
from timely_llm.traces.compose import compose
from timely_llm.traces.model import Conversation, Job, SkillTime, Trace, TraceError
from timely_llm.traces.recipes import presets
from timely_llm.traces.tasks import PromptSet, TraceTasks

SplitRule = Literal["sentence", "paragraph"]
RULES: tuple[SplitRule, ...] = ("sentence", "paragraph")

PRESET = "chatbot"
WORDS_PER_TOKEN = 0.75
READING_WORDS_PER_S = 5.0
"""An adult's 300 words a minute (Ling et al. 2024, §7.1)."""

SENTENCE_WORDS, SENTENCE_SPREAD, MOST_SENTENCE_WORDS = 14.0, 0.5, 45
"""Median of a log-normal distribution, standard deviation of the logarithm, and bound."""

PARAGRAPH_SENTENCES = 4.0
"""Mean of the sentences of a paragraph: 1 plus a Poisson number."""

LATE_TOKENS: dict[SplitRule, int] = {"sentence": 1, "paragraph": 0}
"""Tokens after a piece until its end is detected: the white space that begins the next word."""

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
_TEXTS = 1  # stream of random numbers for texts


@lru_cache(maxsize=64)
def stories(
    rule: SplitRule, seed: int, minutes: float | None = None, trace: Trace | None = None
) -> Trace:
    """Return requests for stories as jobs. Readers read the segments one after the other.

    The preset `chatbot`, or the conversations of a trace, give people, prompts, arrivals and
    lengths of stories. Texts are synthetic and the same for both rules. The stop checker of the
    rule cuts them.

    Args:
        rule: the boundary of segments.
        seed: seed of arrivals, prompts and texts.
        minutes: length of the workload; None: as the preset says.
        trace: conversations in place of the preset's.
    """
    rng = np.random.default_rng([seed, _TEXTS])
    if trace is None:
        talks, source = _talks(seed, minutes), f"preset {PRESET}, seed {seed}"
    else:
        talks, source = trace.conversations, f"conversations of {trace.name}, seed {seed}"
    jobs = tuple(_job(talk, rule, story(rng, talk.output_tokens)) for talk in talks)
    return Trace(f"stories by the {rule}", source, jobs)


def story(rng: np.random.Generator, tokens: int) -> str:
    """Return a text of about `tokens` tokens, with the punctuation of stories.

    It has at least two paragraphs. The first one has at most half of its words.
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
    """Return the tokens from one detected end of a piece to the next."""
    words = accumulate(len(piece.text.split()) for piece in pieces)
    ends = [round(count / WORDS_PER_TOKEN) for count in words]
    seen = [0, *(end + late_tokens for end in ends[:-1]), ends[-1]]
    return tuple(max(end - begin, 1) for begin, end in pairwise(seen))


def _talks(seed: int, minutes: float | None) -> tuple[Conversation, ...]:
    """Return the requests for stories: people, arrivals and lengths."""
    recipe = recipe_of(presets()[PRESET], seed, minutes)
    prompts = load_document(
        resource("config/traces/story_prompts.yaml"), PromptSet, "prompts", TraceError
    )
    no_tasks = TraceTasks.model_construct(tasks={})
    return compose(recipe, no_tasks, {}, prompts, PRESET).conversations


def _job(talk: Conversation, rule: SplitRule, text: str) -> Job:
    reader = SkillSet(
        name=rule, prompt="Write a story.", language=rule, words_per_s=READING_WORDS_PER_S
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
    """Return a sentence of `words` words."""
    chosen = [_WORDS[place] for place in rng.integers(len(_WORDS), size=words)]
    chances = rng.random(words - 1)  # the end of the sentence follows the last word
    for place in np.flatnonzero(chances < _ABBREVIATION + _COMMA):
        if chances[place] < _ABBREVIATION:
            chosen[place] = str(rng.choice(_ABBREVIATIONS))
        else:
            chosen[place] += ","
    text = " ".join(chosen)
    text = text[0].upper() + text[1:] + str(rng.choice(_ENDS, p=_END_SHARES))
    return f"“{text}”" if rng.random() < _QUOTED else text


LLAMA, PHI = "rtx4090-llama3-8b", "rtx4090-phi3-mini"

EQUATION_4 = "timely:segment_tokens=20"
"""`timely` with the longest segment of the published presets for chatbots, and Eq. 4 as order."""

BY_READING = f"{EQUATION_4}:order=reading"
"""The paper's for chatbots: "based solely on the estimated reading time" (§7.1)."""

WHOLE = "none"
KEYS = ("profile", "load", "policy", "rule")
SHARED_TOKENS, OWN_TOKENS = 30, 30
"""Tokens of a prompt: a storyteller's instruction, and a wish of about 20 words."""

_RULE = (
    "boundary at which a story is delivered and its generation may be suspended; none: the story is"
    " delivered whole"
)

FIGURE_10 = Paper(
    title="Ling et al. 2024, Figure 10 and §7.4.2",
    note="The best case, sentences on Phi 3: utility is higher by 21.57 and delay shorter by 96 %"
    " than under vLLM. The paper states no numbers for paragraphs, which are worse on both models."
    " A request earns 1 at most, so a gain of 21.57 counts utility below 0. Prompts of"
    " WritingPrompts, Llama 3 8B and Phi 3 mini on an RTX 4090 in vLLM. The paper states neither"
    " the rate of requests nor the lengths of stories.",
    rows=(
        {"profile": PHI, "load": 1, "policy": BY_READING, "rule": "sentence", "utility_gain": 21.57,
         f"waiting_s_vs_{GAIN_BASELINE}": 0.04},
    ),
)  # fmt: skip

NOTES = (
    "The time utility is the paper's: 1 within 1 s, and 2 less for each further second.",
    "Stories are synthetic. Their lengths are log-normal around the prompt's typical length."
    f" Lengths of sentences are log-normal, median {SENTENCE_WORDS:g} words, sigma"
    f" {SENTENCE_SPREAD:g}, at most {MOST_SENTENCE_WORDS}. Paragraphs have 1 plus a Poisson number"
    f" of sentences, {PARAGRAPH_SENTENCES:g} in the mean. A story has at least two paragraphs."
    f" A token is {WORDS_PER_TOKEN:g} words. The package's stop checkers cut the stories.",
    "`timely` with `order=reading` orders segments by the end of reading alone, as §7.1 has it;"
    " without, by Eq. 4. The longest segment of both is the published presets' 20 tokens.",
    "`timely` has batches of at most 8, as the code of Ling et al. 2024 has; with"
    " `rows=256:admissions=8` it has batches as large as the engine's.",
    f"The end of a sentence is detected {LATE_TOKENS['sentence']} token late, with the white space"
    " that begins the next word.",
)


@dataclass(frozen=True)
class ChatbotOptions(PlanOptions):
    """Options of `timelyllm-chatbot`.

    Attributes:
        trace: a file of conversations in place of the preset's: people, arrivals and lengths.
    """

    policies: tuple[str, ...] = (
        *(GAIN_BASELINE, "stream", BY_READING, EQUATION_4, f"{BY_READING}:lead_s=0.5"),
        *(f"{BY_READING}:rows=256:admissions=8", "deadline"),
    )
    profile: str = f"{LLAMA},{PHI}"
    loads: tuple[int, ...] = (1, 4)
    seeds: int = 3
    minutes: float | None = 1.5
    network_s: float = 0.008
    trace: Path | None = None


def run(options: ChatbotOptions, progress: ReportProgress) -> RunDocument:
    """Return the results of readers, by profile, load, policy and rule.

    `options.profile` may name several profiles, separated by commas.

    Raises:
        TimelyError: an option is not possible.
    """
    trace = _given(options)
    names = [name.strip() for name in options.profile.split(",")]
    profiles = {name: step_time_profile(name) for name in names}
    cases = [
        RunSpec(stories(rule or RULES[0], seed, options.minutes, trace), spec,
             _settings(options, profile, load, seed),
             {"profile": profile, "policy": spec.text, "rule": rule or WHOLE, "load": load,
              "seed": seed})
        for profile in profiles
        for load in options.loads
        for spec, rule in _pairs(options)
        for seed in options.each_seed
    ]  # fmt: skip
    scored = run_all(score, cases, options.jobs, progress)
    rows = gains((row for one in scored for row in one.task_rows), KEYS[:-1], GAIN_BASELINE)
    made = document(
        EXPERIMENT,
        replace(options, profile=names[0]),
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=GAIN_MEASURES,
        definitions={"rule": _RULE, **definition(GAIN_BASELINE)},
        papers=(FIGURE_10,),
        notes=NOTES,
    )
    setup = {
        **made.setup,
        "step times": "; ".join(f"{name}: {one.source}" for name, one in profiles.items()),
        "workload": trace.name
        if trace
        else f"preset {PRESET}, composed anew for each seed: people who ask for stories",
        "load": "requests for each story, 0.2 ms apart, each by another person",
        "prompt tokens, shared and computed once": SHARED_TOKENS,
        "prompt tokens computed for each request": OWN_TOKENS,
        "execution times": f"reading, {READING_WORDS_PER_S:g} words a second",
    }
    return made.model_copy(update={"profile": options.profile, "setup": setup})


def _given(options: ChatbotOptions) -> Trace | None:
    """Return the user's trace, None without one.

    Raises:
        TimelyError: it cannot be read, has too few conversations, or minutes are given beside it.
    """
    if options.trace is None:
        return None
    if options.minutes != ChatbotOptions.minutes:
        raise ExperimentError("a trace has its own length: leave out minutes")
    trace = given(options.trace)
    if (count := len(trace.conversations)) <= SKIP:
        raise ExperimentError(
            f"{options.trace.name} has {count} conversations, and the first {SKIP} do not count"
        )
    return trace


def _pairs(options: ChatbotOptions) -> Iterator[tuple[PolicySpec, SplitRule | None]]:
    """Yield each policy with each rule; a policy of whole plans has no rule."""
    for spec in chosen(options.policies, options.harness, options.uncached):
        rules = (None,) if spec.make().whole_plans else RULES
        yield from ((spec, rule) for rule in rules)


def _settings(options: ChatbotOptions, profile: str, load: int, seed: int) -> SimulationSettings:
    made = settings(replace(options, profile=profile), load, seed)
    return replace(made, shared_tokens=SHARED_TOKENS, own_tokens=OWN_TOKENS)


EXPERIMENT = Experiment(
    name="timelyllm-chatbot",
    question="How long do readers wait if stories are delivered by sentence or by paragraph?"
    " (Ling et al. 2024, Figure 10)",
    run=run,
    defaults=ChatbotOptions(),
)
