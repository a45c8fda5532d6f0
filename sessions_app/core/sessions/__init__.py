"""Operations on whole sessions: create, fork, truncate, delete, list, read the state, answer forms, queue messages."""
