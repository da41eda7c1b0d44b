"""What the site offers: the menu, prices, devices; and this interface itself."""

from __future__ import annotations

from quota.api import asked, fill, shapes
from quota.api.base import ApiHandler, Reply, operation
from quota.api.operation import Access
from quota.api.paging import cut
from quota.errors import Reason
from quota.i18n import _
from quota.leases import Device
from quota.web.base import endpoint
from quota.web.board import held_by_device
from quota.web.parts import ProfileView
from quota.web.problem import Problem, Why


class Profiles(ApiHandler):
    @operation("What can be started", shapes.Profiles, query=asked.Paged, problems=(Reason.RULE_FAILED,))
    async def get(self) -> Reply:
        """The menu in its order, with what is free now and what it costs: what is open to one at this moment, or all
        for an administrator."""
        cursors, after = self.cursors()
        found = await self.menu()
        names = [profile.name for profile in found]
        if after is not None and after[0] not in names:
            raise Problem(400, Why.CURSOR, _("The menu has changed since. Begin again without a cursor."))
        start = 0 if after is None else names.index(str(after[0])) + 1
        end = start + self.query(asked.Paged).limit
        following = cursors.write((names[end - 1],)) if end < len(found) else None
        return self.page(shapes.Profiles(items=[fill.profile(each) for each in found[start:end]], next=following))

    async def menu(self) -> list[ProfileView]:
        found = list(await self.in_thread(self.parts.profiles))
        offered = self.parts.offered
        if offered is None or self.viewer.admin:
            return found
        groups = await self.parts.hub.groups_of(self.viewer.name)
        names = await self.in_thread(offered, self.viewer.name, groups)
        return [profile for profile in found if profile.name in names]


class Prices(ApiHandler):
    @operation("Prices now", shapes.Price)
    async def get(self) -> shapes.Price:
        """The plan that new leases are made under."""
        return fill.price(await self.in_thread(self.parts.bank.price))

    @operation("Change the prices", shapes.Price, body=asked.NewPrices, access=Access.ADMIN)
    async def put(self) -> shapes.Price:
        """For leases from now on; those that exist keep theirs."""
        body = self.body(asked.NewPrices)
        gpu, cpu = body.gpu_hour_micro_credits, body.cpu_hour_micro_credits
        return fill.price(await self.in_thread(self.parts.bank.set_price, gpu, cpu, by=self.viewer.name))


def device_key(device: Device) -> tuple[str, str]:
    """Where a device stands in a list. Its position may change when the host boots, host and UUID do not."""
    return (device.host, device.uuid)


class Fleet(ApiHandler):
    @operation("All devices, and who holds what", shapes.Fleet, query=asked.Paged)
    async def get(self) -> Reply:
        """By host and UUID; for everybody, and without money."""
        cursors, after = self.cursors()
        devices = await self.in_thread(self.parts.rows.devices)
        live = await self.in_thread(self.parts.book.holdings)
        page, last = cut(devices, device_key, after, self.query(asked.Paged).limit)
        words = self.parts.isolation_words
        held = held_by_device(live)
        items = [fill.device(device, words(device.mode), held.get(device.uuid, ())) for device in page]
        return self.page(shapes.Fleet(items=items, next=last and cursors.write(last)))


class TheDocument(ApiHandler):
    @operation("This description", shapes.Document, access=Access.ANYBODY)
    async def get(self) -> shapes.Document:
        """OpenAPI 3.1, made from the code that answers."""
        return shapes.Document(**self.application.settings["berth_document"])


class ApiNotFound(ApiHandler):
    """Every address under `api/` that is none."""

    @endpoint(public=True)
    async def get(self, *_path: str) -> None:
        raise Problem(404, Why.NOT_FOUND, _("There is nothing at this address."))

    head = post = put = delete = patch = options = get
