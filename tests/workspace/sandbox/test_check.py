"""Why no sandbox can be had, and boxes with other roots and places."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sessions_app.workspace import sandbox
from sessions_app.workspace.process import Finished, run_piped, start_piped
from sessions_app.workspace.sandbox import Box, NoSandbox
from sessions_app.workspace.shell import shell
from tests.paths import ROOT
from tests.workspace.sandbox.conftest import box_in


@pytest.fixture
def _anew() -> Iterator[None]:
    sandbox._checked.clear()
    yield
    sandbox._checked.clear()


def ran(box: Box, program: str, **environment: str) -> Finished:
    return asyncio.run(asyncio.wait_for(run_piped(box, ["/bin/sh", "-c", program], environment), 60))


@pytest.mark.usefixtures("_anew")
def test_a_missing_bubblewrap_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: Box
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **rest: None if name == "bwrap" else which(name, **rest))
    reason = "sandboxes need bwrap, which is not installed; on Debian or Ubuntu: apt-get install bubblewrap"
    assert sandbox.check() == reason
    with pytest.raises(NoSandbox, match=reason):
        ran(box, "true")


@pytest.mark.usefixtures("_anew")
def test_a_bubblewrap_that_cannot_limit_tmp_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert sandbox.check() == "bubblewrap 0.6.1 is too old; sandboxes need 0.8.0 or newer"


def test_forbidden_user_namespaces_are_reported_with_the_settings_that_allow_them() -> None:
    # A user namespace in which one more is allowed, and in that one none.
    code = "from sessions_app.workspace import sandbox; print(sandbox.check())"
    inner = f"exec unshare -U --map-user=1000 {sys.executable} -c '{code}'"
    argv = ["unshare", "-Ur", "sh", "-c", f"echo 1 > /proc/sys/user/max_user_namespaces; {inner}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("a sandbox cannot be started: bwrap: "), done
    assert "user.max_user_namespaces above 0" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.usefixtures("_anew")
def test_another_system_than_linux_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert str(sandbox.check()).startswith("sandboxes need Linux")


@pytest.mark.usefixtures("_anew")
def test_a_processor_without_a_seccomp_filter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert (
        sandbox.check() == "sandboxes need a seccomp filter, and there is none for riscv64 processors, only for aarch64, x86_64"
    )


@pytest.mark.usefixtures("_anew")
def test_a_sandbox_that_works_is_tried_once_and_a_failure_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(shutil, "which", lambda name, **rest: None)
        assert "not installed" in str(sandbox.check())
    assert "not installed" in str(sandbox.check())
    monkeypatch.setattr(sandbox, "FAILURE_SECONDS", 0.0)
    assert sandbox.check() is None
    monkeypatch.setattr(shutil, "which", lambda name, **rest: None)
    assert sandbox.check() is None


def copied(program: str, root: Path) -> None:
    """Copies a program of this machine and its libraries into another root."""
    source = shutil.which(program)
    assert source is not None
    printed = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
    for place in [source, *re.findall(r"(/\S+) \(0x", printed)]:
        target = root / place[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, target)


def test_an_operators_root_is_what_programs_see(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for program in ("sh", "setsid", "ls"):
        copied(program, root)
    for link in ("bin", "lib", "lib64"):
        if not (root / link).exists():
            (root / link).symlink_to(f"usr/{link}")
    (root / "etc").mkdir()
    (root / "etc" / "here").write_text("operator")
    # Its directory of the workspace's name is not seen.
    (root / "projects").mkdir()
    (root / "projects" / "hidden").touch()
    box = box_in(tmp_path, root=root)
    finished = ran(box, "ls /etc /projects; echo x > file; echo y > /etc/here; pwd")
    assert finished.output == b"/etc:\nhere\n\n/projects:\none\n/projects/one\n", finished
    assert (tmp_path / "tree" / "file").read_text() == "x\n"
    assert (root / "etc" / "here").read_text() == "operator"
    assert b"Read-only" in finished.errors
    assert sandbox.check(root=root) is None
    # Without bash there are no marks.
    assert (shell(root).argv, shell(root).nonce) == (("/bin/sh", "-i"), None)


def test_an_operators_root_without_a_shell_is_reported(tmp_path: Path) -> None:
    assert "/bin/sh" in str(sandbox.check(root=tmp_path))


@pytest.mark.parametrize("place", ["/tmp", "/tmp/a", "/srv/a", "/var/a", "/a b/ü", "/opt"])
def test_a_workspace_can_have_any_other_place(tmp_path: Path, place: str) -> None:
    box = box_in(tmp_path, mounted_at=place, cwd=place)
    finished = ran(box, "pwd; echo x > file && cd && pwd")
    assert finished.exit_code == 0, finished
    assert finished.output.decode().splitlines()[0] == place
    assert (tmp_path / "tree" / "file").exists()


@pytest.mark.parametrize("place", ["/", "", "relative", "/usr", "/etc/a", "/proc/1", "/a/../usr", "/a//b", "/dev/shm"])
def test_a_place_of_the_system_is_refused(box: Box, place: str) -> None:
    with pytest.raises(ValueError, match="is not a place for a workspace"):
        ran(replace(box, mounted_at=place), "true")


def test_given_variables_are_added_and_odd_names_refused(box: Box) -> None:
    assert ran(box, "echo $TOKEN $HOME", TOKEN="a b", HOME="/projects/one").output == b"a b /projects/one\n"
    for name, value in (("A=B", "x"), ("", "x"), ("A", "x\0y")):
        with pytest.raises(ValueError, match="environment: "):
            ran(box, "true", **{name: value})


def test_large_arguments_are_refused(box: Box) -> None:
    with pytest.raises(ValueError, match="the limit is 49,152"):
        ran(box, "true", LARGE="x" * 50_000)


def test_the_network_is_shared_only_on_request(box: Box) -> None:
    count = "cat /proc/net/dev | wc -l"
    alone = int(ran(box, count).output)
    shared = int(ran(replace(box, machine_network=True), count).output)
    assert alone == 3, "two lines of titles, and lo"
    with Path("/proc/net/dev").open() as file:
        assert shared == len(file.readlines())


def test_files_of_a_box_belong_to_its_owner(box: Box) -> None:
    assert ran(box, "umask; touch made; ls -ln made | cut -d ' ' -f 3").output == b"0022\n1000\n"
    found = (box.tree / "made").stat()
    assert (found.st_uid, found.st_mode & 0o777) == ((sandbox.owner() or (os.getuid(), 0))[0], 0o644)


def test_a_delegated_cgroup_is_used_and_removed(box: Box, tmp_path: Path) -> None:
    delegated = next((place for place in cgroups() if os.access(place, os.W_OK)), None)
    if delegated is None:
        pytest.skip("no cgroup v2 directory can be written")
    own = delegated / f"agenthost-test-{os.getpid()}"
    own.mkdir()
    try:

        async def scenario() -> None:
            process = await start_piped(replace(box, cgroups=own), ["/bin/sleep", "1000"], {})
            (made,) = [entry for entry in own.iterdir() if entry.is_dir()]
            # bubblewrap outside and inside, and the program.
            assert len((made / "cgroup.procs").read_text().split()) == 3
            await process.close()
            assert not made.exists()

        asyncio.run(asyncio.wait_for(scenario(), 60))
    finally:
        own.rmdir()


def cgroups() -> list[Path]:
    with Path("/proc/self/mountinfo").open() as file:
        return [Path(line.split()[4]) for line in file if " - cgroup2 " in line]
