"""The interface's number rises when the definitions change."""

import hashlib
import re

from timely_llm.resources import resource
from timely_llm.ros.interface_number import DIGESTS, INTERFACE, problem_of


def digest_of(definitions: dict[str, str]) -> str:
    """Return the digest of the definitions by file, without comments and spaces."""
    summed = hashlib.sha256()
    for name in sorted(definitions):
        words = (re.sub(r"#.*", "", line).split() for line in definitions[name].splitlines())
        lines = [" ".join(line) for line in words if line]
        summed.update("\n".join([name, *lines, ""]).encode())
    return summed.hexdigest()[:16]


def current() -> dict[str, str]:
    return {
        file.name: file.read_text(encoding="utf-8")
        for kind in ("msg", "srv", "action")
        for file in resource(kind).glob(f"*.{kind}")
    }


def test_the_number_is_that_of_these_definitions() -> None:
    digest = digest_of(current())
    assert DIGESTS[INTERFACE] == digest, (
        f"the definitions changed: if a release has interface {INTERFACE}, raise INTERFACE in"
        f" ros/interface_number.py and name the change in docs/interfaces.md; enter {digest!r}"
    )


def test_no_two_numbers_have_the_same_definitions() -> None:
    assert len(set(DIGESTS.values())) == len(DIGESTS)
    assert list(DIGESTS) == list(range(1, INTERFACE + 1))


def test_a_field_that_changes_changes_the_sum_and_a_comment_does_not() -> None:
    definitions = current()
    digest = digest_of(definitions)
    commented = definitions | {
        "Segment.msg": "# Another comment.\n" + definitions["Segment.msg"].replace(" ", "  ")
    }
    assert digest_of(commented) == digest
    for before, after in (("uint32 index", "uint64 index"), ("uint32 index", "uint32 place")):
        changed = definitions["Segment.msg"].replace(before, after)
        assert changed != definitions["Segment.msg"]
        assert digest_of(definitions | {"Segment.msg": changed}) != digest
    assert digest_of({**definitions, "New.msg": ""}) != digest


def test_the_document_lists_each_number() -> None:
    document = (resource("package.xml").parent / "docs" / "interfaces.md").read_text("utf-8")
    assert all(re.search(rf"^\| {number} \|", document, re.MULTILINE) for number in DIGESTS)
    assert f"interface number is **{INTERFACE}**" in document


def test_one_sentence_names_two_different_numbers() -> None:
    assert problem_of("/plan_server", INTERFACE) == ""
    assert problem_of("/lab/s", 7) == (
        f"the server /lab/s has interface 7, and this client has interface {INTERFACE}: install the"
        " same release of timely_llm on both machines"
    )
    assert "one of timely_llm 0.1 (interface 1), or none" in problem_of("/plan_server", None)
