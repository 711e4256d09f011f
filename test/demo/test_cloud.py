"""The stand-in of a demo: a process that prints a URL takes its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from test.demo.plausible_talks import person, question
from test.demo.test_summary import history
from timely_llm.demo.cloud import DemoCloud
from timely_llm.demo.files import Files
from timely_llm.demo.settings import OWN_CLOUD, DemoSettings
from timely_llm.processes.children import Children, Interrupts, ProcessError

PRINTS = (
    "print('a warning'); print('http://127.0.0.1:1/v1', flush=True); import time; time.sleep(60)"
)


def settings(folder: Path, code: str) -> DemoSettings:
    stand_in = (sys.executable, "-c", code)
    return DemoSettings(
        cloud=OWN_CLOUD, duration_s=10.0, output=folder, domain=7, stand_in=stand_in
    )


@pytest.mark.parametrize(("asks", "cut_s"), [(True, 4.0), (False, 5.0)])
def test_the_stand_in_is_killed_once_midway(tmp_path: Path, asks: bool, cut_s: float) -> None:
    run = history(person("ann", 0))
    if asks:
        run = history(person("ann", 0), {**question(3.0, "a-1", "ann"), "mode": "progressive"})
    files = Files.fresh(tmp_path, "timely")
    with Interrupts() as interrupts, Children(interrupts) as children:
        cloud = DemoCloud(settings(tmp_path, PRINTS), files, children, interrupts, run)
        assert cloud.url == "http://127.0.0.1:1/v1"
        for now_s in (3.9, 4.0, 5.0, 9.0):
            cloud.tick(now_s)
        assert run.cloud_cut_s == cut_s


def test_a_stand_in_that_does_not_start_is_named(tmp_path: Path) -> None:
    files = Files.fresh(tmp_path, "timely")
    with Interrupts() as interrupts, Children(interrupts) as children:
        wrong = settings(tmp_path, "raise SystemExit('no port is free')")
        with pytest.raises(ProcessError, match=r"the stand-in for a cloud .* no port is free"):
            DemoCloud(wrong, files, children, interrupts, history())
