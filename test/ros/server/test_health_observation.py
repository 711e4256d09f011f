"""The loop's counts in `~/stats`."""

from __future__ import annotations

from dataclasses import fields

from builtin_interfaces.msg import Time

from test.serving.scripted import FIND, Scene, request
from timely_llm.policies.fcfs import Stream
from timely_llm.ros.server import health


def test_every_count_of_the_loop_is_published() -> None:
    scene = Scene({"r": FIND}, Stream())
    scene.loop.admit(request("r"))
    scene.run()
    counts = scene.loop.stats
    counts.evictions, counts.guessed_tokens, counts.right_guesses = 2, 30, 11
    told = health.stats(scene.loop, counts, Time(sec=5))
    names = [known.name for known in fields(counts) if not known.name.startswith("_")]
    assert {name: getattr(told, name) for name in names} == {
        name: getattr(counts, name) for name in names
    }
    assert told.steps > 0 and told.stamp.sec == 5


def test_the_counts_of_a_hundred_years_fit_into_the_message() -> None:
    loop = Scene({}).loop
    counts = loop.stats
    names = [known.name for known in fields(counts) if known.type in ("int", int)]
    for name in names:
        setattr(counts, name, 10**15)
    told = health.stats(loop, counts, Time())
    assert {getattr(told, name) for name in names} == {10**15}
