"""Writes a software bill of materials of the server's Python packages, as CycloneDX 1.6 in JSON: `ops/sbom [--with EXTRAS]`.

Names, versions, hashes and who needs what are the lock's; licences are what the installed packages say. The same lock gives
the same file, byte for byte: it has no time. Packages of the operating system are not in it. The image has it as /app/sbom.json.
Standard library only, because the image's build runs it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import uuid
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ops import environment
from ops.environment import LOCK, ROOT, SERVER, Pin

SPDX_NAMES = {
    "Apache-2.0": "Apache-2.0",
    "BSD-2-Clause": "BSD-2-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT": "MIT",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names in packages' metadata that are one licence of SPDX; others, as "BSD License", are several and stay as they are."""
_CLASSIFIER = "License :: "


class SbomError(Exception):
    """The document cannot be written. The text says what to do."""


def licences(package: metadata.PackageMetadata) -> list[dict[str, Any]]:
    """CycloneDX's `licenses`: an SPDX expression if the package has one, else the names that it gives."""
    if "License-Expression" in package:
        return [{"expression": package["License-Expression"]}]
    names = [line.rpartition(" :: ")[2] for line in package.get_all("Classifier", []) if line.startswith(_CLASSIFIER)]
    stated = next(iter(package.get_all("License", [])), "").strip()
    # Some have the whole text there.
    if stated and "\n" not in stated and len(stated) < 100 and (not names or stated in SPDX_NAMES):
        names = [stated]
    known = [{"id": SPDX_NAMES[name]} if name in SPDX_NAMES else {"name": name} for name in names if name != "OSI Approved"]
    return [{"license": each} for each in known]


def component(pin: Pin) -> dict[str, Any]:
    try:
        package = metadata.metadata(pin.name)
    except metadata.PackageNotFoundError:
        raise SbomError(f"{pin.name} is not installed, so its licence is not known: ops/bootstrap --with EXTRAS") from None
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(pin),
        "name": pin.name,
        "version": pin.version,
        "scope": "required",
        # Of every file that an installation may use: wheels for each platform, and the source.
        "hashes": [{"alg": "SHA-256", "content": each.removeprefix("sha256:")} for each in pin.hashes],
        "purl": reference(pin),
    }
    if named := licences(package):
        found["licenses"] = named
    return found


def reference(pin: Pin) -> str:
    return f"pkg:pypi/{pin.name.lower().replace('_', '-')}@{pin.version}"


def document(pins: Sequence[Pin], version: str) -> dict[str, Any]:
    """The bill of materials of these packages."""
    application = f"agenthost@{version}"
    by_name = {pin.name: reference(pin) for pin in pins}
    needs: dict[str, list[str]] = {application: [], **{each: [] for each in by_name.values()}}
    for pin in pins:
        for needed_by in pin.via:
            # Of packages that are needed by one that is not here too, only those count that are.
            parent = application if needed_by == "pyproject.toml" else by_name.get(needed_by)
            if parent is not None:
                needs[parent].append(reference(pin))
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": application, "name": "agenthost", "version": version}},
        "components": [component(pin) for pin in sorted(pins, key=lambda pin: pin.name)],
        "dependencies": [{"ref": name, "dependsOn": sorted(on)} for name, on in sorted(needs.items())],
    }
    digest = json.dumps(made, sort_keys=True)
    return {**made, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"}


def chosen(extras: Sequence[str]) -> list[Pin]:
    """The packages that an installation with these extras has on this machine."""
    pins = environment.read_lock(LOCK.read_text())
    known = environment.extras(pins)
    wanted = known if extras == [environment.ALL] else extras
    if unknown := sorted(set(wanted) - set(known)):
        raise SbomError(f"there is no extra {', '.join(unknown)}; there are {', '.join(known)} and {environment.ALL}")
    values = environment.platform_values(sys.version.split()[0])
    return [pin for pin in environment.chosen(pins, {SERVER, *wanted}) if environment.applies(pin.marker, values)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ops/sbom", description="Writes a bill of materials (CycloneDX 1.6, JSON).")
    parser.add_argument("--with", dest="extras", default="", metavar="EXTRAS", help="with these extras, comma-separated; or all")
    parser.add_argument("--output", type=Path, metavar="FILE", help="instead of stdout")
    given = parser.parse_args(arguments)
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        made = document(chosen([each for each in given.extras.split(",") if each]), version)
    except SbomError as error:
        print(f"ops/sbom: {error}", file=sys.stderr)
        return 1
    text = json.dumps(made, indent=1, sort_keys=True) + "\n"
    if given.output is None:
        sys.stdout.write(text)
    else:
        given.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
