"""Step times fitted to the steps of a recorded run, as its event log has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.events.reader import LogReader, last_life
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.text import count_of
from timely_llm.engines.simulated import LONG_PROMPT, Profile
from timely_llm.policies.annealing.latency import (
    BatchTime,
    TimedStep,
    by_phase,
    fit_phase,
)
from timely_llm.profiling.step_profile import (
    KNOTS,
    Array,
    error_quantiles,
    four_digits,
    relative_fit,
)

MIN_STEPS = 100
"""Least steps of a run for a fit; a fifth of them only tests it."""

MIN_ALIKE = 20
"""Least steps with what a coefficient is for, such as a further number of rows."""

MIN_PROMPTS = 10
"""Least steps with prompts."""

MAX_STEPS = 20_000
UNSEEN_EACH = 5
"""Every fifth step takes no part in the fit and tests it."""

OUTLIER = 6.0
"""Error from which a step is an outlier for the least squares of Eq. 14 and 15, in usual errors."""

_LEAST_ANGLE = 1e-3
"""Least singular value of columns of length 1 that are taken to be independent."""
_CLEAR_ANGLE = 0.02
"""The same for a column that a fit can do without."""
_TABLE_GAIN = 0.9
"""Median error of a table of rows over that of a line, below which the table is taken."""
_LEAST_GAIN = 0.001
"""By how much it must be smaller besides: digits of a profile are rounded."""
_LEAST_S = 1e-9
"""Seconds that a term has at least in some step; a smaller one is rounding."""


@dataclass(frozen=True)
class PhaseFit:
    """Coefficients of prefill or decode (Huang et al. 2025, Eq. 14 or 15) and their errors.

    Attributes:
        time: the fitted coefficients.
        batches: number of steps that were fitted.
        median_error, p95_error: quantiles of |predicted - measured| / measured of unseen steps.
    """

    time: BatchTime
    batches: int
    median_error: float
    p95_error: float


@dataclass(frozen=True)
class RecordedFit:
    """A profile of a recorded run, and its errors.

    Attributes:
        profile: fitted to the seen steps.
        used: number of seen steps.
        tested: number of unseen steps.
        most_rows: most decode rows of a step.
        prompt_tokens: fewest and most prompt tokens of a step with prompts.
        most_context: most context tokens of a step.
        median_error, p95_error: quantiles of |predicted - measured| / measured of unseen steps.
        phases: fit of prefill and of decode, or why there is none.
    """

    profile: Profile
    used: int
    tested: int
    most_rows: int
    prompt_tokens: tuple[int, int]
    most_context: int
    median_error: float
    p95_error: float
    phases: dict[str, PhaseFit | str]


@dataclass(frozen=True)
class _Steps:
    """Contents and seconds of steps; each array has one number a step."""

    sequences: NDArray[np.int64]
    rows: NDArray[np.int64]
    prompts: NDArray[np.int64]
    context: NDArray[np.int64]
    seconds: Array

    @classmethod
    def of(cls, steps: Sequence[StepEvent]) -> _Steps:
        counts = [(len(s.ids), s.rows, s.prompt_tokens, s.context_tokens) for s in steps]
        sequences, rows, prompts, context = np.array(counts, np.int64).T
        return cls(sequences, rows, prompts, context, np.array([step.s for step in steps]))

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, chosen: NDArray[np.bool_]) -> _Steps:
        return _Steps(*(values[chosen] for values in vars(self).values()))


def read_steps(path: Path) -> list[StepEvent]:
    """Return the steps of a plan server's last life in its event log.

    Steps without a positive time are left out.

    Raises:
        TimelyError: one sentence; it is no event log, or its steps lack what a fit needs.
    """
    steps = [event for event in last_life(LogReader(path).read()) if isinstance(event, StepEvent)]
    if not steps:
        raise ConfigurationError(
            f"{path} has no step of an engine: give the event log of a plan server, which its"
            " parameter event_log names"
        )
    if any(step.stages is not None for step in steps):
        raise ConfigurationError(
            f"{path} is of an engine in stages, with several steps at a time: timely-llm profile"
            " --engine measures one step at a time"
        )
    known = [step for step in steps if step.rows or step.prompt_tokens]
    if not known:
        raise ConfigurationError(
            f"the steps in {path} have no numbers of rows and tokens: an earlier release wrote"
            " them, so record another run"
        )
    return [step for step in known if 0.0 < step.s < float("inf")]


def fit_recorded(steps: Sequence[StepEvent], name: str, source: str) -> RecordedFit:
    """Return the profile that fits the steps of a run best; no coefficient is negative.

    Errors are relative to the step time. Huber's weights bound the influence of disturbed steps.
    Only what the run determines is fitted. A time of prompts as such, another one of long prompts,
    and a table of rows come with enough steps that show them. A table must fit clearly better than
    a line. Beyond its rows the line goes on.

    Args:
        steps: of `read_steps`; at most `MAX_STEPS` of them are taken, evenly.
        name: name of the profile.
        source: text about the run; the errors are appended.

    Raises:
        ConfigurationError: one sentence; the steps are too few, or too much alike.
    """
    taken = steps[:: -(-len(steps) // MAX_STEPS)] if steps else []
    if len(taken) < MIN_STEPS:
        raise ConfigurationError(
            f"{count_of(len(taken), 'step')} cannot be fitted: at least {MIN_STEPS} are needed"
        )
    whole = _Steps.of(taken)
    unseen = np.arange(len(whole)) % UNSEEN_EACH == UNSEEN_EACH - 1
    seen, tests = whole[~unseen], whole[unseen]
    _check(seen)
    profile = _best(seen, name, source)
    middle, high = error_quantiles(_errors(profile, tests))
    source += (
        f"; {len(seen)} steps of at most {whole.rows.max()} rows; error on {len(tests)} unseen"
        f" steps: median {middle:.1%}, 95th percentile {high:.1%}"
    )
    prompts = whole.prompts[whole.prompts > 0]
    return RecordedFit(
        replace(profile, source=source), len(seen), len(tests), int(whole.rows.max()),
        (int(prompts.min()), int(prompts.max())), int(whole.context.max()), middle, high,
        _phases(seen[_usual(profile, seen)], tests),
    )  # fmt: skip


def _check(steps: _Steps) -> None:
    """Check that the steps determine seconds of a step, a row, a prompt token, a context token."""
    rows = Counter(steps.rows[steps.rows > 0].tolist())
    if sum(rows.values()) - max(rows.values(), default=0) < MIN_ALIKE:
        usual = max(rows, key=rows.__getitem__, default=0)
        raise ConfigurationError(
            f"nearly all steps have {count_of(usual, 'decode row')}: the seconds of a row need at"
            f" least {MIN_ALIKE} steps with another number, as more requests at once make them"
        )
    prompts = int(np.count_nonzero(steps.prompts))
    if prompts < MIN_PROMPTS:
        raise ConfigurationError(
            f"only {count_of(prompts, 'step')} of {len(steps)} computed prompts: at least"
            f" {MIN_PROMPTS} are needed"
        )
    if not _LINE.fits(steps, _LEAST_ANGLE):
        raise ConfigurationError(
            "the rows, prompt tokens and context tokens of the steps follow from each other, so"
            " their seconds cannot be separated: more unlike requests are needed"
        )


@dataclass(frozen=True)
class _Form:
    """The coefficients that a fit has.

    Attributes:
        prefill: seconds of a step with prompts, whatever their length.
        long: seconds of prompt tokens after the first `LONG_PROMPT`.
        knots: rows from each of which on step time is another line; one: a line of all rows.
    """

    prefill: bool = False
    long: bool = False
    knots: tuple[int, ...] = (0,)

    def fits(self, steps: _Steps, least_angle: float) -> bool:
        """Return whether the steps determine each coefficient."""
        shares = self.columns(steps) / steps.seconds[:, None]
        sizes = np.linalg.norm(shares, axis=0)
        if not np.all(sizes):
            return False
        return bool(np.linalg.svd(shares / sizes, compute_uv=False)[-1] > least_angle)

    def columns(self, steps: _Steps) -> Array:
        """Return the factors of the coefficients in each step."""
        prompts, rows = steps.prompts, steps.rows
        first = np.minimum(prompts, LONG_PROMPT) if self.long else prompts
        columns = [np.ones(len(steps)), first, steps.context]
        columns += [prompts > 0] * self.prefill + [prompts - first] * self.long
        columns += [np.clip(rows - low, 0, high - low) for low, high in pairwise(self._ends(steps))]
        return np.column_stack(columns).astype(float)

    def _ends(self, steps: _Steps) -> list[int]:
        return [*self.knots, int(steps.rows.max())]

    def fit(self, steps: _Steps, name: str, source: str) -> Profile:
        """Return the profile that fits the steps best."""
        columns = self.columns(steps)
        found = relative_fit(columns.tolist(), steps.seconds.tolist())
        found[found * columns.max(axis=0) < _LEAST_S] = 0.0
        base_s, token_s, context_token_s, *rest = map(float, found)
        prefill_s = rest.pop(0) if self.prefill else 0.0
        long_token_s = four_digits(rest.pop(0)) if self.long else None
        row_s, beyond_s = rest[0], 0.0
        table: tuple[float, ...] = ()
        if len(rest) > 1:
            knots = self._ends(steps)
            at_knots = np.cumsum([base_s, *np.multiply(rest, np.diff(knots))])
            rows = np.arange(1, knots[-1] + 1)
            seconds = np.interp(rows, knots, at_knots)
            # Readers without the table, and rows beyond it: the line of the least relative error.
            lever = rows / seconds
            row_s = float(lever @ (1.0 - base_s / seconds) / (lever @ lever))
            table, beyond_s = tuple(map(four_digits, seconds)), row_s
        return Profile(
            name, source, four_digits(base_s), four_digits(row_s), four_digits(token_s),
            four_digits(context_token_s), four_digits(prefill_s), table, four_digits(beyond_s),
            long_prefill_token_s=long_token_s,
        )  # fmt: skip


_LINE = _Form()


def _best(steps: _Steps, name: str, source: str) -> Profile:
    """Return the profile of a line of rows, or that of a table if it is clearly better."""
    form = _LINE
    if np.count_nonzero(steps.prompts > LONG_PROMPT) >= MIN_ALIKE:
        form = _if_clear(replace(form, long=True), form, steps)
    form = _if_clear(replace(form, prefill=True), form, steps)
    line, table = form.fit(steps, name, source), form
    for knot in KNOTS[1:]:
        between = np.count_nonzero((steps.rows > table.knots[-1]) & (steps.rows <= knot))
        if min(between, np.count_nonzero(steps.rows > knot)) >= MIN_ALIKE:
            table = _if_clear(replace(table, knots=(*table.knots, knot)), table, steps)
    if table is form:
        return line
    by_rows = table.fit(steps, name, source)
    errors = [error_quantiles(_errors(one, steps))[0] for one in (by_rows, line)]
    return by_rows if errors[0] + _LEAST_GAIN < _TABLE_GAIN * errors[1] else line


def _if_clear(wanted: _Form, otherwise: _Form, steps: _Steps) -> _Form:
    return wanted if wanted.fits(steps, _CLEAR_ANGLE) else otherwise


def _errors(profile: Profile, steps: _Steps) -> Array:
    """Return (predicted - measured) / measured of each step."""
    contents = zip(steps.rows.tolist(), steps.prompts.tolist(), steps.context.tolist(), strict=True)
    predicted = [profile.step_s(*content) for content in contents]
    return np.array(predicted) / steps.seconds - 1.0


def _usual(profile: Profile, steps: _Steps) -> NDArray[np.bool_]:
    """Return a mask of the steps that are no outliers."""
    away = np.abs(_errors(profile, steps))
    return away <= OUTLIER * max(1.4826 * float(np.median(away)), 0.01)


def _phases(steps: _Steps, tests: _Steps) -> dict[str, PhaseFit | str]:
    """Return the fits of Eq. 14 and 15 to steps without outliers, or why there is none."""
    made: dict[str, PhaseFit | str] = {}
    seen, unseen = by_phase(_timed(steps)), by_phase(_timed(tests))
    for phase, batches, others in zip(("prefill", "decode"), seen, unseen, strict=True):
        try:
            time = fit_phase(phase, batches)
        except ConfigurationError as error:
            made[phase] = str(error)
            continue
        errors = [time.seconds(b.rows, b.tokens) / b.seconds - 1.0 for b in others]
        quantiles = error_quantiles(errors) if errors else (float("nan"), float("nan"))
        made[phase] = PhaseFit(time, len(batches), *quantiles)
    return made


def _timed(steps: _Steps) -> list[TimedStep]:
    """Return the steps as Eq. 14 and 15 count them: prompts have no context of decoding rows."""
    return [
        TimedStep(sequences, prompts, context if rows else 0, seconds)
        for sequences, rows, prompts, context, seconds in zip(
            *(values.tolist() for values in vars(steps).values()), strict=True
        )
    ]
