"""What the collector of garbage looks at."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from timely_llm.processes.heap import settle_heap, unsettle_heap


class Ring:
    """Garbage as soon as nothing else refers to it: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _unsettled() -> Iterator[None]:
    yield
    unsettle_heap()


def test_what_was_there_is_left_out_of_later_collections() -> None:
    there = Ring()
    settle_heap()
    assert gc.get_freeze_count() > 1000
    assert not any(one is there for one in gc.get_objects())
    later = weakref.ref(Ring())
    gc.collect()
    assert later() is None


def test_garbage_goes_before_the_heap_settles() -> None:
    garbage = weakref.ref(Ring())
    settle_heap()
    assert garbage() is None


def test_what_was_there_can_be_freed_again() -> None:
    there = Ring()
    known = weakref.ref(there)
    settle_heap()
    del there
    gc.collect()
    assert known() is not None
    unsettle_heap()
    gc.collect()
    assert known() is None
