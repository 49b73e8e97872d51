"""Access control. It wraps the whole app, so that no address can be forgotten.

- The Host header must name this machine: this stops a foreign page whose name was made to resolve to it.
- A write, and every request other than a person opening a page, must come from our own pages.
- A token is required, because other users of this machine can reach its ports, too: once in the address, then
  in a cookie that another site's page cannot make a browser send.
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

from unstarve.web.responses import APP_POLICY, redirect_page, refusal

_READS = ("GET", "HEAD")
_STYLE = "/app.css"
"""Contains no data, and the page that asks for the token needs it."""
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
_ONCE = ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "authorization")
"""Headers that decide about a request: if one came twice, two parsers might read different values."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Where the server listens and which token it requires."""

    address: str
    """The IP address it is bound to."""
    port: int
    name: str = "localhost"
    """The host as the user named it."""
    token: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def cookie(self) -> str:
        """Name of the cookie. Cookies are shared between ports, so the name includes the port."""
        return f"unstarve-{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a Host header names this machine, rather than a foreign name made to resolve to it."""
        written = _HOST.fullmatch(host)
        if written is None:
            return False
        named = written[1].strip("[]").lower()
        if named in ("localhost", self.name.lower()):
            return True
        try:
            is_loopback = ipaddress.ip_address(named).is_loopback
        except ValueError:  # beyond loopback there is a token, so a foreign name gains nothing
            ours = (self.name.lower(), socket.gethostname().partition(".")[0].lower())
            return not self.is_local and named.partition(".")[0] in ours
        return is_loopback or not self.is_local

    def admits(self, token: str | None) -> bool:
        """Whether this is the token. Compared in constant time."""
        if self.token is None:
            return True
        return token is not None and secrets.compare_digest(
            token.encode("utf-8", "replace"), self.token.encode()
        )


class Guard:
    """Refuses forbidden requests and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, access: ServerAccess) -> None:
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
        """The refusal, or None if the request may proceed."""
        if any(len(request.headers.getlist(name)) > 1 for name in _ONCE):
            return refusal(request, 400, "a header that may occur only once occurs twice in this request")
        if not self._access.knows(request.headers.get("host", "")):
            return refusal(
                request, 400, "this server does not answer to that host name; use the URL it printed"
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
            moved = (
                redirect_page(here, 200)
                if _is_linked_from_elsewhere(request)
                else RedirectResponse(here, 303)
            )
            moved.set_cookie(access.cookie, in_address, path="/", httponly=True, samesite="strict")
            return moved
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        said = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(access.cookie)
        if access.admits(said) or request.scope["path"] == _STYLE:
            return None
        if _is_linked_from_elsewhere(request):
            return redirect_page(here, 401)
        return refusal(request, 401, "open the URL with the token that `unstarve serve` printed")


def _is_from_us(request: Request) -> bool:
    """Browsers say where a request comes from; other clients cannot be tricked by a foreign page."""
    site = request.headers.get("sec-fetch-site")
    is_read = request.method in _READS
    if is_read and request.headers.get("sec-fetch-mode") == "navigate":
        return True  # a person follows a link
    if site is not None and site != "same-origin" and not (is_read and site == "none"):
        return False
    origin = request.headers.get("origin")
    ours = [f"{scheme}://{request.headers.get('host', '')}".lower() for scheme in ("http", "https")]
    return origin is None or origin.lower() in ours


def _is_linked_from_elsewhere(request: Request) -> bool:
    """Whether a person follows a link on another site's page: the browser then withholds the cookie."""
    site, mode = (request.headers.get(f"sec-fetch-{what}") for what in ("site", "mode"))
    return request.method in _READS and mode == "navigate" and site == "cross-site"


def _without_token(request: Request) -> str:
    """The same address without the token, which must not stay in the history; never on another host."""
    path = "/" + quote(request.scope["path"].lstrip("/\\"))
    rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
    return f"{path}?{urlencode(rest)}" if rest else path
