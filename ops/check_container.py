"""Checks the Dockerfile and compose.yaml without a container engine.

Reads both, makes the folder that the image would contain, and runs Django's checks there, so a file that the Dockerfile does
not copy is noticed. It builds nothing; `python -m ops.try_container` also runs every role from that folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("web", "worker", "terminals", "beat", "migrate", "embedded")
KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "ADD", "RUN", "ENV", "USER", "EXPOSE", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
# The folder is checked with the embedded settings, whatever the caller's environment has.
NOT_INHERITED = ("AGENTHOST_", "DATABASE_", "REDIS_", "CELERY_", "DJANGO_", "PYTHON")


# Installs from requirements.lock, with hashes, by the same rules as ops/bootstrap.
INSTALLS = 'python -I ops/environment.py --with "${EXTRAS}"'
SBOM = '.venv/bin/python -m ops.sbom --with "${EXTRAS}"'


@dataclass(frozen=True)
class Instruction:
    name: str
    rest: str


def instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        Instruction(name.upper(), rest.strip())
        for name, _, rest in (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    ]


def names_a_host(image: str) -> bool:
    first, slash, _ = image.partition("/")
    return bool(slash) and ("." in first or ":" in first or first == "localhost")


def digest_faults(image: str) -> list[str]:
    """Faults of an image's tag and of its digest, which `ops/lock --images` writes; an image may have no digest."""
    name, at, digest = image.partition("@")
    if at and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        return [f"{image}: its digest is malformed"]
    return [] if ":" in name else [f"{image}: it has no tag"]


def copies(stage: list[Instruction]) -> list[tuple[str, str]]:
    """(source, target) of each file or folder that is copied from the checkout."""
    found = []
    for instruction in stage:
        if instruction.name in ("COPY", "ADD") and not instruction.rest.startswith("--from="):
            *sources, target = [word for word in instruction.rest.split() if not word.startswith("--")]
            found += [(source, target) for source in sources]
    return found


def stages(found: list[Instruction]) -> list[list[Instruction]]:
    result: list[list[Instruction]] = []
    for instruction in found:
        if instruction.name == "FROM":
            result.append([])
        if result:
            result[-1].append(instruction)
    return result


def dockerfile_faults(text: str, let_in: set[str]) -> list[str]:
    found = instructions(text)
    faults = [f"unknown instruction {one.name}" for one in found if one.name not in KNOWN]
    arguments = dict(one.rest.split("=", 1) for one in found if one.name == "ARG" and "=" in one.rest)
    for one in found:
        if one.name == "FROM":
            image = re.sub(r"\$\{(\w+)\}", lambda match: arguments.get(match[1], ""), one.rest.split()[0])
            if not image or names_a_host(image):
                faults.append(f"FROM {one.rest}: the base image must not name a registry's host")
            faults += digest_faults(image)
        if one.name == "ADD":
            faults.append("use COPY; ADD also downloads and unpacks")
        if one.name == "RUN" and "pip install" in one.rest and "--require-hashes" not in one.rest:
            faults.append(f"RUN {one.rest}: packages are installed without their hashes")
    if not any(one.name == "RUN" and one.rest.endswith(INSTALLS) for one in stages(found)[0]):
        faults.append(f"no RUN {INSTALLS}: packages are installed from the lock, with the extras of the build argument")
    if not any(one.name == "RUN" and one.rest.startswith(SBOM) for one in stages(found)[0]):
        faults.append(f"no RUN {SBOM}: the image has no bill of materials")
    if "EXTRAS" not in arguments:
        faults.append("no ARG EXTRAS with a default")
    for source, _ in copies(found):
        if not (ROOT / source).exists():
            faults.append(f"COPY {source}: there is no such file")
        elif source not in let_in:
            faults.append(f"COPY {source}: .dockerignore excludes it")
    last = {one.name: one.rest for one in stages(found)[-1]}
    if last.get("USER", "root").split(":")[0] in ("root", "0"):
        faults.append("the image runs as root")
    if json.loads(last.get("ENTRYPOINT", "[]")) != ["ops/entrypoint"]:
        faults.append("ENTRYPOINT is not ops/entrypoint")
    if json.loads(last.get("CMD", "[]")) not in [[role] for role in ROLES]:
        faults.append("CMD is not one of the roles")
    return [f"Dockerfile: {fault}" for fault in faults]


