"""Templates of agents: folders or archives of the operator with which the workspaces of their sessions begin.

The row of a workspace names the agent, and the first process that uses the workspace fills its tree. So every such process needs
the template at the path that is in its own agents file.
"""

from __future__ import annotations

import logging
import pathlib
import time

from django.conf import settings

from agents_app import registry
from sessions_app.core.base import database
from sessions_app.core.base.errors import FilesAway, TemplateUnusable
from sessions_app.core.workspaces.places import Place
from sessions_app.core.workspaces.room import QuotaReached, Room
from sessions_app.models import Workspace
from sessions_app.workspace import templates
from sessions_app.workspace.archive import Limits
from sessions_app.workspace.errors import FileError, NoRoom
from sessions_app.workspace.tree import Tree

log = logging.getLogger(__name__)


def of_agent(agent: str) -> str | None:
    """The path of the agent's template on this host."""
    spec = registry.described().get(agent)
    return None if spec is None else spec.template


def agent_of(workspace: int | None) -> str | None:
    """The agent whose template fills this workspace at its first use."""
    if workspace is None:
        return None
    found = Workspace.objects.filter(pk=workspace).values_list("template_agent", flat=True).first()
    database.release()
    return found


def limits() -> Limits:
    return Limits(settings.AGENTHOST_WORKSPACE_FILES, settings.AGENTHOST_WORKSPACE_BYTES)


def fill(tree: Tree, place: Place, agent: str) -> None:
    """Make the tree of this workspace with the agent's template, once. TemplateUnusable, WorkspaceFull, FilesAway."""
    template = of_agent(agent)
    if template is None:
        log.warning("workspace_template_gone agent=%s workspace=%s: it begins empty", agent, place.public_id)
        tree.create()
        return
    begun = time.monotonic()
    try:
        with Room(place) as room:
            templates.create(Tree(tree.directory, owner=tree.owner, ledger=room), pathlib.Path(template), limits())
    except QuotaReached as error:
        raise error.refusal from None
    except NoRoom:
        raise FilesAway from None
    except (FileError, OSError) as error:
        log.error("workspace_template_unusable agent=%s template=%s: %s", agent, template, _reason(error))
        raise TemplateUnusable from None
    log.info("workspace_filled agent=%s workspace=%s seconds=%.1f", agent, place.public_id, time.monotonic() - begun)


def fault(template: str) -> str | None:
    """Why this template cannot be used; it is read completely."""
    try:
        templates.check(pathlib.Path(template), limits())
    except (FileError, OSError) as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, FileError):
        return str(error)
    return getattr(error, "strerror", None) or type(error).__name__
