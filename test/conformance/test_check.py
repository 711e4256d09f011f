"""Each check has an outcome, whatever the code that is checked does."""

from __future__ import annotations

import logging
import time

import pytest

from timely_llm.conformance.check import Broken, Check, CheckOutcome, Ending, NotApplicable, run


def kept(subject: list[str]) -> None:
    logging.getLogger("timely_llm.serving").error("no check wants to read this")


def is_broken(subject: list[str]) -> None:
    raise Broken("it is not kept", ("the case",))


def without_use(subject: list[str]) -> None:
    raise NotApplicable("there is nothing")


def raises(subject: list[str]) -> None:
    subject[1]


def never_ends(subject: list[str]) -> None:
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            continue


def outcome(body: object) -> CheckOutcome:
    seen: list[CheckOutcome] = []
    check: Check[list[str]] = Check("name", "A promise.", body)  # type: ignore[arg-type]
    (found,) = run([check], ["one"], 0.3, seen.append)
    assert seen == [found]
    assert (found.name, found.promise) == ("name", "A promise.")
    return found


def test_endings() -> None:
    assert outcome(kept).ending is Ending.KEPT
    assert outcome(is_broken).ending is Ending.BROKEN
    assert (outcome(is_broken).happened, outcome(is_broken).case) == (
        "it is not kept",
        ("the case",),
    )
    assert outcome(without_use).ending is Ending.NOT_APPLICABLE
    assert outcome(without_use).happened == "there is nothing"


def test_an_error_is_a_broken_promise_with_its_place() -> None:
    found = outcome(raises)
    assert found.ending is Ending.BROKEN
    assert found.happened.startswith("it raises IndexError: list index out of range (test_check.py")


def test_a_check_that_never_ends_is_broken_and_the_place_is_named() -> None:
    found = outcome(never_ends)
    assert found.ending is Ending.BROKEN
    assert "it takes longer than 0.3 s: it was at test_check.py, line" in found.happened
    assert found.happened.endswith("in never_ends")


def interrupted(subject: list[str]) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as ctrl_c:
        raise ValueError("the library makes something else of it") from ctrl_c


def test_an_interrupt_ends_the_run_whatever_became_of_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcome(interrupted)


def test_logs_of_the_package_are_not_shown(caplog: object) -> None:
    outcome(kept)
    assert "no check" not in caplog.text  # type: ignore[attr-defined]
