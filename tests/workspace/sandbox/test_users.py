"""What the kernel limits for each user: boxes of different users take nothing of it from each other. Only root can have these."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from sessions_app.workspace import process
from sessions_app.workspace.sandbox import DEFAULT_OWNER
from sessions_app.workspace.tree import Tree
from tests.workspace.sandbox.conftest import box_in

pytestmark = [pytest.mark.sandbox, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run boxes as several users")]

# Takes what its user may have of watches of files and of message queues. Then reports what it got.
TAKE = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
most, watches, queues = int(sys.argv[1]), 0, 0
while watches < most and libc.inotify_init() >= 0:
    watches += 1
# O_CREAT and O_RDWR; each has room for ten messages of 8 KiB.
while queues < most and libc.mq_open(b"/queue%d" % queues, 0o102, 0o600, None) >= 0:
    queues += 1
print(watches, queues, flush=True)
time.sleep(1000)
"""


async def taken(directory: Path, uid: int, most: int) -> tuple[process.PipedProcess, int, int]:
    directory.mkdir()  # noqa: ASYNC240
    box = box_in(directory, owner=uid)
    os.chown(box.tree, uid, uid)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("programs in boxes need a Python in /usr; Debian, Ubuntu: apt-get install python3")
    running = await process.start_piped(box, [python, "-I", "-c", TAKE, str(most)], {})
    watches, queues = (await asyncio.wait_for(running.stdout.read(), 30)).split()
    return running, int(watches), int(queues)


def test_a_box_that_takes_all_of_its_user_leaves_another_users_box_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        # A user of this test: other tests run boxes too, as the default one.
        first = DEFAULT_OWNER + 1000 + os.getpid() % 1000
        greedy, watches, queues = await taken(tmp_path / "greedy", first, 100_000)
        try:
            assert watches > 5
            assert queues > 5
            same = await taken(tmp_path / "same", first, 5)
            other = await taken(tmp_path / "other", first + 1, 5)
            await same[0].close()
            await other[0].close()
            # What the kernel does: the same user gets nothing more, another one all of it.
            assert same[1:] == (0, 0)
            assert other[1:] == (5, 5)
        finally:
            await greedy.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_tree_is_given_to_another_user_with_all_that_is_in_it_and_nothing_that_links_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("the server's")
    tree = Tree(tmp_path / "workspace", owner=(70_001, 70_001))
    tree.create()
    (tree.contents / "closed" / "deep").mkdir(parents=True)
    (tree.contents / "closed" / "deep" / "file").write_text("x")
    (tree.contents / "link").symlink_to(outside)
    (tree.contents / "closed").chmod(0o000)
    assert not tree.give_to_owner()
    given = Tree(tmp_path / "workspace", owner=(70_002, 70_003))
    assert given.give_to_owner()
    for path in (tree.contents, *tree.contents.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (70_002, 70_003), path
    assert outside.stat().st_uid == os.geteuid()
    assert not given.give_to_owner()


def test_a_program_works_on_files_that_another_user_had(tmp_path: Path) -> None:
    box = box_in(tmp_path, owner=70_002)
    tree = Tree(tmp_path, owner=(70_001, 70_001))
    os.chown(box.tree, 70_001, 70_001)
    (box.tree / "mine").write_text("before\n")
    os.chown(box.tree / "mine", 70_001, 70_001)
    (box.tree / "mine").chmod(0o600)
    program = ["/bin/sh", "-c", "cat mine && echo after >> mine && echo new > new"]
    refused = asyncio.run(process.run_piped(box, program, {}))
    assert refused.exit_code != 0
    tree.owner = (70_002, 70_002)
    assert tree.give_to_owner()
    assert asyncio.run(process.run_piped(box, program, {})).output == b"before\n"
    assert (box.tree / "mine").read_text() == "before\nafter\n"
    assert (box.tree / "new").stat().st_uid == 70_002
