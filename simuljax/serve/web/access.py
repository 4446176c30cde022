"""Who may use the server: token, origin and host of a request."""

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from simuljax.serve.web.sessions import Refused

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_KEY_PROTOCOL = "openai-insecure-api-key."  # how browsers give OpenAI's sockets a key


@dataclass(frozen=True, kw_only=True)
class Access:
    """The rules. Without `hosts` any Host header is taken."""

    token: str | None = None
    origins: tuple[str, ...] = ()  # of pages elsewhere that may connect
    hosts: Collection[str] | None = LOOPBACK

    def check(self, connection: HTTPConnection) -> None:
        """Raise `Refused` for a foreign page, another host's name, no token or a wrong one."""
        self.check_host(connection)
        self._check_origin(connection)
        if self.token is None:
            return
        given = _token(connection)
        if given is None:
            raise Refused("token", "no token: add ?token=T or an Authorization: Bearer header")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused("token", "the token is wrong")

    def check_host(self, connection: HTTPConnection) -> None:
        """Refuse names that are not ours: a foreign page may let its name point to us."""
        if self.hosts is None:
            return
        host = _hostname("//" + connection.headers.get("host", ""))
        if host not in self.hosts and host not in map(_hostname, self.origins):
            raise Refused("host", f"host {host!r} is not served here; see --origin")

    def _check_origin(self, connection: HTTPConnection) -> None:
        origin = connection.headers.get("origin")
        if origin is None or origin in self.origins:  # scripts have none
            return
        if urlsplit(origin).netloc != connection.headers.get("host"):
            raise Refused("origin", f"pages of {origin[:100]!r} may not connect; see --origin")


def _token(connection: HTTPConnection) -> str | None:
    kind, _, value = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value.strip()
    for protocol in connection.scope.get("subprotocols", ()):
        if protocol.startswith(_KEY_PROTOCOL):
            return protocol.removeprefix(_KEY_PROTOCOL)
    return connection.query_params.get("token")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
