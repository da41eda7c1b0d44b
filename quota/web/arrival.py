"""Every request of service `berth` and of the Hub gets its id here, before any handler sees it."""

from __future__ import annotations

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform

from quota import tracing


class RequestId(OutputTransform):
    """tornado makes one for each request, whatever handles it (pages, files, redirects, errors): begins the context
    that the handler's task inherits, and puts the id on the answer."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._id = tracing.begin(request.headers.get(tracing.HEADER))

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        headers[tracing.HEADER] = self._id
        return status_code, headers, chunk
