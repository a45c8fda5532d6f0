"""Supervised tasks and threads: ``agents_app.supervision``, which the core and the faces use under this name."""

from agents_app.supervision import EXIT_CODE, end_process, leave, task, thread

__all__ = ["EXIT_CODE", "end_process", "leave", "task", "thread"]
