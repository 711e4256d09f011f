"""What a commit does, recorded: a document of values and words for each thing of each kind."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from test.ros_domains import reserved_domain
from tools.same_behaviour import definitions, generated
from tools.same_behaviour.errors import ComparisonError
from tools.same_behaviour.trees import COMMAND_S, INSIDE, Tree, export

FORMAT = 2
"""Of the record; raised when an older record cannot be compared any more."""
EXPERIMENT_S = 1_800.0
SITE_S = 400.0
SMALL = {
    "seeds": "1", "loads": "1", "rates": "1", "ratios": "0.7", "minutes": "2", "servers": "2",
    "jobs": "1",
}  # fmt: skip
"""What an experiment is asked for, as far as it understands the option; all else is its default."""
OPTION_NAMES = {"loads": "--load"}
"""Options that are called otherwise than the experiments say."""
EXCLUDED = {
    "command": "it names a temporary file",
    "recorded_on": "the day of the recording",
    "version": "the package's version rises with each release",
}
"""Keys of an experiment's document that are left out, and why."""
WORDS = frozenset(("question", "definitions", "notes", "title", "note"))
"""Keys of an experiment's document that hold prose."""
SAMPLES = {
    "mixed": ("--preset", "mixed", "--duration", "20", "--seed", "3"),
    "wid1": ("--preset", "wid1", "--duration", "60", "--seed", "4"),
}
"""Traces that are composed."""
REPLAYED = ("--tasks", "1", "--agents", "drone=1", "--events-per-s", "2", "--talks-per-s", "1",
            "--people", "1", "--duration", "3", "--seed", "3")  # fmt: skip
"""The trace that a server is asked in real time."""


@dataclass(frozen=True)
class Recorded:
    """One thing that a commit does.

    Attributes:
        values: JSON; a difference is a change of behaviour.
        words: JSON; a difference is a change of wording.
    """

    values: Any
    words: Any = None


Kind = dict[str, Recorded]
"""Things of a kind by name."""


