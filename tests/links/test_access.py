"""Who gets in, and what is said to whom who does not. Passwords are never said."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import nkeys
import pytest
from nacl.signing import SigningKey

from ..helpers.mounts import Mount, run
from ..helpers.nats import Listening, Server, Serving, tls
from ..helpers.users import BECOME
from ..helpers.waiting import until
from .links import LINK, Linking
from .test_link import say

USERS = """
authorization {
  users = [
    { user: ann, password: "s3cr@t/" }
    { user: ear, password: s3cr3t, permissions: { publish: "other", subscribe: ">" } }
    { user: mouth, password: s3cr3t, permissions: { publish: ">", subscribe: "other" } }
  ]
}
"""


@pytest.fixture
def guarded(serving: Serving) -> Server:
    """A server that lets nobody in without a password."""
    return serving(USERS)


def refused(bus: Mount, *words: str | Path, **own: str) -> str:
    """What a link says that cannot begin: one line."""
    done = run(*LINK, bus / "B_x", *words, env={**os.environ, **own})
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("futebus-link: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "s3cr" not in done.stderr
    return done.stderr.removeprefix("futebus-link: ").strip()


NOT_LET_IN = "it does not let us in: wrong user, password, token, credentials or key, or none"


def test_users_and_passwords(bus: Mount, guarded: Server, linking: Linking, place: Path) -> None:
    escaped = f"{guarded.as_user('ann:s3cr%40t%2F')}/x"
    context = place / "nats" / "context"
    context.mkdir(parents=True)
    (context / "home.json").write_text(json.dumps({"url": guarded.url, "user": "ann", "password": "s3cr@t/", "token": ""}))
    for words, own in (
        ([escaped], {}),
        (["nats:///x"], {"NATS_URL": escaped.removesuffix("/x")}),
        ([guarded / "x"], {"NATS_USER": "ann", "NATS_PASSWORD": "s3cr@t/"}),
        (["--context", "home", "nats:///x"], {"XDG_CONFIG_HOME": str(place)}),
        (["nats:///x"], {"XDG_CONFIG_HOME": str(place), "NATS_CONTEXT": "home", "NATS_USER": "ann"}),
    ):
        link = linking(bus / "B_x", *words, env={**os.environ, **own})
        link.end()
        assert link.words == f"futebus-link: {bus / 'B_x'} is linked to {guarded / 'x'}\n"


def test_who_is_not_let_in_or_not_to_what_he_wants(bus: Mount, guarded: Server, linking: Linking) -> None:
    assert refused(bus, guarded / "x") == f"{guarded.url}: {NOT_LET_IN}"
    assert refused(bus, "--wait", f"{guarded.as_user('ann:s3cr3t-wrong')}/x") == f"{guarded.url}: {NOT_LET_IN}"
    assert refused(bus, f"{guarded.as_user('ear:s3cr3t')}/x") == f"{guarded.url} does not let us speak on x"
    assert refused(bus, f"{guarded.as_user('mouth:s3cr3t')}/x") == f"{guarded.url} does not let us listen to x"
    linking("--write-only", bus / "B_x", f"{guarded.as_user('ear:s3cr3t')}/x").end()
    linking("--read-only", bus / "B_x", f"{guarded.as_user('mouth:s3cr3t')}/x").end()


def test_a_token(bus: Mount, serving: Serving, linking: Linking) -> None:
    nats = serving('authorization { token: "s3cr3t" }')
    linking(bus / "B_x", f"{nats.as_user('s3cr3t')}/x").end()
    linking(bus / "B_x", nats / "x", env={**os.environ, "NATS_TOKEN": "s3cr3t"}).end()


def test_permissions_that_are_taken_away(bus: Mount, serving: Serving, linking: Linking, place: Path) -> None:
    nats = serving("authorization { users = [{ user: ann, password: pw }] }")
    link = linking(bus / "B_x", f"{nats.as_user('ann:pw')}/x")
    configuration = place / "nats1" / "nats.conf"
    configuration.write_text('authorization { users = [{ user: ann, password: pw, permissions: { publish: "other" } }] }')
    subprocess.run(["kill", "-HUP", str(nats.process.pid)], check=True)

    def is_noticed() -> bool:
        say(bus / "B_x", "hello")
        return "does not let us" in link.words

    until(is_noticed, "it says that it may not")
    link.end()


# ---------------------------------------------------------------------------------------------- keys


def seed(kind: int, raw: bytes) -> bytes:
    """A seed as NATS writes it: base 32, with a sum."""
    data = bytes([18 << 3 | kind >> 5, (kind & 31) << 3]) + raw
    return base64.b32encode(data + nkeys.crc16(data).to_bytes(2, "little")).rstrip(b"=")


OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3


class Key:
    """A key of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.seed = seed(kind, bytes(SigningKey.generate()))
        self.pair = nkeys.from_seed(bytearray(self.seed))
        self.name = self.pair.public_key.decode()

    def says(self, subject: "Key", kind: str, **what: Any) -> str:
        """A JWT of NATS."""
        claims = {
            "iss": self.name,
            "sub": subject.name,
            "iat": 1,
            "jti": "x",
            "name": kind,
            "nats": {"type": kind, "version": 2, **what},
        }
        parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)]
        body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        return (body + b"." + base64.urlsafe_b64encode(self.pair.sign(body)).rstrip(b"=")).decode()


