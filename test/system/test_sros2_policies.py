"""The policies for SROS2 allow what each node uses in a real ROS graph, and nothing beyond."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node

from test.system.conftest import Process, Start
from test.system.ros_client import WAIT_S
from timely_llm.identity.keys import new_key
from timely_llm.resources import resource

FOLDER = resource("config/security")
FILES = ("plan_server", "dispatcher", "clients")
KINDS = {
    "topics": ("topic", ("publish", "subscribe")),
    "services": ("service", ("reply", "request")),
    "actions": ("action", ("execute", "call")),
}
"""Names of elements and their permissions in a policy of version 0.2.0."""
SERVICES, TOPICS = ("send_goal", "cancel_goal", "get_result"), ("feedback", "status")
"""What an action consists of in the graph."""
AT_TIMES = ("/plan/_claim/key_*", "/plan/_attached")
"""Topics that a server makes for a moment at its start, and while it serves requests."""
ROBOT = """
import sys, time
from timely_llm.ros.client.plan import PlanClient
client = PlanClient("r1", "drone", find_s=60, key_file=sys.argv[1], accept_unsigned=True)
client.submit("Scene: []\\nTask: [A] Check for a cat or a cup.")
print("made", flush=True)
time.sleep(600)
"""
PERSON = """
import sys, time
from timely_llm.ros.client.talk import TalkClient
client = TalkClient("ann", find_s=60, key_file=sys.argv[1], accept_unsigned=True)
client.converse("Hi.", max_tokens=4).result(60)
print("made", flush=True)
time.sleep(600)
"""

Rule = tuple[str, str]
"""A permission and an expression of names, such as `publish` and `/plan_server/load`."""


def enclaves(file: str) -> dict[str, set[Rule]]:
    """Return the rules of each enclave of a policy; an action is expanded to its parts."""
    policy = ElementTree.parse(FOLDER / f"{file}.policy.xml").getroot()
    assert (policy.tag, policy.get("version")) == ("policy", "0.2.0")
    found: dict[str, set[Rule]] = {}
    for enclave in policy.findall("enclaves/enclave"):
        rules = found.setdefault(enclave.attrib["path"], set())
        for profile in enclave.findall("profiles/profile"):
            assert set(profile.attrib) == {"ns", "node"}
            for group in profile:
                rules |= _rules(group)
    return found


def _rules(group: ElementTree.Element) -> set[Rule]:
    tag, permissions = KINDS[group.tag]
    assert group.attrib and set(group.attrib) <= set(permissions)
    assert set(group.attrib.values()) == {"ALLOW"}
    rules = set()
    for one in group:
        assert one.tag == tag and one.text and one.text == one.text.strip()
        for permission in group.attrib:
            if tag != "action":
                rules.add((permission, one.text))
                continue
            serves = permission == "execute"
            rules |= {
                ("reply" if serves else "request", f"{one.text}/_action/{part}")
                for part in SERVICES
            } | {
                ("publish" if serves else "subscribe", f"{one.text}/_action/{part}")
                for part in TOPICS
            }
    return rules


def used_by(node: Node, name: str, namespace: str) -> set[Rule]:
    """Return what a node of the graph has."""
    asks = {
        "publish": node.get_publisher_names_and_types_by_node,
        "subscribe": node.get_subscriber_names_and_types_by_node,
        "reply": node.get_service_names_and_types_by_node,
        "request": node.get_client_names_and_types_by_node,
    }
    return {(what, found) for what, ask in asks.items() for found, _ in ask(name, namespace)}


Graph = dict[str, set[Rule]]
"""What the nodes of each enclave have."""


def until_said(process: Process, words: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while words not in process.output:
        assert process.popen.poll() is None and time.monotonic() < end_s, process.output
        time.sleep(0.05)


def enclave_of(namespace: str, name: str) -> str:
    """Return the enclave of a node of the test."""
    if namespace == "/" and name in ("plan_server", "_plan_server_deliveries"):
        return "/dispatcher"
    if name.startswith("plan_client_"):
        return "/robot"
    if name.startswith("converse_client_"):
        return "/person"
    return f"{namespace.rstrip('/')}/{name}"


@pytest.fixture(scope="module")
def graph(start: Start, domain: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Two servers, a dispatcher, a robot, a person and a recorder, as one of them sees them all."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("s1", "s2"):
        server = start(
            "plan_server", "-r", f"__ns:=/{name}", engine="simulated", publish_steps=True
        )
        until_said(server, "ready")
    dispatcher = start("dispatch.node", name_check_s=0.0)
    for name in ("s1", "s2"):
        until_said(dispatcher, f"server /{name}/plan_server joins")
    for name, text, agent in (("robot", ROBOT, "r1"), ("person", PERSON, "ann")):
        (folder / f"{name}.py").write_text(text)
        key = new_key(agent, folder / "keys")  # with a key a client asks one service more
        until_said(start(str(folder / f"{name}.py"), str(key)), "made")
    start("recorder", output=folder / "bag")
    context = Context()
    rclpy.init(context=context, domain_id=domain)
    node = rclpy.create_node("looker", context=context)
    expected = {"/s1/plan_server", "/s2/plan_server", "/dispatcher", "/robot", "/person"}
    expected |= {"/recorder"}
    found: Graph = {}
    before: Graph = {}
    end_s = time.monotonic() + WAIT_S
    while not found or found != before or set(found) != expected:
        assert time.monotonic() < end_s, found.keys()
        before, found = found, {}
        time.sleep(2.0)  # endpoints become known one by one
        for name, namespace in node.get_node_names_and_namespaces():
            if name != "looker" and "_UNKNOWN_" not in name:
                rules = found.setdefault(enclave_of(namespace, name), set())
                rules |= used_by(node, name, namespace)
    yield found
    node.destroy_node()
    rclpy.shutdown(context=context)


def check(used: set[Rule], allowed: set[Rule]) -> None:
    """Compare what nodes have with what a policy allows them."""
    missing = {
        (what, name)
        for what, name in used
        if not any(what == may and fnmatchcase(name, rule) for may, rule in allowed)
    }
    assert not missing, f"used and not allowed: {sorted(missing)}"
    beyond = {
        (may, rule)
        for may, rule in allowed
        if not rule.endswith(AT_TIMES)
        and not any(what == may and fnmatchcase(name, rule) for what, name in used)
    }
    assert not beyond, f"allowed and not used: {sorted(beyond)}"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("file", "enclave"),
    [
        ("dispatcher", "/dispatcher"),
        ("dispatcher", "/s1/plan_server"),
        ("dispatcher", "/s2/plan_server"),
        ("clients", "/robot"),
        ("clients", "/person"),
        ("clients", "/recorder"),
    ],
)
def test_each_node_may_do_what_it_does_and_nothing_beyond(
    graph: Graph, file: str, enclave: str
) -> None:
    check(graph[enclave], enclaves(file)[enclave])


@pytest.mark.extended
def test_a_server_alone_has_the_rules_of_one_behind_a_dispatcher(graph: Graph) -> None:
    (alone,) = enclaves("plan_server").values()
    used = {(what, re.sub("^/s1/", "/", name)) for what, name in graph["/s1/plan_server"]}
    check(used, alone)


PARTS = {
    "publish": (("publish", "rt", ""),),
    "subscribe": (("subscribe", "rt", ""),),
    "reply": (("publish", "rr", "Reply"), ("subscribe", "rq", "Request")),
    "request": (("publish", "rq", "Request"), ("subscribe", "rr", "Reply")),
}
"""What DDS has of each permission: a direction, and what stands before and behind a name."""


def test_the_tool_of_sros2_expands_the_policies_to_signed_permissions_of_dds(
    tmp_path: Path,
) -> None:
    """The tool is no wheel on PyPI: this runs where ROS has it."""
    keystore = pytest.importorskip("sros2.keystore")
    keys = tmp_path / "keys"
    keystore.create_keystore(keys)
    for file in FILES:
        for enclave, rules in enclaves(file).items():
            keystore.create_enclave(keys, enclave)
            keystore.create_permission(keys, enclave, FOLDER / f"{file}.policy.xml")
            made = keys / "enclaves" / enclave.lstrip("/")
            assert (made / "permissions.p7s").stat().st_size
            (grant,) = ElementTree.parse(made / "permissions.xml").getroot().iter("grant")
            assert grant.findtext("subject_name") == f"CN={enclave}"
            assert grant.findtext("default") == "DENY" and not grant.findall("deny_rule")
            found = {
                (way, topic.text)
                for way in ("publish", "subscribe")
                for topic in grant.findall(f"allow_rule/{way}/topics/topic")
            }
            expected = {
                (way, f"{before}{name}{behind}")
                for permission, name in rules
                for way, before, behind in PARTS[permission]
            }
            graph = {(way, "ros_discovery_info") for way in ("publish", "subscribe")}
            assert found == expected | graph


def test_names_are_absolute_and_only_random_names_have_wildcards() -> None:
    for file in FILES:
        for rules in enclaves(file).values():
            for _, name in rules:
                assert name.startswith("/")
                assert "*" not in name or re.search(r"(client|key)_\*", name), name


def test_no_client_may_write_what_a_server_writes() -> None:
    found = enclaves("clients")
    (server,) = enclaves("plan_server").values()
    writes = {name for what, name in server if what in ("publish", "reply")}
    common = {"/parameter_events", "/rosout"}
    for rules in found.values():
        assert not {name for what, name in rules if what in ("publish", "reply")} & writes - common
    assert not [rule for rule in found["/recorder"] if rule[0] == "request"]
