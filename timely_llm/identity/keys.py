"""Key files: made by `timely-llm keys new`, read by clients and servers."""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from timely_llm.core.errors import ConfigurationError, RequestError
from timely_llm.core.request import check_name
from timely_llm.core.text import quoted

KEY_BYTES = 32
FIRST_LINE = "timely_llm key 1"
SUFFIX = ".key"
MAX_FILE_BYTES = 4096
MAX_FILE_NAME = 200


@dataclass(frozen=True)
class AgentKey:
    """The key of one agent.

    Attributes:
        agent: name of the robot or person.
        secret: the key; not shown in logs.
    """

    agent: str
    secret: bytes = field(repr=False)


def new_key(agent: str, folder: Path) -> Path:
    """Make a key; return its new file.

    Args:
        agent: name of the robot or person.
        folder: of key files; it is made if there is none.

    Raises:
        ConfigurationError: the name is no agent's, there is a key of this agent, the folder is
            open to other users, or the file cannot be written.
    """
    try:
        check_name("agent", agent)
        name = quote(agent, safe=" ").replace(".", "%2E") + SUFFIX
    except (RequestError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"cannot make a key: {error}") from error
    if len(name) > MAX_FILE_NAME:
        raise ConfigurationError(f"cannot make a key: the name {quoted(agent)} is too long")
    path = folder / name
    words = f"{FIRST_LINE}\nagent: {agent}\nkey: {secrets.token_bytes(KEY_BYTES).hex()}\n"
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
        _check_private(folder, folder.stat().st_mode, "0700")
    except OSError as error:
        raise ConfigurationError(f"cannot make the folder {folder}: {error.strerror}") from error
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(words)
    except FileExistsError as error:
        raise ConfigurationError(
            f"there is a file {path} already: delete it first if {quoted(agent)} is to get"
            " a new key"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    return path


def read_key(path: Path) -> AgentKey:
    """Return the key in a file.

    Raises:
        ConfigurationError: it cannot be read, other users may read or write it, or it is no key.
    """
    try:
        # Non-blocking: opening a pipe must not wait.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigurationError(f"the key {path} is no file")
            _check_private(path, mode, "0600")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read the key {path}: {error.strerror}") from error
    return _parsed(content, path)


def read_keys(path: Path) -> dict[str, AgentKey]:
    """Return the keys in a file, or in all files `*.key` of a folder, by agent.

    Raises:
        ConfigurationError: there is none, one cannot be read, or an agent has two.
    """
    if not path.is_dir():
        key = read_key(path)
        return {key.agent: key}
    keys: dict[str, AgentKey] = {}
    try:
        _check_private(path, path.stat().st_mode, "0700")
        files = sorted(one for one in path.iterdir() if one.suffix == SUFFIX)
    except OSError as error:
        raise ConfigurationError(f"cannot read the folder {path}: {error.strerror}") from error
    for one in files:
        key = read_key(one)
        if key.agent in keys:
            raise ConfigurationError(f"the folder {path} has two keys of {quoted(key.agent)}")
        keys[key.agent] = key
    if not keys:
        raise ConfigurationError(
            f"the folder {path} has no key: make one with `timely-llm keys new AGENT --folder"
            f" {path}`"
        )
    return keys


def _parsed(content: bytes, path: Path) -> AgentKey:
    try:
        lines = content.decode().split("\n")
        first, agent, key, *rest = lines
        if len(content) > MAX_FILE_BYTES or first != FIRST_LINE or any(rest):
            raise ValueError("other lines")
        agent, secret = _after("agent: ", agent), bytes.fromhex(_after("key: ", key))
        check_name("agent", agent)
    except (ValueError, RequestError) as error:
        raise ConfigurationError(
            f"{path} is no key of an agent: `timely-llm keys new` makes one"
        ) from error
    if len(secret) != KEY_BYTES:
        raise ConfigurationError(f"the key in {path} must have {KEY_BYTES} bytes")
    return AgentKey(agent, secret)


def _after(start: str, line: str) -> str:
    if not line.startswith(start):
        raise ValueError(f"no {start}")
    return line.removeprefix(start)


def _check_private(path: Path, mode: int, allowed: str) -> None:
    """Check that only its owner has rights on a file or a folder.

    Raises:
        ConfigurationError: other users have some.
    """
    if mode & 0o077:
        raise ConfigurationError(
            f"other users may open {path}, with its permissions {stat.S_IMODE(mode):04o}:"
            f" `chmod {allowed} '{path}'` closes it"
        )
