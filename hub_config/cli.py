"""The command line: `berth up | test | passwords | status | grant | service | agent`.

Exit codes: 0 good, 1 a finding or an error, 2 wrong usage (a broken `berth.toml` too).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from hub_config.command_parser import CommandParser
from hub_config.commands_book import add_commands
from hub_config.commands_user import add_user_command
from hub_config.datafolder import DataFolder
from hub_config.guards import private_umask
from hub_config.screen import call_of, complain, say
from hub_config.settings import SettingsError
from quota.errors import BerthError, NotFound, Reason, Refused
from quota.units import parse_credits, show_credits
from spawner.messages import words
from spawner.names import check_username

GOOD, FINDING, USAGE = 0, 1, 2


# ---- commands --------------------------------------------------------------------------------------------------


def command_up(args: argparse.Namespace) -> int:
    from hub_config.up import UpError, up

    try:
        return up(args.data, args.host, args.port, args.backend or "")
    except UpError as error:
        complain(str(error))
        return USAGE if "--host" in str(error) else FINDING


def command_test(args: argparse.Namespace) -> int:
    from hub_config.selftest import run

    return run(deep=args.deep, extra=args.pytest)


def command_passwords(args: argparse.Namespace) -> int:
    data = _existing(args.data)
    table = data.settings().auth
    kind = table.kind
    if kind == "passwords":
        from hub_config.commands_user import show_first

        return show_first(data, table.admins, _url(data), as_json=args.json)
    if kind != "trial":
        complain(f"People log in by auth.kind = {kind!r} of {data.settings_file}; there are no shared passwords.")
        return FINDING
    logins = data.passwords()
    url = _url(data)
    if args.json:
        print(json.dumps({"url": url, **logins}))
    else:
        say(f"{url or 'Berth is not running'}")
        for role, login in logins.items():
            say(f"  {role:<11} {login['name']:<12} {login['password']}")
    return GOOD


def command_status(args: argparse.Namespace) -> int:
    from hub_config.status import show

    return GOOD if show(_existing(args.data), as_json=args.json, watch=args.watch) else FINDING


def command_grant(args: argparse.Namespace) -> int:
    from hub_config.compose import groups_of, parts
    from quota.groups import group_of, no_payer
    from quota.revisions import ready

    _existing(args.data)
    amount = parse_credits(args.credits)
    if amount <= 0:
        raise ValueError("a grant must be more than 0 credits")
    made = parts(args.data)
    if args.expires is not None and args.expires <= made.clock.now():
        raise ValueError(f"--expires {args.expires.isoformat()} has passed; nobody could use such a grant")
    try:
        ready(made.store)
        if group_of(args.account) is not None:
            why = no_payer(groups_of(made.settings), args.account)
            if why:
                complain(why)
                return FINDING
            made.bank.ensure_account(args.account, "group")
        elif args.create:
            check_username(args.account)  # else it could never log in, and "*" means everybody elsewhere
            made.bank.ensure_account(args.account)
        made.bank.grant(args.account, amount, by="berth grant", note=args.note, key=args.key, expires_at=args.expires)
        view = made.bank.account(args.account)
    except NotFound:
        complain(f"There is no account {args.account!r}. It is made at that user's first start; or add --create.")
        return FINDING
    except Refused as refusal:
        if refusal.reason is Reason.BOOK_UNAVAILABLE:
            raise
        complain(words(refusal))
        return USAGE
    finally:
        made.store.close()
    if args.json:
        print(json.dumps({"account": args.account, "granted_micro_credits": amount, "available": view.available}))
    else:
        once = f" (once under the key {args.key})" if args.key else ""
        available = show_credits(view.available)
        say(f"{args.account}: {show_credits(amount)} credits granted{once}, {available} available now.")
    return GOOD


def command_service(args: argparse.Namespace) -> int:
    from hub_config.services import SERVICES

    return SERVICES[args.name](args.data)


def command_agent(args: argparse.Namespace) -> int:
    from hub_config.services import agent

    return agent(args.data)


# ---- helpers ---------------------------------------------------------------------------------------------------


def _existing(root: Path) -> DataFolder:
    data = DataFolder(root)
    if not data.secrets.is_dir():
        raise FileNotFoundError(f"{root} is no data folder of Berth. Start one with: {call_of('up', root)}")
    return data


def _url(data: DataFolder) -> str | None:
    try:
        url: str = json.loads(data.up_file.read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError):
        return None
    return url


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise ValueError
    return port


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _folder(text: str) -> Path:
    return Path(text).expanduser().resolve()


# ---- the parser ------------------------------------------------------------------------------------------------


def parser() -> CommandParser:
    top = CommandParser(prog="berth", description="GPU notebooks for teams, on JupyterHub.")
    top.add_argument("--version", action="version", version=f"berth {version('berth')}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *, data: bool = True, as_json: bool = False
    ) -> argparse.ArgumentParser:
        sub: CommandParser = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        if data:
            sub.add_argument("--data", type=_folder, default=_folder("berth-data"), help="data folder (./berth-data)")
        if as_json:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    sub = command("up", command_up, "Run the platform on this machine until Ctrl-C.")
    sub.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    sub.add_argument("--backend", choices=["local", "docker"], help="what servers run as (backend.kind of berth.toml)")
    sub.add_argument("--port", type=_port, default=8000, help="port to listen on (8000)")

    sub = command("test", command_test, "Run the whole test suite.", data=False)
    sub.add_argument("--deep", action="store_true", help="the long form: more seeds and schedules")
    sub.add_argument("pytest", nargs="*", help="arguments for pytest, after --")

    command("passwords", command_passwords, "Show the address, and the log-ins that Berth made.", as_json=True)
    sub = command("status", command_status, "Show processes, book, devices, leases and findings.", as_json=True)
    sub.add_argument("--watch", action="store_true", help="show it again every 2 s until Ctrl-C")

    sub = command("grant", command_grant, "Give credits to an account.", as_json=True)
    sub.add_argument("account", help="user name")
    sub.add_argument("credits", help="how many, for example 25 or 12.5")
    sub.add_argument("--note", default="", help="why, for the ledger")
    sub.add_argument("--expires", type=_moment, help="when what is left expires, for example 2027-01-01 (never)")
    sub.add_argument("--key", help="a name for this grant; the same key is granted once only")
    sub.add_argument("--create", action="store_true", help="make the account if it is not there yet")

    sub = command("service", command_service, "Run one service of the hub (the hub starts it itself).", data=False)
    sub.add_argument("name", choices=["berth", "idle-culler"], help="which one: berth or idle-culler")
    sub.add_argument("--data", type=_folder, default=None, help="data folder (the environment's BERTH_DATA)")

    add_commands(command)
    add_user_command(command)
    command("agent", command_agent, "Run the agent of this GPU host.")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no "…" shows "?" instead of ending this
    args = parser().parse_args(argv)
    private_umask()
    try:
        code: int = args.run(args)
    except (SettingsError, FileNotFoundError, ValueError) as error:
        complain(str(error))
        return USAGE
    except BrokenPipeError:  # `berth status | head`: who reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDING
    except OSError as error:  # a data folder that is a file, belongs to somebody else, or is on a full disk
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}. Is the data folder usable? Another one is named with --data.")
        return FINDING
    except Refused as refused:  # the book cannot be reached
        from hub_config.book_trouble import trouble

        complain(trouble(refused) if refused.reason is Reason.BOOK_UNAVAILABLE else words(refused))
        return FINDING
    except BerthError as error:
        complain(str(error))
        return FINDING
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
