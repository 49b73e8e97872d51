"""Who may ask for what. Stands before the whole app, so that no address can be forgotten.

- The Host header has to name this machine: a page elsewhere whose name is made to point here is refused.
- A write, and every request that is not a person opening a page, has to come from our own pages.
- A token, because other users of this machine reach its ports, too: once in the address, then in a cookie
  that no other site's page can make a browser send.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unstarve.web.pages import APP_POLICY, refusal, step_on

_READS = ("GET", "HEAD")
_STYLE = "/app.css"
"""Says nothing about anybody, and the page that asks for the token looks better with it."""
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_ONCE = ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "authorization")
"""Headers that a request is judged by: where one comes twice, two readers might judge by different ones."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server listens and what it asks for."""

    address: str
    """The IP address it is bound to."""
    port: int
    name: str = "localhost"
    """What the user called the host."""
    token: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def cookie(self) -> str:
        """Its name; cookies do not tell ports apart, so that the name has to."""
        return f"unstarve-{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a Host header names this machine, and not a name that somebody made to point here."""
        written = _HOST.fullmatch(host)
        if written is None:
            return False
        named = written[1].strip("[]").lower()
        if named in ("localhost", self.name.lower()):
            return True
        try:
            is_loopback = ipaddress.ip_address(named).is_loopback
        except ValueError:  # where there is a token, a name that points here gains nothing
            ours = (self.name.lower(), socket.gethostname().partition(".")[0].lower())
            return not self.is_local and named.partition(".")[0] in ours
        return is_loopback or not self.is_local

    def admits(self, said: str | None) -> bool:
        """Whether this is the token; takes as long for a wrong one as for another wrong one."""
        if self.token is None:
            return True
        return said is not None and secrets.compare_digest(
            said.encode("utf-8", "replace"), self.token.encode()
        )


class Guard:
    """Refuses what must not be answered, and puts the same headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", APP_POLICY)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer: ASGIApp = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """None: go on."""
        if any(len(request.headers.getlist(name)) > 1 for name in _ONCE):
            return refusal(request, 400, "this request has a header twice that may come once")
        if not self._access.knows(request.headers.get("host", "")):
            return refusal(
                request, 400, "this server does not answer to that name; use the address it printed"
            )
        if not _is_from_us(request):
            return refusal(request, 403, "this request comes from another site's page")
        if self._access.token is None:
            return None
        return self._ask_for_token(request)

    def _ask_for_token(self, request: Request) -> Response | None:
        access = self._access
        in_address = request.query_params.get("token")
        here = _without_token(request)
        if in_address is not None and access.admits(in_address) and request.method in _READS:
            moved = step_on(here, 200) if _is_led_here(request) else RedirectResponse(here, 303)
            moved.set_cookie(access.cookie, in_address, path="/", httponly=True, samesite="strict")
            return moved
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        said = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(access.cookie)
        if access.admits(said) or request.scope["path"] == _STYLE:
            return None
        if _is_led_here(request):
            return step_on(here, 401)
        return refusal(request, 401, "open the address with the token that `unstarve serve` printed")


def _is_from_us(request: Request) -> bool:
    """A browser says where a request comes from; what is no browser has nobody to be tricked."""
    site = request.headers.get("sec-fetch-site")
    is_read = request.method in _READS
    if is_read and request.headers.get("sec-fetch-mode") == "navigate":
        return True  # somebody follows a link
    if site is not None and site != "same-origin" and not (is_read and site == "none"):
        return False
    origin = request.headers.get("origin")
    ours = [f"{scheme}://{request.headers.get('host', '')}".lower() for scheme in ("http", "https")]
    return origin is None or origin.lower() in ours


def _is_led_here(request: Request) -> bool:
    """Whether another site's page has a link to this one: then the browser keeps the cookie back."""
    site, mode = (request.headers.get(f"sec-fetch-{what}") for what in ("site", "mode"))
    return request.method in _READS and mode == "navigate" and site == "cross-site"


def _without_token(request: Request) -> str:
    """The same place, so that the token stays in no history; never another host's."""
    path = "/" + quote(request.scope["path"].lstrip("/\\"))
    rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
    return f"{path}?{urlencode(rest)}" if rest else path
