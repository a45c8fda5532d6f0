"""How the lock shows which installation needs which package."""

from __future__ import annotations

from ops import environment, lock_file

COMPILED = """\
boto3==1.43.2 \\
    --hash=sha256:aa
    # via pydantic-ai-slim
botocore==1.43.2 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via
    #   agenthost (pyproject.toml)
    #   boto3
cbor2==5.9.0 ; platform_python_implementation == 'PyPy' \\
    --hash=sha256:dd
    # via autobahn
django==5.2.19 \\
    --hash=sha256:ee
    # via
    #   agenthost (pyproject.toml)
    #   django-stubs
jinja2==3.1.6 \\
    --hash=sha256:ff
    # via sphinx
sphinx==9.0.4 \\
    --hash=sha256:ab
    # via agenthost (pyproject.toml:docs)
"""


def test_each_package_names_its_sets_and_the_packages_that_need_it() -> None:
    sets = {
        "server": {"django==5.2.19"},
        "bedrock": {"django==5.2.19", "botocore==1.43.2"},
        "pydantic-ai": {"django==5.2.19", "botocore==1.43.2", "boto3==1.43.2"},
        "dev": {"django==5.2.19", "botocore==1.43.2", "boto3==1.43.2", "jinja2==3.1.6"},
        "docs": {"django==5.2.19", "jinja2==3.1.6", "sphinx==9.0.4"},
    }
    pins = environment.read_lock(lock_file.with_sets(COMPILED, sets))
    assert [(pin.name, sorted(pin.sets), pin.via) for pin in pins] == [
        ("boto3", ["pydantic-ai"], ("pydantic-ai-slim",)),
        ("botocore", ["bedrock", "pydantic-ai"], ("boto3", "pyproject.toml")),
        ("cbor2", ["dev"], ("autobahn",)),
        ("django", ["server"], ("django-stubs", "pyproject.toml")),
        ("jinja2", ["dev", "docs"], ("sphinx",)),
        ("sphinx", ["docs"], ("pyproject.toml",)),
    ]
    assert pins[1].hashes == ("sha256:bb", "sha256:cc")
