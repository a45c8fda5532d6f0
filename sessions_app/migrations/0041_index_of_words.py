"""The indexes of the words: GIN on Postgres; on SQLite an FTS5 table that triggers keep equal to the rows."""

from typing import Any

from django.db import migrations, transaction

from sessions_app.migrations._concurrent import build

_POSTGRES = "create index concurrently search_text_words on sessions_app_searchtext using gin (words)"
_SQLITE = [
    "create virtual table searchtext_words using fts5(words, content='sessions_app_searchtext', content_rowid='id',"
    " tokenize='unicode61 remove_diacritics 0')",
    "create trigger searchtext_added after insert on sessions_app_searchtext begin"
    " insert into searchtext_words(rowid, words) values (new.id, new.words); end",
    "create trigger searchtext_removed after delete on sessions_app_searchtext begin"
    " insert into searchtext_words(searchtext_words, rowid, words) values ('delete', old.id, old.words); end",
]


def forwards(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        build(schema_editor.connection, "search_text_words", _POSTGRES)
        return
    with transaction.atomic(using=schema_editor.connection.alias):
        for statement in _SQLITE:
            schema_editor.execute(statement)


def backwards(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("drop index search_text_words")
    else:
        for statement in ("drop trigger searchtext_added", "drop trigger searchtext_removed", "drop table searchtext_words"):
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    # Housekeeping fills the table from 0040 on.
    atomic = False

    dependencies = [("sessions_app", "0040_search")]

    operations = [migrations.RunPython(forwards, backwards, atomic=False)]
