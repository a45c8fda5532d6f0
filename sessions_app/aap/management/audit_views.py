"""The endpoint of a tenant's audit. It needs the scope ``audit``, and a key that sees its whole tenant."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request

from sessions_app.aap.management import parameters
from sessions_app.aap.views import Endpoint, caller_of, json_answer
from sessions_app.core.base.caller import AUDIT
from sessions_app.core.tenancy import audit_export


class Audit(Endpoint):
    scopes = dict.fromkeys(("GET", "HEAD"), AUDIT)
    http_method_names = ["get", "head"]

    def get(self, request: Request) -> HttpResponse:
        after = parameters.number(request.GET.get("after", "0"))
        if after is None:
            raise ParseError("The query `after` must be the value of `next` in an earlier answer, or the `link` of a record.")
        found = audit_export.page_for(caller_of(request), after)
        shown: dict[str, object] = {"records": found}
        if len(found) == audit_export.PAGE:
            shown["next"] = str(found[-1]["link"])
        return json_answer(shown)
