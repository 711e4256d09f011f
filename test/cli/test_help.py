"""Help at 80 columns, options that are named alike, and the answers to a Tab."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from timely_llm import completion
from timely_llm.cli import completion_table
from timely_llm.cli.help import first_sentence
from timely_llm.cli.main import COMMANDS, GROUPS, cli
from timely_llm.cli.options import Option
from timely_llm.engines.paces import PACES
from timely_llm.experiments.registry import EXPERIMENTS
from timely_llm.policies.registry import POLICIES
from timely_llm.resources import resource
from timely_llm.skills.skill_set import load_skill_set

WIDTH = 80
TALK_TO_A_SERVER = ["fleet", "talkers", "ask", "chat", "trace record", "trace replay"]
IN_ROS = [*TALK_TO_A_SERVER, "serve", "demo"]


def walk(command: click.Command = cli, words: str = "") -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk(inner, f"{words} {name}".strip())


ALL = dict(walk())
OPTIONS = [
    (words, found)
    for words, command in ALL.items()
    for found in command.params
    if isinstance(found, click.Option) and not found.hidden
]


@pytest.mark.parametrize("words", ALL)
def test_help_fits_80_columns_and_cuts_no_sentence(words: str) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--help"], terminal_width=WIDTH)
    assert done.exit_code == 0
    _, _, text = done.output.partition("\n")  # the usage has dots of its own
    assert max(map(len, done.output.splitlines())) <= WIDTH
    assert "..." not in text.replace("8-25:40-160,...", "").replace("[RUN]...", "")
    said = " ".join(text.split())
    assert first_sentence(ALL[words]) in said
    for found in ALL[words].params:
        if isinstance(found, click.Option) and not found.hidden:
            assert found.opts[-1] in said


def test_the_commands_stand_in_groups_with_whole_sentences() -> None:
    text = CliRunner().invoke(cli, ["--help"], terminal_width=WIDTH).output
    places = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    said = " ".join(text.split())
    for group in GROUPS.values():
        for name, (_, sentence) in group.items():
            assert f"{name} {sentence}" in said
            assert sentence == first_sentence(ALL[name]), "the list says what the command says"
    assert set(COMMANDS) == {words for words in ALL if words and " " not in words}


@pytest.mark.parametrize(("words", "found"), OPTIONS, ids=lambda value: str(value)[:40])
def test_every_option_is_explained_in_words(words: str, found: click.Option) -> None:
    assert found.help, f"{words} {found.opts}"
    assert found.help[0].isupper() or found.help[0].isdigit(), found.help
    assert found.help.endswith((".", "}.", '".')), found.help
    assert len(found.help.split()) >= 2, found.help


@pytest.mark.parametrize("words", IN_ROS)
def test_every_command_in_ros_can_be_sent_to_a_namespace_and_a_domain(words: str) -> None:
    names = {name for found in ALL[words].params for name in found.opts}
    assert {"--namespace", "--domain"} <= names
    assert ("--server" in names) == (words in TALK_TO_A_SERVER)


def test_options_of_one_name_are_of_one_kind() -> None:
    kinds: dict[str, set[str]] = {}
    for _, found in OPTIONS:
        kind = "flag" if found.is_flag else found.type.name.removesuffix(" range")
        kinds.setdefault(found.opts[-1], set()).add(kind)
    mixed = {name: kind for name, kind in kinds.items() if len(kind) > 1}
    # A skill set is a file, or the name of one that a server has. Requests, loads, groups, servers
    # and robots are numbers, or several numbers between commas where an experiment compares them.
    assert set(mixed) <= {
        "--skill-set", "--requests", "--load", "--groups", "--robots", "--servers", "--output",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "old", "new"),
    [
        ("demo", "--conversations", "--people"),
        ("demo", "--failures", "--failure-share"),
        ("demo", "--bursts", "--events-per-s"),
        ("demo", "--no-view", "--plain"),
        ("ask", "--json", "--json-lines"),
        ("trace replay", "--server-timeout", "--wait"),
        ("experiment", "--seconds", "--duration"),
        ("benchmark record", "--seconds", "--duration"),
    ],
)
def test_names_until_the_last_release_are_taken_and_not_shown(
    words: str, old: str, new: str
) -> None:
    (found,) = [f for f in ALL[words].params if isinstance(f, Option) and old in f.formerly]
    assert found.opts[-1] == new or new in found.opts
    context = click.Context(ALL[words])
    value = [] if found.is_flag else ["6"]
    parser = ALL[words].make_parser(context)
    taken = parser.parse_args([old, *value])[0]
    assert taken == parser.parse_args([new, *value])[0]
    shown = CliRunner().invoke(cli, [*words.split(), "--help"], terminal_width=WIDTH).output
    assert old not in shown.replace(new, "")


def completed(words: str, shell: str = "bash") -> list[str]:
    """Return the completions of a Tab after the words."""
    given = words.split()
    count = len(given) + words.endswith(" ") - 1
    environment = {"_TIMELY_LLM_COMPLETE": f"{shell}_complete", "COMP_WORDS": words,
                   "COMP_CWORD": str(count)}  # fmt: skip
    code = "from timely_llm.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | environment,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("timely-llm ", [f"plain,{name}" for name in COMMANDS]),
        ("timely-llm ta", ["plain,talkers"]),
        ("timely-llm serve --policy ", [f"plain,{name}" for name in POLICIES]),
        ("timely-llm demo --pace rtx", [f"plain,{n}" for n in PACES if n.startswith("rtx")]),
        ("timely-llm ask --skill-set d", ["plain,drone"]),
        ("timely-llm trace rec", ["plain,record"]),
        ("timely-llm trace replay --na", ["plain,--namespace"]),
        ("timely-llm experiment sli", [f"plain,{n}" for n in EXPERIMENTS if n[:3] == "sli"]),
        ("timely-llm report ", ["file,"]),
    ],
)
def test_a_tab_is_answered_with_what_may_come(words: str, expected: list[str]) -> None:
    assert completed(words) == expected


def test_the_table_for_tabs_is_that_of_the_commands() -> None:
    text = completion.TABLE.read_text(encoding="utf-8")
    assert text == completion_table.written(), "run `python -m timely_llm.cli.completion_table`"


def test_shipped_skill_sets_are_called_as_their_files() -> None:
    files = resource("config/skill_sets").glob("*.yaml")
    assert completion.shipped_skill_sets() == sorted(load_skill_set(file).name for file in files)


def test_a_tab_imports_no_module_of_a_command() -> None:
    code = """
import os, sys
os.environ |= {"_TIMELY_LLM_COMPLETE": "bash_complete", "COMP_WORDS": "timely-llm serve --",
               "COMP_CWORD": "2"}
from timely_llm.entry import main
try:
    main()
finally:
    ours = [name for name in sys.modules if name.startswith("timely_llm.")]
    print(*ours, *({"numpy", "pydantic", "rich", "yaml", "torch"} & set(sys.modules)),
          file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "plain,--namespace" in done.stdout.splitlines()
    assert set(done.stderr.split()) <= {
        "timely_llm.core",
        "timely_llm.processes",
        "timely_llm.processes.signals",
        "timely_llm.entry",
        "timely_llm.completion",
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from timely_llm.entry import main; main()"], capture_output=True,
        text=True, timeout=60, check=True,
        env=os.environ | {"_TIMELY_LLM_COMPLETE": f"{shell}_source"},
    )  # fmt: skip
    assert "_TIMELY_LLM_COMPLETE" in done.stdout
