"""A client of AAP version 1, strict about what it gets."""

from __future__ import annotations

from typing import Any

from tests.e2e.client_v2 import ClientV2


class ClientV1(ClientV2):
    base = "/aap/v1"

    def session(self, session_id: str) -> dict[str, Any]:
        """The session without its histories; ``history`` reads those."""
        answer: dict[str, Any] = self.ok("GET", self.at(session_id))
        answer.pop("history", None)
        return answer

    def history(self, session_id: str, kind: str = "full") -> list[dict[str, Any]]:
        histories = self.ok("GET", self.at(session_id), params={"history": kind})["history"]
        assert list(histories) == [kind]
        messages: list[dict[str, Any]] = histories[kind]
        return messages

    def all_ids(self) -> list[str]:
        """Every page of the list, walked by the older name of the cursor."""
        ids: list[str] = []
        after = None
        while True:
            page = self.ok("GET", "/sessions", params={} if after is None else {"after": after})
            ids += page["sessions"]
            assert page.get("next") == page.get("nextCursor")
            if "nextCursor" not in page:
                return ids
            after = page["nextCursor"]
