"""Gives holders of the scope `ahp` the two rights that it stood for: `sessions:read` and `sessions:write`.

The scope itself stays in the rows: the previous release, which runs on this database during an upgrade, asks for it when
a client connects over AHP. This release neither looks at it nor shows it; a later one drops it.
"""

from typing import Any

from django.db import migrations

BOTH = ("sessions:read", "sessions:write")


def give_both(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - Django's signature
    keys = apps.get_model("sessions_app", "ApiKey").objects
    # Not filtered in SQL: only one of the databases looks into JSON lists.
    for pk, scopes in keys.order_by("pk").values_list("pk", "scopes").iterator(chunk_size=2000):
        missing = [scope for scope in BOTH if scope not in scopes]
        if "ahp" in scopes and "*" not in scopes and missing:
            keys.filter(pk=pk).update(scopes=[*scopes, *missing])


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0011_due_summaries")]
    operations = [migrations.RunPython(give_both, migrations.RunPython.noop)]