def compose_faults(text: str) -> list[str]:
    document: dict[str, Any] = yaml.safe_load(text)
    services: dict[str, dict[str, Any]] = document["services"]
    secrets, volumes = set(document.get("secrets", {})), set(document.get("volumes", {}))
    settings = (ROOT / "agenthost" / "settings.py").read_text()
    faults = [f"the role {role} has no service" for role in set(ROLES) - {"embedded"} - set(services)]
    for name, service in services.items():
        if names_a_host(service.get("image", "")):
            faults.append(f"{name}: its image names a registry's host")
        faults += [f"{name}: {fault}" for fault in (*digest_faults(service.get("image", "")), *confinement_faults(service))]
        if "build" in service and "EXTRAS" not in service["build"].get("args", {}):
            faults.append(f"{name}: its build has no argument EXTRAS")
        if "build" in service and service.get("command", [])[:1] not in [[role] for role in ROLES]:
            faults.append(f"{name}: its command is not a role")
        if str(service.get("user", "")).split(":")[0] in ("root", "0") or service.get("privileged"):
            faults.append(f"{name}: runs as root")
        waits_for: dict[str, dict[str, str]] = service.get("depends_on", {})
        for other, how in waits_for.items():
            if other not in services:
                faults.append(f"{name}: waits for {other}, which does not exist")
            elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                faults.append(f"{name}: waits for {other} to be healthy, but {other} has no healthcheck")
        faults += [f"{name}: the secret {one} is not defined" for one in service.get("secrets", []) if one not in secrets]
        for mount in service.get("volumes", []):
            volume = mount.partition(":")[0]
            if volume.startswith(".") and not (ROOT / "ops" / volume).is_file():
                faults.append(f"{name}: mounts {volume}, which does not exist")
            if not volume.startswith((".", "/")) and volume not in volumes:
                faults.append(f"{name}: the volume {volume} is not defined")
        if "build" in service:
            for variable, value in service.get("environment", {}).items():
                if f'"{variable.removesuffix("_FILE")}"' not in settings:
                    faults.append(f"{name}: {variable} is no setting")
                if variable.endswith("_FILE") and Path(value).name not in service.get("secrets", []):
                    faults.append(f"{name}: {variable} names a file that is not a secret of this service")
                if "://" in str(value):
                    faults.append(f"{name}: {variable} is in the file; an address with a password belongs in a secret")
    faults += role_faults(services) + proxy_faults(services)
    faults += [f"{name}: {fault}" for name, service in services.items() for fault in files_faults(name, service)]
    if "requirepass" not in str(services.get("redis", {}).get("command")):
        faults.append("redis: it has no password")
    return [f"ops/compose.yaml: {fault}" for fault in faults]


def confinement_faults(service: dict[str, Any]) -> list[str]:
    """Each container has resource limits and no privileges, and listens on this machine only."""
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    faults = [f"no limit on {what}" for what in ("memory", "cpus", "pids") if not limits.get(what)]
    if "no-new-privileges:true" not in service.get("security_opt", []):
        faults.append("its processes may gain privileges")
    if "build" in service and not (service.get("read_only") and service.get("cap_drop") == ["ALL"]):
        faults.append("its root must be read-only (read_only) and without capabilities (cap_drop: ALL)")
    faults += [f"the port {port} is open to other machines" for port in service.get("ports", []) if not is_local(str(port))]
    return faults


def files_faults(name: str, service: dict[str, Any]) -> list[str]:
    """The roles that use the files of workspaces mount one volume, and only the terminal service may make sandboxes."""
    options = [str(one) for one in service.get("security_opt", [])]
    loosened = [one for one in options if one != "no-new-privileges:true"]
    if name != "terminals":
        mounted = not name.startswith(("web", "worker")) or "workspaces:/workspaces" in service.get("volumes", [])
        return [f"{one}: only the service terminals needs this" for one in loosened] + (
            [] if mounted else ["it does not mount the volume of the workspaces"]
        )
    faults = (
        [] if service.get("environment", {}).get("AGENTHOST_WORKSPACES_DIR") == "/workspaces" else ["no AGENTHOST_WORKSPACES_DIR"]
    )
    if "workspaces:/workspaces" not in service.get("volumes", []):
        faults.append("it does not mount the volume of the workspaces")
    if "healthy" not in service.get("healthcheck", {}).get("test", []):
        faults.append("it has no healthcheck")
    if service.get("ports"):
        faults.append("it has a port")
    if "seccomp:unconfined" in options:
        faults.append("its system calls are not filtered")
    return faults + [
        f"{one}: there is no such file" for one in options if one.startswith("seccomp:") and not seccomp_profile(one)
    ]


