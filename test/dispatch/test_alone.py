"""Methods that run one at a time."""

from __future__ import annotations

import threading
import time

from timely_llm.dispatch.alone import Alone, alone


class Account(Alone):
    """Counts by reading and writing, with a pause between."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    @alone
    def enter(self, times: int = 1) -> int:
        """Enter something, once or several times."""
        if times > 1:
            self.enter(times - 1)
        before = self.entries
        time.sleep(0)  # lets the other threads run
        self.entries = before + 1
        return self.entries


def test_no_thread_disturbs_a_method_that_runs() -> None:
    account = Account()
    threads = [
        threading.Thread(target=lambda: [account.enter(times=2) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.entries == 4 * 200 * 2
    assert account.enter() == account.entries
