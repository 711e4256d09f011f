"""Random cases and the smallest one that breaks a promise, by the library Hypothesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Flaky, HypothesisException
from hypothesis.strategies import SearchStrategy

from timely_llm.conformance.check import Broken, NotApplicable
from timely_llm.core.object_reference import raised

STANDARD = 100
"""Examples of a property where no profile says otherwise."""
Describe = Callable[[Mapping[str, Any]], tuple[str, ...]]


def plainly(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a line for each value of a case."""
    return tuple(f"{name} = {value!r}" for name, value in case.items())


def for_all(
    body: Callable[..., None],
    seed: int | None,
    examples: int,
    describe: Describe = plainly,
    **strategies: SearchStrategy[Any],
) -> None:
    """Call a function with random cases.

    Args:
        body: raises `Broken` if a case breaks the promise.
        seed: of the cases; None: others in each run.
        examples: how many cases; a Hypothesis profile with fewer than `STANDARD` scales it.
        describe: returns the lines of a case.
        strategies: one for each argument of `body`.

    Raises:
        Broken: with the smallest case that was found.
    """
    latest: list[Mapping[str, Any]] = []

    def one(**case: Any) -> None:
        latest[:] = [case]  # the smallest case is run last
        body(**case)

    run = settings(
        max_examples=max(1, examples * settings().max_examples // STANDARD),
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
        phases=[phase for phase in Phase if phase is not Phase.explain],
        suppress_health_check=list(HealthCheck),
    )(given(**strategies)(one))
    if seed is not None:
        run = seeded(seed)(run)
    try:
        run()
    except NotApplicable:
        raise
    except Flaky as error:
        raise Broken(
            "the same case breaks a promise in one run and not in another: what is checked depends"
            " on something beside its arguments, such as a clock or random numbers",
            describe(latest[0]),
        ) from error
    except HypothesisException:
        raise
    except Broken as broken:
        raise Broken(broken.happened, (*describe(latest[0]), *broken.case)) from broken
    except Exception as error:
        raise Broken(f"it raises {raised(error)}", describe(latest[0])) from error
