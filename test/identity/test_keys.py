from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.identity.keys import KEY_BYTES, AgentKey, new_key, read_key, read_keys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_new_key_can_be_read_by_its_owner_alone(folder: Path) -> None:
    path = new_key("drone_1", folder)
    assert path == folder / "drone_1.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    key = read_key(path)
    assert key.agent == "drone_1" and len(key.secret) == KEY_BYTES
    assert key.secret.hex() not in repr(key)


def test_two_keys_differ_and_none_is_replaced(folder: Path) -> None:
    first = new_key("ann", folder)
    secret = read_key(first).secret
    with pytest.raises(ConfigurationError, match="already: delete it first"):
        new_key("ann", folder)
    assert read_key(first).secret == secret != read_key(new_key("bob", folder)).secret


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_key_of_any_name_that_is_taken_comes_back(
    tmp_path_factory: pytest.TempPathFactory, agent: str
) -> None:
    folder = tmp_path_factory.mktemp("names") / "keys"
    try:
        path = new_key(agent, folder)
    except ConfigurationError as error:
        assert not agent.isprintable(), error
        return
    assert path.parent == folder
    assert list(read_keys(folder)) == [agent]


@pytest.mark.parametrize("agent", ["", "a\nb", "x" * 129, "\u00e4" * 100])
def test_names_that_no_agent_can_have_are_refused(folder: Path, agent: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot make a key: "):
        new_key(agent, folder)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_open_is_refused(folder: Path, mode: int) -> None:
    path = new_key("ann", folder)
    path.chmod(mode)
    for read in (read_key, read_keys):
        with pytest.raises(ConfigurationError, match=f"with its permissions {mode:04o}: `chmod"):
            read(path)
    with pytest.raises(ConfigurationError, match="other users may open"):
        read_keys(folder)


def test_a_folder_that_others_may_open_is_refused(folder: Path) -> None:
    new_key("ann", folder)
    folder.chmod(0o755)
    with pytest.raises(ConfigurationError, match="`chmod 0700 "):
        read_keys(folder)
    with pytest.raises(ConfigurationError, match="`chmod 0700 "):
        new_key("bob", folder)


def test_a_folder_without_keys_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError, match="has no key: make one with `timely-llm keys new"):
        read_keys(folder)


def test_two_keys_of_one_agent_are_refused(folder: Path) -> None:
    path = new_key("ann", folder)
    other = folder / "again.key"
    other.touch(0o600)
    other.write_bytes(path.read_bytes())
    with pytest.raises(ConfigurationError, match="has two keys of 'ann'"):
        read_keys(folder)


@pytest.mark.parametrize("content", [
    b"", b"\xff", b"timely_llm key 1\n", b"timely_llm key 2\nagent: a\nkey: " + b"0" * 64,
    b"timely_llm key 1\nagent: \nkey: " + b"0" * 64, b"timely_llm key 1\nagent: a\nkey: xyz",
    b"timely_llm key 1\nname: a\nkey: " + b"0" * 64, b"0" * 10_000,
    b"timely_llm key 1\nagent: a\nkey: " + b"0" * 64 + b"\nmore\n",
])  # fmt: skip
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="is no key of an agent"):
        read_key(path)


def test_empty_and_short_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    path.touch(0o600)
    for key in ("", "00" * (KEY_BYTES - 1)):
        path.write_text(f"timely_llm key 1\nagent: a\nkey: {key}\n")
        with pytest.raises(ConfigurationError, match="must have 32 bytes"):
            read_key(path)


def test_what_is_no_file_gets_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the key .*: No such file"):
        read_keys(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigurationError, match="is no file"):
        read_key(tmp_path / "pipe")
    (tmp_path / "file").touch(0o600)
    with pytest.raises(ConfigurationError, match="cannot make the folder "):
        new_key("ann", tmp_path / "file")


def test_a_key_is_not_in_its_words() -> None:
    assert "secret" not in repr(AgentKey("a", b"secret" * 6))
