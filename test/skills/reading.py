"""Reading whole plans."""

from test.skills.plans import DRONE
from timely_llm.skills.checkers import cut
from timely_llm.skills.minispec.checker import MiniSpecChecker
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece


def read(*chunks: str) -> tuple[list[Piece], str]:
    """Return all pieces of a plan that comes in chunks, and its tail."""
    checker = MiniSpecChecker(DRONE)
    pieces = [piece for chunk in chunks for piece in checker.feed(chunk)]
    last, tail = checker.finish()
    return pieces + ([last] if last else []), tail


def pieces_of(skill_set: SkillSet, text: str) -> list[Piece]:
    """Return the pieces of a text without tool output."""
    found = cut(skill_set, text)
    assert not any(isinstance(piece, str) for piece in found)
    return [piece for piece in found if isinstance(piece, Piece)]
