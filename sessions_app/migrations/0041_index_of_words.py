"""The indexes of the words: GIN on Postgres; on SQLite an FTS5 table that triggers keep equal to the rows."""

from typing import Any

from django.db import migrations

_POSTGRES = ["create index search_text_words on sessions_app_searchtext using gin (words)"]
_SQLITE = [
    "create virtual table searchtext_words using fts5(words, content='sessions_app_searchtext', content_rowid='id',"
    " tokenize='unicode61 remove_diacritics 0')",
    "create trigger searchtext_added after insert on sessions_app_searchtext begin"
    " insert into searchtext_words(rowid, words) values (new.id, new.words); end",
    "create trigger searchtext_removed after delete on sessions_app_searchtext begin"
    " insert into searchtext_words(searchtext_words, rowid, words) values ('delete', old.id, old.words); end",
]


def forwards(apps: Any, schema_editor: Any) -> None:
    for statement in _POSTGRES if schema_editor.connection.vendor == "postgresql" else _SQLITE:
        schema_editor.execute(statement)


def backwards(apps: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("drop index search_text_words")
    else:
        for statement in ("drop trigger searchtext_added", "drop trigger searchtext_removed", "drop table searchtext_words"):
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0040_search")]

    operations = [migrations.RunPython(forwards, backwards)]
