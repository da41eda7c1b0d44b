"""A real directory (OpenLDAP's slapd) of the tests' own, with TLS by a certificate made here; gone with the run."""

from __future__ import annotations

import datetime
import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import ldap3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.harness.waiting import until

BASE = "dc=example,dc=org"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
SEARCHER, SECRET = f"cn=berth,{BASE}", "the search account's secret"
PASSWORD = "a long enough password"
_ROOT = f"cn=root,{BASE}"
#: An address of this machine that is not among those where a password may go in the clear.
ELSEWHERE = "127.0.0.2"

_CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/slapd.pid
TLSCertificateFile {folder}/cert.pem
TLSCertificateKeyFile {folder}/key.pem
disallow bind_anon
database mdb
suffix "{base}"
rootdn "{root}"
rootpw "{password}"
directory {folder}/db
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{searcher}" read by * none
"""


def program() -> str | None:
    """slapd, where it is installed."""
    return shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/libexec")


class Slapd:
    """`ldap` is for this machine in the clear, `ldaps` with TLS, `starttls` is another address, not in the clear."""

    def __init__(self, folder: Path, port: int, tls_port: int) -> None:
        self.folder, self.port, self.tls_port = folder, port, tls_port
        self.ldap, self.ldaps = f"ldap://127.0.0.1:{port}", f"ldaps://127.0.0.1:{tls_port}"
        self.starttls = f"ldap://{ELSEWHERE}:{port}"
        self.authority = folder / "cert.pem"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "db").mkdir(parents=True)
        _certificate(folder, ["127.0.0.1", ELSEWHERE])
        values = {"folder": folder, "base": BASE, "root": _ROOT, "password": PASSWORD, "searcher": SEARCHER}
        (folder / "slapd.conf").write_text(_CONF.format(**values), encoding="utf-8")

    def start(self) -> Self:
        listen = f"{self.ldap}/ {self.ldaps}/ {self.starttls}/"
        argv = [str(program()), "-f", str(self.folder / "slapd.conf"), "-h", listen, "-d", "0"]
        with (self.folder / "slapd.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        until(self._answers, 20, "slapd answers")
        return self

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.folder / "slapd.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def __enter__(self) -> Self:
        self.start()
        with self._root() as root:
            root.add(BASE, ["dcObject", "organization"], {"dc": "example", "o": "Example"})
            for dn in (PEOPLE, GROUPS):
                root.add(dn, "organizationalUnit", {})
            root.add(SEARCHER, ["organizationalRole", "simpleSecurityObject"], {"userPassword": SECRET})
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- who is there ----------------------------------------------------------------------------------------

    def person(self, name: str, *, dn: str = "", more: tuple[str, ...] = ()) -> str:
        """A new person; the DN."""
        dn = dn or f"uid={name},{PEOPLE}"
        values = {"cn": name, "sn": name, "uid": [name, *more], "userPassword": PASSWORD}
        self._do(lambda root: root.add(dn, "inetOrgPerson", values))
        return dn

    def group(self, name: str, kind: str, member: str) -> str:
        """A new group with one member; `kind` is member, uniqueMember or memberUid."""
        classes = {"member": "groupOfNames", "uniqueMember": "groupOfUniqueNames", "memberUid": "posixGroup"}
        dn = f"cn={name},{GROUPS}"
        more = {"gidNumber": 4711} if kind == "memberUid" else {}
        self._do(lambda root: root.add(dn, classes[kind], {kind: member, **more}))
        return dn

    def change(self, dn: str, how: str, kind: str, value: str) -> None:
        """`how` is MODIFY_ADD, MODIFY_DELETE or MODIFY_REPLACE."""
        self._do(lambda root: root.modify(dn, {kind: [(how, [value])]}))

    def rename(self, dn: str, to: str) -> None:
        self._do(lambda root: root.modify_dn(dn, to))

    def delete(self, dn: str) -> None:
        self._do(lambda root: root.delete(dn))

    def _do(self, act: Callable[[ldap3.Connection], Any]) -> None:
        with self._root() as root:
            act(root)
            assert root.result["result"] == 0, root.result

    @contextmanager
    def _root(self) -> Iterator[ldap3.Connection]:
        server = ldap3.Server("127.0.0.1", port=self.port, get_info=ldap3.NONE)
        root = ldap3.Connection(server, _ROOT, PASSWORD, auto_bind=True, check_names=False)
        try:
            yield root
        finally:
            root.unbind()


def _certificate(folder: Path, addresses: list[str]) -> None:
    """A certificate that is its own authority, for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a directory of a test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(each)) for each in addresses])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