def seccomp_profile(option: str) -> dict[str, Any] | None:
    """The profile that an option of a service names; relative paths begin at the compose file."""
    path = ROOT / "ops" / option.partition(":")[2]
    return json.loads(path.read_text()) if path.is_file() else None


def is_local(port: str) -> bool:
    """Whether the port is published on this machine only, unless a variable says otherwise."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", port).startswith("127.0.0.1:")


def proxy_faults(services: dict[str, dict[str, Any]]) -> list[str]:
    """The proxy alone has a port, and sends requests to every web, with the configuration that is shipped for nginx."""
    proxy = services.get("proxy", {})
    faults = [f"{name}: it has a port; clients come through the proxy" for name, one in services.items() if one.get("ports")]
    faults = [fault for fault in faults if not fault.startswith("proxy:")]
    mounted = {one.partition(":")[0] for one in proxy.get("volumes", [])}
    faults += [
        f"proxy: it does not mount {one}" for one in ("./compose-proxy.sh", "./nginx/agenthost.conf") if one not in mounted
    ]
    if not (proxy.get("read_only") and proxy.get("cap_drop") == ["ALL"]):
        faults.append("proxy: its root must be read-only (read_only) and without capabilities (cap_drop: ALL)")
    script = re.search(r"WEBS=\$\{WEBS:-(.*)\}", (ROOT / "ops" / "compose-proxy.sh").read_text())
    webs = {f"{name}:8000" for name, one in services.items() if one.get("command") == ["web"]}
    if script is None or set(script[1].split()) != webs:
        faults.append(f"proxy: compose-proxy.sh does not send requests to {', '.join(sorted(webs))}")
    if missing := {web.partition(":")[0] for web in webs} - proxy.get("depends_on", {}).keys():
        faults.append(f"proxy: it does not wait for {', '.join(sorted(missing))}, whose addresses it needs")
    return faults


def role_faults(services: dict[str, dict[str, Any]]) -> list[str]:
    """The Postgres role that migrates and owns the tables is not the one that the server runs as."""
    urls = {
        name: service.get("environment", {}).get("DATABASE_URL_FILE") for name, service in services.items() if "build" in service
    }
    owner = urls.pop("migrate", None)
    faults = [f"{name}: it uses the Postgres role that migrates" for name, url in urls.items() if url == owner]
    if not services.get("migrate", {}).get("environment", {}).get("AGENTHOST_RUNTIME_ROLE"):
        faults.append("migrate: AGENTHOST_RUNTIME_ROLE is not set")
    return faults


def lay_out(text: str, app: Path) -> None:
    """Copy into `app` the files that the Dockerfile copies from the checkout."""
    # Only files that git tracks: others exist on this machine alone and would hide that one is missing.
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    tracked = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    for source, target in copies(stages(instructions(text))[-1]):
        for name in tracked:
            if name == source or name.startswith(f"{source}/"):
                place = app / (name if target == "./" else target + name.removeprefix(source))
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place)


def environment_without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}


def layout_faults(text: str) -> list[str]:
    """Run Django's checks in the folder that the image would contain."""
    with tempfile.TemporaryDirectory() as scratch:
        app = Path(scratch) / "app"
        app.mkdir()
        lay_out(text, app)
        own = {"AGENTHOST_VAR_DIR": str(Path(scratch) / "var"), "PYTHONDONTWRITEBYTECODE": "1"}
        variables = {**environment_without_settings(), **own}
        faults = []
        for command in ("check --fail-level WARNING", "makemigrations --check --dry-run"):
            line = [sys.executable, "manage.py", *command.split()]
            done = subprocess.run(line, check=False, cwd=app, env=variables, capture_output=True, text=True)
            if done.returncode:
                faults.append(f"manage.py {command} fails in the image's folder: {(done.stdout + done.stderr).strip()[-1500:]}")
        entrypoint = app / "ops" / "entrypoint"
        if not entrypoint.exists() or not os.access(entrypoint, os.X_OK):
            faults.append("ops/entrypoint is not an executable file in the image's folder")
        return [f"Dockerfile: {fault}" for fault in faults]


def main() -> int:
    dockerfile = (ROOT / "Dockerfile").read_text()
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    found = dockerfile_faults(dockerfile, let_in)
    found += compose_faults((ROOT / "ops" / "compose.yaml").read_text())
    if not found:
        found = layout_faults(dockerfile)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
