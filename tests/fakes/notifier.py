"""A notifier that keeps what it is handed."""

from __future__ import annotations

from dataclasses import dataclass, field

from quota.notices import Notice


@dataclass
class Told:
    notices: list[Notice] = field(default_factory=list)

    def deliver(self, notice: Notice) -> None:
        self.notices.append(notice)

    def counts(self) -> dict[str, int]:
        return {"notices_delivered": len(self.notices)}
