"""How much of the package one step, and one plan up to its first segment, pass through."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

import timely_llm
from test.serving.scripted import Scene, request
from timely_llm.policies.registry import DEFAULT_POLICY, make_policy

PACKAGE = f"{Path(timely_llm.__file__).parent}/"
PLAN = "tc(180);mf(120);tp();->True;"

# The numbers of today. The files count most: a shorter path lowers them, and only
# another default policy raises them.
DECODE_TURN_FILES, DECODE_TURN_CALLS = 15, 117
FIRST_SEGMENT_FILES, FIRST_SEGMENT_CALLS = 22, 742


@dataclass
class Passed:
    """Functions of the package that were called, and the files that they stand in."""

    calls: int = 0
    files: set[str] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self.calls += 1
            self.files.add(name.removeprefix(PACKAGE))


def passed_by(work: Callable[[], object]) -> Passed:
    found, before = Passed(), sys.getprofile()
    sys.setprofile(found)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


@pytest.fixture
def scene() -> Scene:
    """The serving loop with the simulated engine and the default policy, and no request."""
    made = Scene({"warm-up": PLAN, "r": PLAN}, make_policy(DEFAULT_POLICY))
    # What a process does only once is no part of the path.
    made.loop.admit(request("warm-up"))
    made.run()
    made.sink.segments.clear()
    return made


def test_one_decode_turn_for_one_request_passes_through_few_files(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.loop.admit(request("r"))
    scene.clock.advance(0.1)  # the rest of a burst is awaited no longer
    scene.turns(1)  # the prompt
    turns = []
    while not scene.sink.segments:
        turns.append(passed_by(scene.loop.turn))
        assert scene.sink.steps[-1].computed == {"r": 1}
    # Most tokens lie within a word; others have the stop checker do more.
    found = min(turns, key=lambda turn: (len(turn.files), turn.calls))
    with capsys.disabled():
        print(f"\na decode turn: {len(found.files)} files, {found.calls} calls")
    assert len(found.files) <= DECODE_TURN_FILES, sorted(found.files)
    assert found.calls <= DECODE_TURN_CALLS


def test_a_plan_passes_through_few_files_from_admission_to_its_first_segment(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = request("r")  # a client's thread makes it before it is admitted

    def work() -> None:
        scene.loop.admit(asked)
        scene.until_segments(1)

    found = passed_by(work)
    with capsys.disabled():
        print(f"\nto the first segment: {len(found.files)} files, {found.calls} calls")
    assert len(found.files) <= FIRST_SEGMENT_FILES, sorted(found.files)
    assert found.calls <= FIRST_SEGMENT_CALLS
