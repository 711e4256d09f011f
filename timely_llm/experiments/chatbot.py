"""`timelyllm-chatbot`: stories in sentences, in paragraphs, and whole (paper 001, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from timely_llm.engines.profiles import step_time_profile
from timely_llm.experiments.case import Case
from timely_llm.experiments.contract import SIMULATED, Experiment, Options
from timely_llm.experiments.document import Paper, RunDocument
from timely_llm.experiments.gains import UNBOUNDED, definition, gains
from timely_llm.experiments.parallel import run_all
from timely_llm.experiments.policy_spec import PolicySpec, chosen
from timely_llm.experiments.simulation import Settings
from timely_llm.experiments.stage import Progress
from timely_llm.experiments.stories import (
    LATE_TOKENS,
    MOST_SENTENCE_WORDS,
    PARAGRAPH_SENTENCES,
    PRESET,
    READING_WORDS_PER_S,
    RULES,
    SENTENCE_SPREAD,
    SENTENCE_WORDS,
    WORDS_PER_TOKEN,
    Rule,
    stories,
)
from timely_llm.experiments.sweep import Scored, document, score, settings

BASELINE = "fcfs"
LLAMA, PHI = "rtx4090-llama3-8b", "rtx4090-phi3-mini"
WHOLE = "none"
KEYS = ("profile", "load", "policy", "rule")
SHARED_TOKENS, OWN_TOKENS = 30, 30
"""Of a prompt: a storyteller's instruction, and a wish of some 20 words."""

MEASURES = (
    "utility",
    "utility_unclamped",
    "utility_gain",
    "share_served",
    "response_s",
    "waiting_s",
    f"waiting_s_vs_{BASELINE}",
)

_RULE = (
    "where a story is cut, so that reading begins and the model may turn to others; none: read when"
    " all of it is there"
)

FIGURE_10 = Paper(
    title="Paper 001, Figure 10 and §7.4.2",
    note="The best case, sentences on Phi 3: utility higher by 21.57, and 96 % less delay than with"
    " vLLM; sentences are better than paragraphs on both models, in words only. So large a gain"
    " counts utility below 0: nobody can earn more than 1. Prompts of WritingPrompts, Llama 3 8B"
    " and Phi 3 mini on an RTX 4090 in vLLM; how often people ask, and how long the stories are, is"
    " not said.",
    rows=(
        {"profile": PHI, "load": 1, "policy": "timely", "rule": "sentence", "utility_gain": 21.57,
         f"waiting_s_vs_{BASELINE}": 0.04},
    ),
)  # fmt: skip

NOTES = (
    "The time utility is the paper's: worth 1 within 1 s, 2 less for each second more.",
    "Stories are made up: a text's length is the prompt's typical one, log-normal; sentences have"
    f" log-normal lengths, median {SENTENCE_WORDS:g} words, sigma {SENTENCE_SPREAD:g}, at most"
    f" {MOST_SENTENCE_WORDS}; paragraphs 1 and Poisson, {PARAGRAPH_SENTENCES:g} sentences in the"
    f" mean; a story has two paragraphs at least; {WORDS_PER_TOKEN:g} words a token. The package's"
    " own stop checkers cut them.",
    f"`timely` takes at most 8 at a time, as paper 001's code does; `{UNBOUNDED}` as many as the"
    " engine.",
    f"A sentence's end is seen {LATE_TOKENS['sentence']} token late, with the white space that"
    " begins the next word.",
)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what readers of stories get, by profile, load, policy and rule.

    `options.profile` may name several profiles, with commas between them.

    Raises:
        TimelyError: something of the options is not possible.
    """
    names = [name.strip() for name in options.profile.split(",")]
    profiles = {name: step_time_profile(name) for name in names}
    cases = [
        Case(stories(rule or RULES[0], seed), spec, _settings(options, profile, load, seed),
             {"profile": profile, "policy": spec.text, "rule": rule or WHOLE, "load": load,
              "seed": seed})
        for profile in profiles
        for load in options.loads
        for spec, rule in _pairs(options)
        for seed in range(options.seeds)
    ]  # fmt: skip
    scored = run_all(score, cases, options.jobs, progress)
    rows = gains((row for one in scored for row in one.task_rows), KEYS[:-1], BASELINE)
    made = document(
        EXPERIMENT,
        replace(options, profile=names[0]),
        [Scored(row, ()) for row in rows],
        keys=KEYS,
        measures=MEASURES,
        definitions={"rule": _RULE, **definition(BASELINE)},
        papers=(FIGURE_10,),
        notes=NOTES,
    )
    setup = {
        **made.setup,
        "step times": "; ".join(f"{name}: {one.source}" for name, one in profiles.items()),
        "workload": f"preset {PRESET}, composed anew for each seed: people who ask for stories",
        "load": "every story is asked for so often, 0.2 ms apart, by another person each time",
        "prompt tokens, shared and computed once": SHARED_TOKENS,
        "prompt tokens computed for each request": OWN_TOKENS,
        "execution times": f"reading, {READING_WORDS_PER_S:g} words a second",
    }
    return made.model_copy(update={"profile": options.profile, "setup": setup})


def _pairs(options: Options) -> Iterator[tuple[PolicySpec, Rule | None]]:
    """Yield each policy with each rule; one that makes whole plans has none."""
    for spec in chosen(options):
        rules = (None,) if spec.make().whole_plans else RULES
        yield from ((spec, rule) for rule in rules)


def _settings(options: Options, profile: str, load: int, seed: int) -> Settings:
    made = settings(replace(options, profile=profile), load, seed)
    return replace(made, shared_tokens=SHARED_TOKENS, own_tokens=OWN_TOKENS)


EXPERIMENT = Experiment(
    name="timelyllm-chatbot",
    question="How soon can people read, and go on reading, if stories come in sentences or"
    " paragraphs? (paper 001, Figure 10)",
    run=run,
    defaults=Options(
        policies=(BASELINE, "stream", "timely", UNBOUNDED, "deadline"),
        loads=(1, 4),
        profile=f"{LLAMA},{PHI}",
    ),
    understands=SIMULATED - {"trace"},
)
