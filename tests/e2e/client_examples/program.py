"""Runs an example of a client with pipes, while a test reads what it writes."""

from __future__ import annotations

import codecs
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

PATIENCE = 60.0


class Output:
    """What a program has written to one pipe so far."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.text = ""
        self._pipe = pipe
        self._at = 0
        self._has_ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def expect(self, words: str) -> None:
        """Wait for these words, after those that were expected before."""
        with self._changed:
            self._changed.wait_for(lambda: words in self.text[self._at :] or self._has_ended, PATIENCE)
            assert words in self.text[self._at :], f"{words!r} did not come; there is:\n{self.text}"
            self._at = self.text.index(words, self._at) + len(words)

    def finish(self) -> str:
        self._thread.join(PATIENCE)
        return self.text

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        while piece := os.read(self._pipe.fileno(), 65536):
            with self._changed:
                self.text += decode(piece)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


class Program:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        self._process = subprocess.Popen(
            command,
            env={"PATH": os.environ["PATH"], **environment},
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin
        self.answer, self.notes = Output(self._process.stdout), Output(self._process.stderr)

    def type(self, line: str) -> None:
        self._stdin.write(f"{line}\n".encode())
        self._stdin.flush()

    def finish(self) -> int:
        """End its input and wait for its end; returns the exit code. The whole output is in ``text`` then."""
        self._stdin.close()
        code = self._process.wait(PATIENCE)
        self.answer.finish()
        self.notes.finish()
        return code

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        self.answer.finish()
        self.notes.finish()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