@dataclass(frozen=True)
class Record:
    """What a commit does.

    Attributes:
        name: the commit.
        kinds: by kind.
    """

    name: str
    kinds: Mapping[str, Kind]

    def write(self, file: Path) -> None:
        """Write the record as JSON."""
        kinds = {
            kind: {name: {"values": one.values, "words": one.words} for name, one in things.items()}
            for kind, things in self.kinds.items()
        }
        document = {"format": FORMAT, "name": self.name, "kinds": kinds}
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> Record:
    """Return a record that was kept.

    Raises:
        ComparisonError: the file holds none.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ComparisonError(f"{file} has format {document['format']}, not {FORMAT}")
        kinds = {
            kind: {name: Recorded(**one) for name, one in things.items()}
            for kind, things in document["kinds"].items()
        }
        return Record(document["name"], kinds)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ComparisonError(f"{file} is no kept record: {error!r}"[:300]) from error


def record(commit: str | None, kinds: tuple[str, ...]) -> Record:
    """Return what a commit does.

    Args:
        commit: the commit; None: the working tree.
        kinds: of `KINDS`.

    Raises:
        ComparisonError: there is no such commit, or it cannot be recorded.
    """
    with tempfile.TemporaryDirectory(prefix="same_behaviour_") as folder:
        tree = export(commit, Path(folder, "tree"))
        if not NOT_RUN.issuperset(kinds):
            generated.provide(tree)
        recorder = _Recorder(tree, Path(folder))
        found = {}
        for kind in kinds:
            say(f"{tree.name}: {kind}")
            found[kind] = KINDS[kind](recorder)
        return Record(tree.name, found)


def say(line: str) -> None:
    """Print what is being recorded."""
    print(line, file=sys.stderr, flush=True)


class _Recorder:
    """Runs the commands of one tree.

    Args:
        tree: the tree.
        folder: where files may be written.
    """

    def __init__(self, tree: Tree, folder: Path) -> None:
        self.tree = tree
        self.folder = folder

    @cached_property
    def command_line(self) -> dict[str, Any]:
        """What `inside/command_line.py` says."""
        found: dict[str, Any] = json.loads(self.tree.run("-P", INSIDE / "command_line.py"))
        return found

    def timely_llm(self, *words: str | Path, timeout_s: float = COMMAND_S) -> str:
        """Run `timely-llm` in the tree."""
        return self.tree.run("-m", "timely_llm.cli.main", *words, timeout_s=timeout_s)

    def experiments(self) -> Kind:
        """Run all experiments in virtual time."""
        found = {}
        for name, understood in self.command_line["experiments"].items():
            say(f"{self.tree.name}: experiment {name}")
            file = self.folder / f"{name}.json"
            asked = [
                word
                for option, value in SMALL.items()
                if option in understood
                for word in (OPTION_NAMES.get(option, f"--{option}"), value)
            ]
            self.timely_llm("experiment", name, *asked, "--json", file, timeout_s=EXPERIMENT_S)
            found[name] = experiment(json.loads(file.read_text(encoding="utf-8")))
        return found

    def help(self) -> Kind:
        """Describe all commands."""
        commands = self.command_line["commands"]
        return {f"timely-llm {words}".strip(): command(one) for words, one in commands.items()}

    def interfaces(self) -> Kind:
        """Resolve all definitions."""
        return {
            f"{definitions.PACKAGE}/{file.parent.name}/{file.stem}": self._interface(file)
            for file in definitions.files(self.tree.folder)
        }

    def _interface(self, file: Path) -> Recorded:
        values = {
            part: {"order": lines, **dict.fromkeys(lines, True)}
            for part, lines in (
                (part, _with_ancestors(list(definitions.resolved(self.tree.folder, lines))))
                for part, lines in definitions.parts(file).items()
            )
        }
        return Recorded(values, file.read_text(encoding="utf-8"))

    def parameters(self) -> Kind:
        """Read the tables of the generated parameters document."""
        modules = sorted((self.tree.folder / "timely_llm").rglob("parameters_document.py"))
        if len(modules) != 1:
            raise ComparisonError(
                f"{self.tree.name} has {len(modules)} modules parameters_document: one is needed"
            )
        parts = modules[0].relative_to(self.tree.folder).with_suffix("").parts
        return parameters(self.tree.run("-m", ".".join(parts)))

    def config(self) -> Kind:
        """Read the files below config/."""
        root = self.tree.folder / "config"
        files = sorted(path for path in root.rglob("*") if path.is_file())
        return {str(file.relative_to(root)): configuration(file) for file in files}

    def bags(self) -> Kind:
        """Compose traces, and record a real server."""
        found = {}
        for name, words in SAMPLES.items():
            lines, whole = self.folder / f"{name}.jsonl", self.folder / f"{name}_bag"
            self.timely_llm("trace", "compose", lines, *words)
            self.timely_llm("trace", "convert", lines, whole)
            trace = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
            how_it_was_made = trace[0].pop("source")
            found[f"trace {name}"] = Recorded(trace, how_it_was_made)
            found[f"bag of trace {name}"] = self._bag(whole)
        replayed, bag = self.folder / "replayed.jsonl", self.folder / "recording"
        self.timely_llm("trace", "compose", replayed, *REPLAYED)
        with reserved_domain() as domain:
            more = {"ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
            site = self.tree.run(
                "-P", INSIDE / "ros_site.py", replayed, bag, str(domain),
                timeout_s=SITE_S, more=more,
            )  # fmt: skip
        found |= {name: Recorded(one) for name, one in json.loads(site).items()}
        return {**found, "recording": self._bag(bag)}

    def _bag(self, folder: Path) -> Recorded:
        return Recorded(json.loads(self.tree.run("-P", INSIDE / "bag.py", folder)))


KINDS: dict[str, Callable[[_Recorder], Kind]] = {
    "help": _Recorder.help,
    "interfaces": _Recorder.interfaces,
    "parameters": _Recorder.parameters,
    "config": _Recorder.config,
    "bags": _Recorder.bags,
    "experiments": _Recorder.experiments,
}
"""What records each kind; the quick ones first."""


NOT_RUN = frozenset(("interfaces", "config"))
"""Kinds that are read from the tree's files: nothing of the tree runs."""


def experiment(document: dict[str, Any]) -> Recorded:
    """Split the document of a run into values and words."""
    kept = {key: value for key, value in document.items() if key not in EXCLUDED}
    values, words = split(kept, WORDS)
    # The setup holds numbers under names that are prose, and sentences.
    setup = kept.get("setup", {})
    values["setup"] = [value for value in setup.values() if not isinstance(value, str)]
    words["setup"] = setup
    return Recorded(values, words)


