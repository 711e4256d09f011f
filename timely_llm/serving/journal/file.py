"""The file of a recovery journal: records as lines with a checksum."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from timely_llm.core.errors import ConfigurationError, InUseError
from timely_llm.core.request import ErrorCode, PlanRequest, Request, Result
from timely_llm.core.text import quoted
from timely_llm.serving.failures import in_words
from timely_llm.serving.journal.saved import (
    EncodedFields,
    Record,
    SavedConversation,
    SavedRequest,
    accepted_record,
    as_json,
    as_json_text,
    head_of,
    read_result,
    result_record,
)
from timely_llm.serving.server.results import Results, size_of

log = logging.getLogger(__name__)
FORMAT = 1
SPARE_BYTES = 1 << 20
"""Bytes of records that are not needed any more, above which the file is written anew."""
MOST_SKILL_SETS = 64
"""Skill sets that stay in the file, beside those that open requests use."""
MOST_RESULT_BYTES = 4 << 20
"""Bytes of the results in the file; the oldest go first."""


class JournalProblem(ValueError):
    """A file is no journal from which requests can go on; the message says why, in words."""


def _sync_folder(path: Path) -> None:
    """Flush the names of the files in a folder to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def line_of(record: Record) -> bytes:
    """Return a record as a line: its CRC-32 in eight digits, a space, and JSON."""
    return _line(as_json(record))


def _line(record: str) -> bytes:
    text = record.encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def record_in(line: bytes) -> Record:
    """Return the record in a line without its end.

    Raises:
        JournalProblem: the line is damaged.
    """
    try:
        if line[:9] != b"%08x " % zlib.crc32(line[9:]):
            raise JournalProblem("a checksum is wrong")
        text = line[9:].decode()
        record = json.loads(text)
        if not isinstance(record, dict):
            raise JournalProblem("a record is no object")
        if "\\ud" in text.lower():  # half a character, perhaps: no file takes that
            json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise JournalProblem(f"it is damaged: {in_words(error)}") from error
    return record


