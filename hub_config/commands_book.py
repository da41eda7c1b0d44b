"""`berth migrate`, `berth backup`, `berth restore` and `berth audit`: the book's schema, one file with a deployment,
and whether every figure is true."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hub_config.datafolder import DataFolder, write_private
from hub_config.processes import read_pid
from hub_config.screen import call_of, complain, say
from quota.errors import BerthError, Conflict, NotFound
from quota.vitals import done_note

if TYPE_CHECKING:  # the book and all behind it are loaded when a command needs them
    from hub_config.book_trouble import Migrated

GOOD, FINDING = 0, 1
_PROCESSES = ("hub", "agent", "proxy", "berth", "idle-culler")


class AddCommand(Protocol):
    """How the command line makes a command with the usual options."""

    def __call__(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int],
        text: str,
        *,
        data: bool = True,
        as_json: bool = False,
    ) -> argparse.ArgumentParser: ...


def add_commands(command: AddCommand) -> None:
    """Tell the command line about them."""
    sub = command("migrate", command_migrate, "Bring the book to the schema of this Berth.", as_json=True)
    sub.add_argument("--dry-run", action="store_true", help="only show what would be done")

    sub = command(
        "backup", command_backup, "Write book, Hub database, settings and secrets into one file.", as_json=True
    )
    sub.add_argument("file", type=Path, help="the file to make, for example berth-2027-01-31.backup")

    sub = command("restore", command_restore, "Put a backup into a data folder.", as_json=True)
    sub.add_argument("file", type=Path, help="a file that `berth backup` made")
    sub.add_argument("--force", action="store_true", help="replace the deployment that is there; it is kept aside")
    sub.add_argument(
        "--keep-settings",
        action="store_true",
        help="keep the berth.toml that is there; its [book] says where the book goes",
    )

    sub = command(
        "audit", command_audit, "Hold every balance and bill against the ledger; changes nothing.", as_json=True
    )
    sub.add_argument("--all", action="store_true", help="list every difference, not the first alone")

    sub = command("rename", command_rename, "Give an account another name; its ledger stays its own.", as_json=True)
    sub.add_argument("account", help="the name that it has")
    sub.add_argument("name", help="the name that it is to have")


def command_migrate(args: argparse.Namespace) -> int:
    from hub_config.book_trouble import bring_up, outlook, refuse_while_at_work
    from hub_config.compose import parts

    made = parts(existing(args.data).root)
    tell = _teller(args.json)
    try:
        if args.dry_run:
            done = outlook(made.store)
        else:
            with at_rest(made.data):
                refuse_while_at_work(made)
                done = bring_up(made, tell)
    finally:
        made.store.close()
    if args.json:
        print(json.dumps(_as_json(done, dry_run=args.dry_run)))
    else:
        _show(done, made.store.where, dry_run=args.dry_run)
    return GOOD


def _as_json(done: Migrated, *, dry_run: bool) -> dict[str, object]:
    return {
        "from": done.before,
        "to": done.after,
        "steps": [{"revision": step.id, "what": step.what} for step in done.steps],
        "done": not dry_run,
        "copy": str(done.copy) if done.copy else None,
    }


def _show(done: Migrated, where: str, *, dry_run: bool) -> None:
    if not done.steps:
        say(f"The book ({where}) has schema {done.after}, which this Berth needs. Nothing to do.")
    elif dry_run:
        say(f"The book ({where}) has {f'schema {done.before}' if done.before else 'no schema yet'}. To do:")
        for step in done.steps:
            say(f"  {step.id}  {step.what}")
    else:
        say(f"The book ({where}) has schema {done.after} now.")


def command_backup(args: argparse.Namespace) -> int:
    from hub_config.backup import back_up
    from hub_config.compose import parts

    made = parts(existing(args.data).root)
    target = args.file.absolute()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}")
    try:
        manifest = back_up(made, target, _teller(args.json))
        with suppress(OSError):  # `berth status` tells of it; it does not make the backup any better
            write_private(made.data.last_backup, done_note(made.clock.now()) + "\n")
    except FileExistsError:
        complain(f"{target} is there already; a backup overwrites nothing. Choose another name.")
        return FINDING
    finally:
        made.store.close()
    if args.json:
        print(json.dumps({"file": str(target), **manifest.as_json()}))
    else:
        say(f"{target}: {sum(manifest.rows.values()):,} rows of the book, schema {manifest.schema}.")
        say(f"Not in it: {'; '.join(manifest.left_out)}.")
        say("It holds passwords and tokens: keep it where only you can read it.")
    return GOOD


def command_restore(args: argparse.Namespace) -> int:
    from hub_config.restore import restore

    if not args.file.is_file():
        raise FileNotFoundError(f"there is no file {args.file}")
    args.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = DataFolder(args.data)
    with at_rest(data):
        done = restore(data, args.file, force=args.force, keep_settings=args.keep_settings, say=_teller(args.json))
        data.make()
    if args.json:
        print(json.dumps(done.as_json()))
    else:
        say(f"Restored: {done.where}, as it was at {done.manifest.made_at}.")
        if done.aside:
            say(f"What was there is kept: {done.aside}")
        for finding in done.findings:
            complain(f"the audit says: {finding}")
        say(f"Go on with: {call_of('up', data.root)}")
    return FINDING if done.findings else GOOD


def command_rename(args: argparse.Namespace) -> int:
    from hub_config.compose import parts
    from spawner.names import check_username

    check_username(args.name)
    made = parts(existing(args.data).root)
    try:
        renamed = made.bank.rename(args.account, args.name, by="berth rename")
    except (NotFound, Conflict) as error:
        complain(f"{error}. Nothing was changed.")
        return FINDING
    finally:
        made.store.close()
    if args.json:
        print(json.dumps({"id": renamed.id, "before": args.account, "name": renamed.name}))
    else:
        say(f"Account {renamed.id} is {renamed.name} now. Rename the user in the Hub as well.")
    return GOOD


def command_audit(args: argparse.Namespace) -> int:
    from hub_config.compose import parts

    made = parts(existing(args.data).root)
    quiet = args.json or not sys.stderr.isatty()
    try:
        made.store.check()
        report = made.bank.audited(None if quiet else _count_checks)
    finally:
        made.store.close()
    if args.json:
        print(json.dumps({"clean": not report.findings, **asdict(report)}))
        return FINDING if report.findings else GOOD
    counted = {"posting": report.postings, "lease": report.leases, "account": report.accounts}
    looked = ", ".join(f"{number:,} {word}{'' if number == 1 else 's'}" for word, number in counted.items())
    if not report.findings:
        say(f"The book is in order: {looked}, in {report.seconds:.1f} s.")
        return GOOD
    first, *more = report.findings
    say(f"First difference: {first}")
    for finding in more if args.all else ():
        say(f"  {finding}")
    rest = "" if args.all or not more else f" {len(more)} more: berth audit --all"
    say(f"{len(report.findings)} in all; looked at {looked}, in {report.seconds:.1f} s.{rest}")
    return FINDING


def _count_checks(name: str, number: int, most: int) -> None:
    end = "\n" if number == most else ""
    print(f"\r{number}/{most} {name:<60}", end=end, file=sys.stderr, flush=True)


# ---- helpers ---------------------------------------------------------------------------------------------------


def existing(root: Path) -> DataFolder:
    """The data folder at `root`. Raises `FileNotFoundError` where there is none."""
    data = DataFolder(root)
    if not (data.secrets.is_dir() or data.settings_file.is_file()):
        raise FileNotFoundError(f"{root} is no data folder of Berth. Start one with: {call_of('up', root)}")
    return data


@contextmanager
def at_rest(data: DataFolder) -> Iterator[None]:
    """Nothing of this deployment runs, and nothing starts, until the block ends. Raises `BerthError`."""
    from hub_config.up import UpError, only_one

    try:
        with only_one(data):
            running = [name for name in _PROCESSES if read_pid(data.pids, name)]
            if running:
                raise BerthError(f"{', '.join(running)} of {data.root} still run; stop Berth first, or wait a moment")
            yield
    except UpError as error:
        raise BerthError(f"{str(error).partition('. ')[0]}. Stop it first (Ctrl-C there).") from None


def _teller(as_json: bool) -> Callable[[str], None]:
    """Progress for a person; whoever asks for JSON wants nothing else on standard output."""
    return complain if as_json else say
