"""Forms of sign-in: those of django-allauth with our limits, and the account of an invited person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account.forms import ChangePasswordForm as _ChangePasswordForm
from allauth.account.forms import LoginForm as _LoginForm
from allauth.account.forms import ReauthenticateForm as _ReauthenticateForm
from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base.forms import AuthenticateForm as _AuthenticateForm
from allauth.mfa.base.forms import ReauthenticateForm as _MFAReauthenticateForm
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User

from sessions_app.accounts import second_factor
from sessions_app.accounts.sign_in import guarded

if TYPE_CHECKING:
    _UserCreationForm = UserCreationForm[User]
else:
    # Django's class is generic only for the type checker.
    _UserCreationForm = UserCreationForm


class LoginForm(_LoginForm):  # type: ignore[misc]  # allauth has no types
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].label = "Account name"
        for field in self.fields.values():
            field.widget.attrs.pop("placeholder", None)
            field.help_text = ""
        self.fields["login"].widget.attrs["autofocus"] = True


class _GuardedCode:
    """A code of a second factor, or a recovery code. Wrong ones count as failed sign-ins."""

    user: User
    authenticator: Authenticator

    def clean_code(self) -> str:
        with guarded(context.request, self.user, "wrong code"):
            code = str(super().clean_code())  # type: ignore[misc]
            if not second_factor.take_code(self.authenticator, code):
                raise get_adapter().validation_error("incorrect_code")
            return code


class AuthenticateForm(_GuardedCode, _AuthenticateForm):  # type: ignore[misc]
    pass


class CodeAgainForm(_GuardedCode, _MFAReauthenticateForm):  # type: ignore[misc]
    pass


class PasswordAgainForm(_ReauthenticateForm):  # type: ignore[misc]
    def clean_password(self) -> str:
        with guarded(context.request, self.user, "wrong password of a signed-in account"):
            return str(super().clean_password())


class ChangePasswordForm(_ChangePasswordForm):  # type: ignore[misc]
    def clean_oldpassword(self) -> str:
        with guarded(context.request, self.user, "wrong password of a signed-in account"):
            return str(super().clean_oldpassword())


class InvitedForm(_UserCreationForm):
    """The new account of an invited person."""

    class Meta:
        model = User
        fields = ("username",)
        labels = {"username": "Account name"}
        help_texts = {"username": "For example your e-mail address. You sign in with it."}

    usable_password = None

    def __init__(self, *args: Any, email: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._email = email
        self.fields["username"].initial = email
        self.fields["username"].widget.attrs["autocomplete"] = "username"

    def save(self, commit: bool = True) -> User:
        self.instance.email = self._email
        user: User = super().save(commit)
        return user


class EndSessionForm(forms.Form):
    session = forms.IntegerField(min_value=1, required=False)