class JournalFile:
    """Keeps what is needed to go on with the requests that have not ended; for any thread.

    A record is written with one call of the operating system, and so are all that wait since
    `hold`. What is written survives the end of the process at any moment, and with `sync` the end
    of the machine. An incomplete last record is dropped at the next start. A file that is damaged
    in any other way, or that other software has written, is renamed, and nothing of it goes on. The
    file grows with the requests that are served, and by `SPARE_BYTES` at most.

    Args:
        path: the file; made if there is none.
        made_with: the engine and the model; requests go on with the same ones only.
        keep_s: how long the result of a request stays in the file, seconds; 0: none does.
        most_results: most results in the file.
        sync: flush what is written to the disk before it counts.
        wall_s: returns the time of day, seconds; a later life counts on.

    Attributes:
        saved: the requests that had not ended at the start, by id, in order of arrival.
        conversations: by agent and name, in order of their newest turns.
        skill_sets: text of the skill sets that requests used, by name, the newest ones last.
        starts: how often the file was opened.
        problem: why nothing is written any more, in one sentence; empty while that is not so.

    Raises:
        ConfigurationError: the file cannot be written.
        InUseError: another process has it.
    """

    def __init__(
        self, path: str | Path, made_with: str, keep_s: float = 300.0, most_results: int = 4096,
        sync: bool = False, wall_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._path = Path(path)
        self._sync = sync
        self._wall_s = wall_s
        self._made_with = made_with
        self._thread_lock = threading.Lock()
        self._lines: dict[str, list[bytes]] = {}  # by request
        self._uses: dict[str, str] = {}  # skill sets of open requests, by request
        self._turns: dict[tuple[str, str], list[bytes]] = {}  # by conversation
        self._keep_s, self._most_results = keep_s, most_results
        self._results: Results[bytes] = Results(keep_s, most_results, MOST_RESULT_BYTES)
        self._fd = -1
        self._bytes = self._live_bytes = 0
        self._waiting: list[bytes] = []
        self._holds = False
        self.conversations: dict[tuple[str, str], SavedConversation] = {}
        self.saved: dict[str, SavedRequest] = {}
        self.skill_sets: dict[str, str] = {}
        self.starts = 1
        self.problem = ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{self._path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                self._open()
            except BaseException:
                os.close(self._lock)
                raise
        except BlockingIOError as error:
            raise InUseError(
                f"the recovery journal {quoted(str(path))} is in use by another process: give each"
                " server its own"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                f"the recovery journal {quoted(str(path))} cannot be used:"
                f" {error.strerror or error}"
            ) from error

    def _open(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            self._read()
        except JournalProblem as problem:
            aside = f"{self._path}.set_aside"
            self._path.replace(aside)
            self._lines, self._uses, self.saved, self.skill_sets = {}, {}, {}, {}
            self._turns, self.conversations = {}, {}
            self._results.clear()
            log.error(
                "the recovery journal is set aside as %s, and no request goes on: %s",
                aside, problem,
            )  # fmt: skip
        self._write_anew()

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            first = file.readline(1 << 16)
            if not first:
                return
            header = self._header_in(first)
            self.starts = int(header["starts"]) + 1
            for line in file:
                if not line.endswith(b"\n"):
                    return  # its write was interrupted: nothing came of it
                self._take(record_in(line[:-1]), line)

    def _header_in(self, line: bytes) -> Record:
        try:
            header = record_in(line.removesuffix(b"\n"))
        except JournalProblem as problem:
            raise JournalProblem("it does not begin like a recovery journal") from problem
        if header.get("kind") != "journal" or header.get("format") != FORMAT:
            raise JournalProblem("another release has written it")
        if header.get("made_with") != self._made_with:
            raise JournalProblem("it was written with another engine or model")
        if type(header.get("starts")) is not int:
            raise JournalProblem("its first record is incomplete")
        return header

    def _take(self, record: Record, line: bytes) -> None:
        try:
            kind = record["kind"]
            if kind == "skill_set":
                self._keep_skill_set(str(record["name"]), str(record["text"]))
                return
            if kind in ("turn", "forgotten"):
                self._take_turn(record, line)
                return
            request_id = record["id"]
            if kind in ("plan", "answer"):
                self.saved[request_id] = saved = SavedRequest.read(record)
                self._lines[request_id] = [line]
                if isinstance(saved.request, PlanRequest):
                    self._uses[request_id] = saved.request.skill_set
            elif kind == "ended":
                self.saved.pop(request_id, None)
                self._lines.pop(request_id, None)
                self._uses.pop(request_id, None)
                if "result" in record:
                    read_result(record["result"])
                    end_s = min(float(record["at"]), self._wall_s())  # it may have been set back
                    self._results.put(request_id, line, len(line), end_s)
            elif request_id in self.saved:
                self.saved[request_id].take(record)
                self._lines[request_id].append(line)
        except Exception as error:  # of another release, with a right checksum
            raise JournalProblem(f"a record cannot be read: {in_words(error)}") from error

    def _take_turn(self, record: Record, line: bytes) -> None:
        name = str(record["agent"]), str(record["name"])
        earlier = self.conversations.pop(name, None)
        lines = self._turns.pop(name, [])
        if record["kind"] == "turn":
            self.conversations[name] = SavedConversation.read(record, earlier)
            self._turns[name] = [*(lines if record["known"] else ()), line]

    def earlier_results(self, now: float) -> Results[Result]:
        """Return the results in the file.

        Args:
            now: seconds on the clock by which the returned ones are asked for.
        """
        wall_s = self._wall_s()
        found: Results[Result] = Results(self._keep_s, self._most_results)
        for record in [record_in(line[:-1]) for line in self._results.values(wall_s)]:
            result, ago_s = read_result(record["result"]), max(wall_s - record["at"], 0.0)
            found.put(result.request_id, result, size_of(result), now - ago_s)
        return found

    def accepted(self, request: Request, skill_set: tuple[str, str] | None = None) -> None:
        """Write a request that is about to be accepted.

        Args:
            request: the request.
            skill_set: name and text of its skill set.
        """
        with self._thread_lock:
            if skill_set is not None:
                self._uses[request.request_id] = skill_set[0]
                if self.skill_sets.get(skill_set[0]) != skill_set[1]:
                    self._keep_skill_set(*skill_set)
                    self._write(self._skill_set_line(*skill_set))
            line = line_of({"id": request.request_id, **accepted_record(request)})
            self._lines[request.request_id] = [line]
            self._live_bytes += len(line)
            self._write(line)
            self._write_waiting()

    def hold(self) -> None:
        """Let records wait until `flush`, `release`, or an accepted request."""
        with self._thread_lock:
            self._holds = True

    def flush(self) -> None:
        """Write the records that wait."""
        with self._thread_lock:
            self._write_waiting()

    def release(self) -> None:
        """Write the records that wait, and let none wait any more."""
        with self._thread_lock:
            self._holds = False
            self._write_waiting()

    def write(self, request_id: str, fields: EncodedFields) -> None:
        """Write what is about to be published of a request, or what was reported.

        Args:
            request_id: the request; no record is written of one that has ended.
            fields: of the record, behind the id.
        """
        with self._thread_lock:
            lines = self._lines.get(request_id)
            if lines is None:
                return
            line = _line(head_of(request_id) + fields)
            lines.append(line)
            self._live_bytes += len(line)
            self._write(line)

    def keep(self, conversation: SavedConversation) -> None:
        """Write the newest turn of a conversation."""
        name = conversation.agent, conversation.name
        with self._thread_lock:
            earlier = self.conversations.pop(name, None)
            known = len(earlier.messages) if earlier is not None else 0
            if earlier is not None and conversation.messages[:known] != earlier.messages:
                known = 0  # it was begun anew
            lines = self._turns.pop(name, [])
            if not known:
                self._live_bytes -= sum(map(len, lines))
                lines = []
            line = line_of(conversation.record(known))
            self.conversations[name] = conversation
            self._turns[name] = [*lines, line]
            self._live_bytes += len(line)
            self._write(line)

    def keep_only(self, names: Collection[tuple[str, str]]) -> None:
        """Write that all other conversations are forgotten.

        Args:
            names: agents, and their names of the conversations.
        """
        with self._thread_lock:
            for name in [one for one in self.conversations if one not in names]:
                del self.conversations[name]
                self._live_bytes -= sum(map(len, self._turns.pop(name)))
                self._write(line_of({"kind": "forgotten", "agent": name[0], "name": name[1]}))

    def ended(self, request_id: str, result: Result | None = None) -> None:
        """Write that a request has ended.

        Args:
            request_id: the request.
            result: how it ended; None: nothing came of it.
        """
        with self._thread_lock:
            lines = self._lines.pop(request_id, None)
            self._uses.pop(request_id, None)
            if lines is None:
                return
            self._live_bytes -= sum(map(len, lines))
            ended = f'{{"kind":"ended","id":{as_json_text(request_id)}'
            if result is None or result.error_code is ErrorCode.BUSY or self._keep_s <= 0:
                self._write(_line(ended + "}"))
                return
            now = int(self._wall_s())
            line = _line(f'{ended},"at":{now},"result":{as_json(result_record(result))}}}')
            self._results.put(request_id, line, len(line), now)
            self._write(line)

    def close(self) -> None:
        """Close the file."""
        with self._thread_lock:
            for fd in (self._fd, self._lock):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._lock = -1

    def _write(self, line: bytes) -> None:
        """Write a record, or let it wait."""
        self._waiting.append(line)
        if not self._holds:
            self._write_waiting()

    def _write_waiting(self) -> None:
        lines = b"".join(self._waiting)
        self._waiting.clear()
        if self._fd < 0 or not lines:
            return
        try:
            written = self._append(lines)
            if written < len(lines):
                raise OSError(f"{written} of {len(lines)} bytes could be written")
            self._bytes += written
            if self._bytes > 2 * (self._live_bytes + self._results.bytes) + SPARE_BYTES:
                self._write_anew()
        except OSError as error:
            self._fail(error)

    def _append(self, lines: bytes) -> int:
        """Write at the end of the file; return how many bytes were written."""
        written = os.write(self._fd, lines)
        if self._sync:
            os.fdatasync(self._fd)
        return written

    def _fail(self, error: OSError) -> None:
        """Go on without a journal: an incomplete one would publish segments twice."""
        self.problem = (
            "the recovery journal ends here, and no request goes on after a restart:"
            f" {in_words(error)}"
        )
        log.error("%s", self.problem)
        os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _write_anew(self) -> None:
        """Replace the file by one with only what is needed."""
        header: dict[str, Any] = {
            "kind": "journal", "format": FORMAT, "made_with": self._made_with,
            "starts": self.starts,
        }  # fmt: skip
        lines = [line_of(header)]
        lines += [self._skill_set_line(*one) for one in self.skill_sets.items()]
        lines += self._results.values(self._wall_s())
        lines += [line for one in self._turns.values() for line in one]
        lines += [line for one in self._lines.values() for line in one]
        text = b"".join(lines)
        new = f"{self._path}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            if os.write(fd, text) < len(text):
                raise OSError("it could not be written anew")
            if self._sync:
                os.fsync(fd)
            Path(new).replace(self._path)
            if self._sync:
                _sync_folder(self._path.parent)
        except BaseException:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._bytes = fd, len(text)
        self._live_bytes = len(text) - self._results.bytes

    def _keep_skill_set(self, name: str, text: str) -> None:
        self.skill_sets.pop(name, None)
        self.skill_sets[name] = text
        used = {name, *self._uses.values()}
        for old in [one for one in self.skill_sets if one not in used][:-MOST_SKILL_SETS]:
            del self.skill_sets[old]

    @staticmethod
    def _skill_set_line(name: str, text: str) -> bytes:
        return line_of({"kind": "skill_set", "name": name, "text": text})
