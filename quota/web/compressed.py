"""Files of the pages go over the wire compressed, in service `berth` and in the Hub."""

from __future__ import annotations

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import GZipContentEncoding


class CompressedFiles(GZipContentEncoding):
    """Styles and scripts, which are the same for everybody. Never a page: compressed together, its XSRF token and words
    that somebody else chose would tell of each other by their length. Never a part of a file: it would be the part of
    another text."""

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        self._file = "/static/" in (request.path or "") and "Range" not in request.headers
        self._gzipping = self._gzipping and self._file

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """As tornado's for a file; others are left alone, `Vary` too."""
        if not self._file:
            return status_code, headers, chunk
        return super().transform_first_chunk(status_code, headers, chunk, finishing)
