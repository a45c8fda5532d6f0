"""Runs one turn in memory with the real loop, tools and limits, and the test's model and clients."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents_app import exact_json
from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.runtime import loop
from agents_app.runtime.assemble import assemble
from agents_app.runtime.interface import Ask, Call, FileEdit, FormAnswer, ModelRequest, Provider, ProviderEvent, ToolSet, Usage
from agents_app.runtime.messages import Content, Message, ToolSchema
from agents_app.spec import AgentSpec
from agents_app.testkit.host import MemoryHost, fitting
from agents_app.testkit.values import By, ToolRun, Turn
from agents_app.tools import output, questions
from agents_app.tools.arguments import checked
from agents_app.tools.files.host import Workspace
from agents_app.tools.signature import describe

Permit = bool | Callable[[str, Mapping[str, Any]], bool | str | None]
Answers = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any] | None]

DENIED = "Tool call denied"
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Clients:
    """The behaviour of users and applications in a test."""

    permit: Permit = True
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    schemas: Sequence[ToolSchema] = ()
    answers: Answers | None = None
    stand_ins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Functions that replace the agent's own tools or provide the tools of its MCP servers."""
    files: Workspace | None = None


class RequestLog:
    """A provider that passes requests on to another one and remembers them."""

    def __init__(self, model: Provider) -> None:
        self._model = model
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        self.requests.append(request)
        return self._model.stream(request)


class ReplacedTools:
    """A run's tools, some of them replaced by functions of the test (interface.ToolSet)."""

    def __init__(self, tools: ToolSet, functions: Mapping[str, Callable[..., Any]], limit: int) -> None:
        self._tools, self._functions, self._limit = tools, functions, limit
        self.more = [ToolSchema(name, *describe(function)) for name, function in functions.items() if not tools.has(name)]
        self._schemas = {schema.name: schema for schema in (*tools.schemas, *self.more)}

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        return list(self._schemas.values())

    def has(self, name: str) -> bool:
        return name in self._schemas

    def idempotent(self, name: str) -> bool:
        return self._tools.idempotent(name)

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        return () if name in self._functions else await self._tools.preview(name, arguments)

    async def run(self, name: str, arguments: Mapping[str, Any], ask: Ask | None = None) -> Content:
        function = self._functions.get(name)
        if function is None:
            return await self._tools.run(name, arguments, ask)
        value = function(**checked(arguments, self._schemas[name].parameters))
        return output.as_content(await value if inspect.isawaitable(value) else value, self._limit)


class ScriptedHost(MemoryHost):
    """A host whose clients answer as the test specifies."""

    def __init__(self, clients: Clients, limit: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._clients, self._limit = clients, limit
        self.refused: set[str] = set()

    async def attend(self) -> bool:
        done = [await self._answer(call) for call in list(self.calls.values()) if call.state == "pending"]
        return any(done)

    async def _answer(self, call: Call) -> bool:
        if call.runner == "client":
            result = await self._result(call)
            if result is not None:
                self.decide(call.call_id, "done", result)
            return result is not None
        permit = self._clients.permit
        verdict = permit(call.name, exact_json.loads_plain(call.arguments)) if callable(permit) else permit
        if verdict is True:
            self.decide(call.call_id, "granted")
        elif verdict is not None:
            self.refused.add(call.call_id)
            self.decide(call.call_id, "denied", f"{DENIED}: {verdict}" if verdict else DENIED)
        return verdict is not None

    async def _result(self, call: Call) -> Content | None:
        arguments = exact_json.loads_plain(call.arguments)
        function = self._clients.tools.get(call.name)
        if function is not None:
            value = function(**arguments)
            return output.as_content(await value if inspect.isawaitable(value) else value, self._limit)
        # All other calls of clients are forms.
        answer = self._form_answer(questions.form(arguments))
        return None if answer is None else _result_text(answer)

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:  # noqa: ARG002 - the interface's
        return self._form_answer(form) or FormAnswer("decline")

    def _form_answer(self, form: Mapping[str, Any]) -> FormAnswer | None:
        answers = self._clients.answers
        if answers is None:
            return None
        given = answers(form) if callable(answers) else answers
        if given is None:
            return FormAnswer("decline")
        asked = [question["id"] for question in form["questions"]]
        return FormAnswer("accept", {name: given[name] for name in asked if name in given})


def _result_text(answer: FormAnswer) -> str:
    return "The user declined to answer." if answer.response != "accept" else exact_json.dumps(dict(answer.values))


async def play(
    spec: AgentSpec,
    model: Callable[[Provider], Provider],
    options: Mapping[str, str],
    enabled: frozenset[str],
    clients: Clients,
    messages: Sequence[Message],
    turn: int,
    api_key: str | None = None,
) -> Turn:
    """Run the turn that the last of ``messages``, the user's, begins.

    ``model`` returns the provider to use, given the agent's own. ``api_key``: a key that a server would have in its
    environment.
    """
    pool = FairPool(_THREADS)
    failures: list[ProviderError] = []
    try:
        plan = assemble(spec, options, enabled, pool, None, clients.schemas, files=clients.files)
        asked = RequestLog(model(plan.provider))
        tools = ReplacedTools(plan.tools, clients.stand_ins, spec.limits.tool_output_bytes)
        schemas = [*plan.tool_schemas, *tools.more]
        unexposed = {tool.name for tool in spec.tools if not tool.expose}
        plan = replace(
            plan,
            provider=asked,
            api_key=plan.api_key or (api_key if spec.api_key is None else None),
            tools=tools,
            tool_schemas=schemas,
            why_free=lambda name: "not-needed" if name in unexposed else "",
            client_tools=dict.fromkeys(schema.name for schema in clients.schemas),
            provider_failed=failures.append,
        )
        fits = fitting(plan.instructions, schemas, spec.context_tokens, turn)
        host = ScriptedHost(clients, spec.limits.tool_output_bytes, messages, turn, fits)
        cut = ""
        try:
            async with asyncio.timeout(spec.limits.run):
                await loop.run(plan, host, 0)
        except TimeoutError:
            cut = f"the turn ran longer than limits.run ({spec.limits.run:g} s)"
        return _turn(host, asked, failures, cut)
    finally:
        pool.close()


def _turn(host: ScriptedHost, asked: RequestLog, failures: Sequence[ProviderError], cut: str) -> Turn:
    end, error = host.ended or ("waiting", "")
    counted = [message.usage for message in host.messages]
    return Turn(
        end="error" if cut else end,
        texts=[message.text for message in host.messages],
        thinking="".join(message.thinking for message in host.messages),
        calls=[_tool_run(host, call) for call in host.calls.values()],
        requests=asked.requests,
        usage=Usage(
            sum(each.input_tokens for each in counted),
            sum(each.output_tokens for each in counted),
            sum(each.cache_read_tokens for each in counted),
        ),
        error="limit" if cut else error,
        failure=cut or "; ".join(str(failure) for failure in failures),
        history=host.history,
    )


def _tool_run(host: ScriptedHost, call: Call) -> ToolRun:
    by: Mapping[str, By] = {"server": "server", "client": "client", "nobody": "nobody"}
    try:
        arguments = exact_json.loads_plain(call.arguments)
    except exact_json.NotJSON:
        arguments = None
    return ToolRun(
        name=call.name,
        arguments=arguments if isinstance(arguments, dict) else None,
        result=host.results.get(call.call_id),
        by=by[call.runner],
        asked=call.asks,
        denied=call.call_id in host.refused,
        failed=call.call_id in host.failed,
        id=call.call_id,
    )
