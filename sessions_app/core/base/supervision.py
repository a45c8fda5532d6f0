"""Supervised tasks and threads: ``agents_app.supervision`` for the core and the faces."""

from agents_app.supervision import EXIT_CODE, end_process, end_tasks, leave, task, thread

__all__ = ["EXIT_CODE", "end_process", "end_tasks", "leave", "task", "thread"]