def test_credentials(bus: Mount, serving: Serving, linking: Linking, place: Path) -> None:
    operator, account, user, stranger = Key(OPERATOR), Key(ACCOUNT), Key(USER), Key(USER)
    limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    nats = serving(
        f"operator: {operator.says(operator, 'operator')}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.name}: {operator.says(account, 'account', limits=limits)} }}\n"
    )
    for name, key in (("ann", user), ("eve", stranger)):
        jwt = account.says(user, "user", subs=-1, data=-1, payload=-1)
        (place / f"{name}.creds").write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed.decode()}\n------END USER NKEY SEED------\n"
        )
    linking("--creds", place / "ann.creds", bus / "B_x", nats / "x").end()
    linking(bus / "B_x", nats / "x", env={**os.environ, "NATS_CREDS": str(place / "ann.creds")}).end()
    assert refused(bus, "--creds", place / "eve.creds", nats / "x") == f"{nats.url}: {NOT_LET_IN}"


def test_a_key(bus: Mount, serving: Serving, linking: Linking, place: Path) -> None:
    key = Key(USER)
    nats = serving(f"authorization {{ users = [{{ nkey: {key.name} }}] }}")
    (place / "ann.nk").write_bytes(key.seed + b"\n")
    linking("--nkey", place / "ann.nk", bus / "B_x", nats / "x").end()
    (place / "eve.nk").write_bytes(Key(USER).seed)
    assert refused(bus, "--nkey", place / "eve.nk", nats / "x") == f"{nats.url}: {NOT_LET_IN}"


# ---------------------------------------------------------------------------------------------- TLS


def test_tls(bus: Mount, serving: Serving, linking: Linking, listening: Listening, papers: Path) -> None:
    nats, strict = (
        serving(tls(papers), scheme="tls"),
        serving(tls(papers, f'ca_file: "{papers}/ca.pem"', "verify: true"), scheme="tls"),
    )
    ca: list[str | Path] = ["--tls-ca", papers / "ca.pem"]
    own: list[str | Path] = ["--tls-cert", papers / "client.pem", "--tls-key", papers / "client.key"]
    linking(*ca, bus / "B_x", nats / "x").end()
    linking(*ca, bus / "B_x", f"nats://127.0.0.1:{nats.port}/x").end()
    linking(*ca, *own, bus / "B_x", strict / "x").end()
    assert "it is not to be trusted: " in refused(bus, nats / "x")
    assert refused(bus, *ca, strict / "x").startswith(f"{strict.url}: "), "which wants a certificate of ours"


def test_where_tls_is_wanted_nothing_is_said_in_the_clear(bus: Mount, guarded: Server) -> None:
    url = guarded.as_user("ann:s3cr%40t%2F").replace("nats://", "tls://")
    assert refused(bus, f"{url}/x") == f"tls://127.0.0.1:{guarded.port}: it does not speak TLS"


