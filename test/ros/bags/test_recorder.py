"""Losses show as gaps in a publisher's numbers."""

from __future__ import annotations

from typing import Any

from rclpy.qos import QoSProfile

from timely_llm import msg
from timely_llm.ros.bags.recorder import Source


def source() -> Source:
    return Source("/plan_server/segments", msg.Segment, QoSProfile(depth=1))


def message(number: int | None, publisher: bytes | None = None) -> Any:
    """The middleware's data about a message; Jazzy does not name the publisher."""
    info: dict[str, Any] = {"publication_sequence_number": number}
    return info if publisher is None else info | {"publisher_gid": {"data": publisher}}


def test_gaps_count_for_each_publisher() -> None:
    made = source()
    for publisher, number in ((b"a", 1), (b"b", 7), (b"a", 2), (b"b", 9), (b"a", 6)):
        made.count(message(number, publisher), lambda: 2)
    assert (made.lost, made.unnumbered) == (4, 0)


def test_gaps_count_without_names_where_there_is_one_publisher() -> None:
    made = source()
    for number in (5, 6, 9, 1, 2):  # in between the server is started anew
        made.count(message(number), lambda: 1)
    assert (made.lost, made.unnumbered) == (2, 0)


def test_gaps_do_not_count_without_names_where_there_are_several() -> None:
    made = source()
    for number, publishers in ((5, 1), (90, 2), (7, 2), (91, 1), (93, 1)):
        made.count(message(number), lambda publishers=publishers: publishers)  # type: ignore[misc]
    assert (made.lost, made.unnumbered) == (1, 2)


def test_messages_without_numbers_are_reported_as_unchecked() -> None:
    made = source()
    made.count(message(None), lambda: 1)
    assert (made.lost, made.unnumbered) == (0, 1)
