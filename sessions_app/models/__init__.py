"""Database tables and constraints. The functions that write them are in sessions_app.core."""

from sessions_app.models.account import Invitation, Member, Role, Staff, StaffRole
from sessions_app.models.address import LONGEST_URI, Address
from sessions_app.models.agents_of_process import AgentsOfProcess
from sessions_app.models.audit import AuditHead, AuditKey, AuditLink, AuditRecord, AuditSeal, AuditSink
from sessions_app.models.client import ClientHandshake, ClientPresence, DispatchRecord, SessionClient
from sessions_app.models.compaction import Compaction
from sessions_app.models.definition import AgentDefinition
from sessions_app.models.due_summary import DueSummary
from sessions_app.models.figures import HOUR, MINUTE, FiguresMark, ServerFigures, TurnFigures, UseCounted, UseFigures
from sessions_app.models.file_edit import FileVersion, SessionDiffs
from sessions_app.models.form import Form
from sessions_app.models.idempotency import IdempotencyRecord
from sessions_app.models.inbox import DeferredModel, PendingKind, PendingMessage
from sessions_app.models.installation import InstallationMark
from sessions_app.models.journal import Event, EventPartition, JournalGap, Pruned, SessionTail, TenantCounter
from sessions_app.models.key import ApiKey
from sessions_app.models.key_address import KeyAddress
from sessions_app.models.listing import AgentListing, ShownListing
from sessions_app.models.message import Message, Origin
from sessions_app.models.model_use import ModelUse, ModelUsePurpose
from sessions_app.models.option import OptionValue
from sessions_app.models.presence import WorkerPresence
from sessions_app.models.search import SearchText
from sessions_app.models.session import Session
from sessions_app.models.tenant import Tenant
from sessions_app.models.tenant_deletion import TenantDeletion
from sessions_app.models.terminal import Terminal, TerminalScreen, TerminalService, TerminalState
from sessions_app.models.token import AccessToken
from sessions_app.models.tool_call import OPEN_CALL_STATES, CallRunner, CallState, ToolCall
from sessions_app.models.turn import (
    DEFAULT_QUEUE,
    LIVE_STATES,
    NAMED_QUEUE_FORMAT,
    REOPENED_FORMAT,
    TURN_FORMAT,
    TURN_WITH_MODEL,
    Turn,
    TurnAttempt,
    TurnState,
)
from sessions_app.models.usage import NO_DAY, Measure, UsageEntry, UsageTotal
from sessions_app.models.webhook import DeliveryState, Webhook, WebhookDelivery, WebhookSecret
from sessions_app.models.workspace import LONGEST_ROOT, Workspace, WorkspaceTotal

__all__ = [
    "DEFAULT_QUEUE",
    "HOUR",
    "LIVE_STATES",
    "LONGEST_ROOT",
    "LONGEST_URI",
    "MINUTE",
    "NAMED_QUEUE_FORMAT",
    "NO_DAY",
    "OPEN_CALL_STATES",
    "REOPENED_FORMAT",
    "TURN_FORMAT",
    "TURN_WITH_MODEL",
    "AccessToken",
    "Address",
    "AgentDefinition",
    "AgentListing",
    "AgentsOfProcess",
    "ApiKey",
    "AuditHead",
    "AuditKey",
    "AuditLink",
    "AuditRecord",
    "AuditSeal",
    "AuditSink",
    "CallRunner",
    "CallState",
    "ClientHandshake",
    "ClientPresence",
    "Compaction",
    "DeferredModel",
    "DeliveryState",
    "DispatchRecord",
    "DueSummary",
    "Event",
    "EventPartition",
    "FiguresMark",
    "FileVersion",
    "Form",
    "IdempotencyRecord",
    "InstallationMark",
    "Invitation",
    "JournalGap",
    "KeyAddress",
    "Measure",
    "Member",
    "Message",
    "ModelUse",
    "ModelUsePurpose",
    "OptionValue",
    "Origin",
    "PendingKind",
    "PendingMessage",
    "Pruned",
    "Role",
    "SearchText",
    "ServerFigures",
    "Session",
    "SessionClient",
    "SessionDiffs",
    "SessionTail",
    "ShownListing",
    "Staff",
    "StaffRole",
    "Tenant",
    "TenantCounter",
    "TenantDeletion",
    "Terminal",
    "TerminalScreen",
    "TerminalService",
    "TerminalState",
    "ToolCall",
    "Turn",
    "TurnAttempt",
    "TurnFigures",
    "TurnState",
    "UsageEntry",
    "UsageTotal",
    "UseCounted",
    "UseFigures",
    "Webhook",
    "WebhookDelivery",
    "WebhookSecret",
    "WorkerPresence",
    "Workspace",
    "WorkspaceTotal",
]
