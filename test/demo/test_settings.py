from __future__ import annotations

from pathlib import Path

from timely_llm.demo.files import Files
from timely_llm.demo.settings import UNLIKE, DemoSettings

SEVERAL = DemoSettings(servers=3, engine="simulated", pace=UNLIKE[1], namespace="/lab")


def test_several_servers_have_namespaces_and_unlike_paces() -> None:
    assert dict(SEVERAL.paces) == {"s1": UNLIKE[1], "s2": UNLIKE[0], "s3": UNLIKE[2]}
    files = Files.of(Path("demo"), "edf", SEVERAL.server_names)
    command = SEVERAL.server_command("edf", files, "s2")
    assert command[-1] == "__ns:=/lab/s2"
    assert f'pace:="{UNLIKE[0]}"' in command
    assert SEVERAL.dispatcher_command()[-1] == "__ns:=/lab"
    assert SEVERAL.node_name("s2") == "/lab/s2/plan_server"


def test_a_model_without_a_pace_runs_as_fast_as_it_can_on_all_servers() -> None:
    assert dict(DemoSettings(servers=2).paces) == {"s1": "", "s2": ""}


def test_one_server_has_no_name_and_no_dispatcher() -> None:
    one = DemoSettings(pace=UNLIKE[0])
    assert one.server_names == ()
    command = one.server_command("edf", Files.of(Path("demo"), "edf"))
    assert not any("__ns" in word for word in command)
    assert "servers" not in one.as_json()
