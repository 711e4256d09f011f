"""Reading whole plans."""

from test.skills.plans import DRONE
from timely_llm.skills.minispec import MiniSpecChecker
from timely_llm.skills.stop_checker import Piece


def read(*chunks: str) -> tuple[list[Piece], str]:
    """Return all pieces of a plan that comes in chunks, and its tail."""
    checker = MiniSpecChecker(DRONE)
    pieces = [piece for chunk in chunks for piece in checker.feed(chunk)]
    last, tail = checker.finish()
    return pieces + ([last] if last else []), tail
