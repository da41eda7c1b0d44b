"""Every request of service `berth` and of the Hub gets its id and its language here, before any handler sees it."""

from __future__ import annotations

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

from quota import i18n, tracing

#: What has words in it: pages, and errors of REST and of the Hub's API.
_SPOKEN = ("text/html", "application/json", "application/problem+json")


class RequestId(OutputTransform):
    """tornado makes one for each request, whatever handles it (pages, files, redirects, errors): begins the context
    that the handler's task inherits, and puts id and language on the answer."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._id = tracing.begin(request.headers.get(tracing.HEADER))
        chosen = request.cookies[i18n.COOKIE].value if i18n.COOKIE in request.cookies else None
        i18n.use(i18n.negotiate(chosen, request.headers.get("Accept-Language")))
        self._language = i18n.language()

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        headers[tracing.HEADER] = self._id
        if headers.get("Content-Type", "").startswith(_SPOKEN):
            headers["Content-Language"] = self._language
        return status_code, headers, chunk
