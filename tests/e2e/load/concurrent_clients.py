"""Runs functions with many clients at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.e2e.client import Client
from tests.e2e.server import Server

Result = TypeVar("Result")


def at_once(server: Server, *acts: Callable[[Client], Result], key: str | None = None) -> list[Result]:
    """Run each function in its own thread with its own client, started together; returns the results in order."""
    barrier = threading.Barrier(len(acts))
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def run(number: int, act: Callable[[Client], Result]) -> None:
        client = Client(server.origin(number % len(server.ports)), key or server.keys.alice)
        try:
            # Open the connection first, so that the requests start at the same moment.
            client.get("/sessions/none")
            barrier.wait(120)
            results[number] = act(client)
        except BaseException as failure:
            failures.append(failure)
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(number, act)) for number, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a client is still waiting"
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(acts))]


def statuses(answers: Sequence[object]) -> list[int]:
    return sorted(answer.status_code for answer in answers)  # type: ignore[attr-defined]
