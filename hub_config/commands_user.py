"""`berth user`: people and passwords kept by Berth, beside a Hub that may be at work."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hub_config.datafolder import DataFolder
from hub_config.first_passwords import FirstPasswords, admins_of, made_up
from hub_config.screen import complain, say
from spawner.names import check_username

if TYPE_CHECKING:
    from hub_config.commands_book import AddCommand
    from hub_config.password_table import PasswordTable

GOOD, FINDING = 0, 1


def add_user_command(command: AddCommand) -> None:
    """Tell the command line about it."""
    sub = command("user", command_user, 'Add people and give passwords, with auth.kind = "passwords".', as_json=True)
    sub.add_argument("do", choices=["add", "password", "open", "close"], help="what to do with the account")
    sub.add_argument("name", help="user name")


def command_user(args: argparse.Namespace) -> int:
    from hub_config.commands_book import existing
    from hub_config.password_table import opened

    data = existing(args.data)
    table = data.settings().auth
    if table.kind != "passwords":
        complain(f"People log in by auth.kind = {table.kind!r} of {data.settings_file}; Berth keeps no passwords.")
        return FINDING
    check_username(args.name)
    with opened(data.hub_database) as passwords:
        password, fault = _do(passwords, args.do, args.name, admins_of(table.admins))
    if fault:
        complain(fault)
        return FINDING
    if password:
        FirstPasswords(data).forget(args.name)
    _tell(args, password)
    return GOOD


def _do(passwords: PasswordTable, do: str, name: str, admins: Sequence[str]) -> tuple[str, str]:
    """The password that was made, if any, and why nothing was done."""
    from hub_config.password_table import hashed

    there = passwords.find(name) is not None
    if do == "add":
        password = made_up()
        added = not there and passwords.add(name, hashed(password), is_open=True)
        return (password, "") if added else ("", f"{name} has an account already. A new password: berth user password")
    if not there:
        return "", f"{name} has no account. Make one: berth user add {name}"
    if do == "close" and name in admins:
        return "", f"{name} is an admin by berth.toml; take the name out of auth.admins first."
    if do == "password":
        password = made_up()
        passwords.change(name, hashed(password))
        return password, ""
    passwords.let_in(name, is_open=do == "open")
    return "", ""


def _tell(args: argparse.Namespace, password: str) -> None:
    if args.json:
        print(json.dumps({"name": args.name, "done": args.do, **({"password": password} if password else {})}))
    elif password:
        say(f"{args.name}: {password}")
        say("Shown this once. Log-ins that are open now stay so; the page People and passwords ends them as well.")
    else:
        say(f"The account of {args.name} is {'open' if args.do == 'open' else 'closed'}.")


def show_first(data: DataFolder, admins: Sequence[str], url: str | None, *, as_json: bool) -> int:
    """The admins' first passwords, for `berth passwords`."""
    first = FirstPasswords(data).kept()
    names = admins_of(admins)
    if as_json:
        print(json.dumps({"url": url, "admins": [{"name": name, "password": first.get(name)} for name in names]}))
        return GOOD
    say(f"{url or 'Berth is not running'}")
    for name in names:
        say(f"  {name:<12} {first.get(name) or 'has chosen another password. Forgotten? berth user password ' + name}")
    return GOOD