# ---------------------------------------------------------------------------------------------- what is of no use


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--creds", "/nowhere", "nats:///x"], "/nowhere: No such file or directory"),
        (["--creds", "/etc/hostname", "nats:///x"], "/etc/hostname: these are no credentials of a NATS user"),
        (["--nkey", "/etc/hostname", "nats:///x"], "/etc/hostname: no seed of a NATS user, which begins with SU"),
        (["--tls-ca", "/nowhere", "nats:///x"], "/nowhere: no certificates: No such file or directory"),
        (["--tls-ca", "/etc/hostname", "nats:///x"], "/etc/hostname: no certificates: no certificate or crl found"),
        (["--tls-cert", "/etc/hostname", "nats:///x"], "/etc/hostname: no certificate and key: PEM lib"),
        (["--tls-key", "/etc/hostname", "nats:///x"], "a TLS key is of no use without its certificate"),
        (["--context", "../x", "nats:///x"], "no name of a context: '../x'"),
        (["--context", "x", "nats:///x"], "nats/context/x.json: No such file or directory"),
        (["nats://127.0.0.1:1/x"], "nats://127.0.0.1:1: Connection refused"),
        (["nats://nowhere.invalid/x"], "nats://nowhere.invalid:4222: Name or service not known"),
    ],
)  # fmt: skip
def test_what_cannot_be(bus: Mount, words: list[str], complaint: str) -> None:
    assert complaint in refused(bus, *words)
    assert not list(bus.path.glob("B_*")), "who cannot link a channel does not make it"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "the following arguments are required: CHANNEL, URL"),
        (["B_x"], "the following arguments are required: URL"),
        (["x", "nats:///x"], "x: a B channel, please: its name begins with B"),
        (["A_x", "nats:///x"], "a B channel, please: an A channel has addresses"),
        (["S_x", "nats:///x"], "a B channel, please: an S channel has one master"),
        (["U_x", "nats:///x"], "a B channel, please: a U channel has one master, who collects its lines"),
        (["B_x", "nats://ann:s3cr3t@host"], "with %2F, %2C and %40 for / , and @: 'nats://***@host'"),
        (["B_x", "nats:///x", "nats:///x"], "each subject once, please"),
        (["B_x", "nats:///x.>"], "argument URL: one subject, please, and no wildcard: 'x.>'"),
        (["--read-only", "--write-only", "B_x", "nats:///x"], "not allowed with argument"),
        (["--mode", "9", "B_x", "nats:///x"], "argument --mode:"),
    ],
)  # fmt: skip
def test_wrong_arguments(words: list[str], complaint: str) -> None:
    done = run(*LINK, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert "s3cr3t" not in done.stderr


def test_no_bus_and_no_directory(place: Path, nats: Server) -> None:
    for channel, words in (
        (place / "B_x", f"no bus is mounted on {place}"),
        (place / "no" / "B_x", f"there is no directory {place}/no"),
    ):
        done = run(*LINK, channel, nats / "x")
        assert (done.returncode, done.stderr) == (1, f"futebus-link: {words}\n")
        assert not channel.exists()


def test_a_channel_of_somebody_else(bus: Mount, nats: Server) -> None:
    (bus / "B_x").touch(0o600)
    modules = ", ".join(f"futebus.{name}" for name in ("nats.access", "nats.connection", "links.link", "links.running"))
    script = f"import {modules}, futebus.commands.link\nbecome(64001)\nsys.exit(futebus.commands.link.main(sys.argv[1:]))"
    done = run(LINK[0], "-c", BECOME + script, bus / "B_x", nats / "x")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "Permission denied" in done.stderr


def test_without_the_extra(bus: Mount) -> None:
    script = f"""
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "nats" else find(name, *more)
        from futebus.commands.link import main
        sys.exit(main([{str(bus / "B_x")!r}, "nats:///x"]))
    """
    done = run(LINK[0], "-c", "\n".join(line.strip() for line in script.splitlines()))
    assert done.returncode == 1
    assert done.stderr.startswith("futebus-link: the module nats is missing: ")
    assert done.stderr.endswith("scripts/install hosts\n")