def command(described: dict[str, Any]) -> Recorded:
    """Split what `inside/command_line.py` says of a command into values and words."""
    words = paragraphs(described["shown"])
    parameters: dict[str, Any] = {}
    for place, one in enumerate(described["params"]):
        named = max(one["opts"], key=len)
        is_option = named.startswith("-")
        # Left out: Python's names, which no user sees, and what the help shows.
        left_out = {"name", "help", "metavar"} | (set() if is_option else {"opts"})
        kept = {key: value for key, value in one.items() if key not in left_out}
        kept["type"] = {key: value for key, value in one["type"].items() if key != "param_type"}
        parameters[named if is_option else f"argument {place + 1}"] = kept
    prose = {"name", "help", "epilog", "short_help", "shown", "params"}
    values = {key: value for key, value in described.items() if key not in prose}
    return Recorded({**values, "parameters": parameters}, words)


def paragraphs(shown: str) -> list[str]:
    """Return a help text as its paragraphs and options, whatever the width of its columns."""
    found = []
    for block in shown.split("\n\n"):
        # Below a heading each line that is indented by two is one of a list.
        is_list = block.strip("\n").partition("\n")[0].endswith(":")
        parts = re.split(r"\n(?=  \S)", block) if is_list else [block]
        found += [" ".join(part.split()) for part in parts if part.strip()]
    return found


ROW = re.compile(r"\| `(?P<name>[^`]+)` \| (?P<rest>.*) \|")


def parameters(document: str) -> Kind:
    """Return the parameters of a document's tables.

    Raises:
        ComparisonError: the document has none.
    """
    found: Kind = {}
    node, prose = "", []
    for line in document.splitlines():
        if line.startswith("## "):
            node = line[3:]
        elif row := ROW.fullmatch(line):
            kind, default, rest = row["rest"].split(" | ", 2)
            allowed, _, meaning = rest.partition(" | ") if " | " in rest else ("", "", rest)
            allowed = allowed.strip("| ")
            fixed = meaning.endswith("; at the start")
            values = {"type": kind, "default": default, "allowed": allowed, "fixed": fixed}
            found[f"{node}.{row['name']}"] = Recorded(values, meaning)
        elif node == "":
            prose.append(line)
    if not found:
        raise ComparisonError("the parameters document has no table")
    return {"introduction": Recorded(None, "\n".join(prose)), **found}


def configuration(file: Path) -> Recorded:
    """Return what a file says: YAML without its comments, of other files the digest.

    The description of a document, or of a recipe for a trace, is prose for lists. That of a skill
    stands in prompts: it is a value.
    """
    if file.suffix not in (".yaml", ".yml"):
        return Recorded(hashlib.sha256(file.read_bytes()).hexdigest())
    text = file.read_text(encoding="utf-8")
    # Dates and numbers as keys become texts, as in JSON.
    documents = json.loads(json.dumps(list(yaml.safe_load_all(text)), default=str))
    for one in documents:
        if isinstance(one, dict):
            recipes = one.values() if file.name == "presets.yaml" else ()
            for described in (one, *recipes):
                if isinstance(described, dict):
                    described.pop("description", None)
    return Recorded(documents, text)


def split(document: Any, words: frozenset[str]) -> tuple[Any, Any]:
    """Return a document without the keys that hold prose, and these alone."""
    if isinstance(document, dict):
        pairs = {key: split(value, words) for key, value in document.items() if key not in words}
        prose = {key: found for key, (_, found) in pairs.items() if found not in (None, {}, [])}
        prose |= {key: value for key, value in document.items() if key in words}
        return {key: value for key, (value, _) in pairs.items()}, prose
    if isinstance(document, list) and any(isinstance(one, dict) for one in document):
        both = [split(one, words) for one in document]
        prose_of_all = [found for _, found in both]
        return [value for value, _ in both], prose_of_all if any(prose_of_all) else None
    return document, None


def _with_ancestors(lines: list[str]) -> list[str]:
    """Return indented lines, each with the fields that it stands below."""
    return list(_paths(lines))


def _paths(lines: list[str]) -> Iterator[str]:
    above: list[str] = []
    for line in lines:
        depth = len(line) - len(line.lstrip("\t"))
        del above[depth:]
        above.append(line.strip())
        yield " / ".join(above)
