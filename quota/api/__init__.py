"""REST of the service `berth`, under `/services/berth/api/v1/`.

`routes` has the addresses; `own`, `held`, `site` and `kit` answer them. What they are asked is in `asked`, what they
answer in `shapes` (filled in `fill`), what each promises stands beside its handler (`operation`), and `document` makes
the OpenAPI document of all three.
"""

from __future__ import annotations

from quota.api.document import document
from quota.api.routes import ADDRESSES, API_ROUTES
from quota.api.site import ApiNotFound

__all__ = ["ADDRESSES", "API_ROUTES", "ApiNotFound", "document"]
