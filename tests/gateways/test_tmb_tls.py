"""The gateway of the Text Message Bus by TLS: who shows no certificate, or never ends a handshake, keeps nobody out."""

import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from futebus.gateways.tmb.admission import HANDSHAKES

from ..helpers.mounts import Mount, run
from ..helpers.papers import environment, examples
from ..helpers.programs import Start
from ..helpers.waiting import until
from .tmbs import TMB, Gateway, Peer


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: `ca.pem`, `server.pem` and `client.pem` signed by it, `stranger.pem` by nobody; keys are in `*.key`."""
    place = tmp_path_factory.mktemp("tls")
    script = """
        key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        openssl req -x509 $key -keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=critical,keyCertSign,cRLSign
        openssl req -x509 $key -keyout stranger.key -out stranger.pem -subj /CN=stranger
        for name in server client; do
            openssl req $key -keyout $name.key -out $name.csr -subj /CN=localhost
            echo authorityKeyIdentifier=keyid > ext
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $name.pem -extfile ext
        done
        cat server.pem server.key > both.pem
        openssl ec -in server.key -aes128 -passout pass:x -out locked.key
    """
    subprocess.run(["bash", "-ec", script], cwd=place, check=True, capture_output=True)
    return place


@contextlib.contextmanager
def secure(gateway: Gateway, papers: Path, name: str = "") -> Iterator[Peer]:
    """A peer that speaks TLS, and shows a certificate."""
    context = ssl.create_default_context(cafile=papers / "ca.pem")
    if name:
        context.load_cert_chain(papers / f"{name}.pem", papers / f"{name}.key")
    context.check_hostname = False
    peer = Peer(gateway.port)
    peer.socket = context.wrap_socket(peer.socket)
    with peer:
        yield peer


def test_tls(bus: Mount, start: Start, papers: Path, place: Path) -> None:
    gateway = Gateway(start, bus / "B_x", "--tls-cert", str(papers / "both.pem"))
    with Peer(gateway.port) as silent, secure(gateway, papers) as peer:
        assert silent.socket
        peer.send(b"s 1 r .\n:a b\n" + b":x y\n" * 50_000)
        assert peer.lines(50_002)[-1] == b":x y\n"
        address = f"OPENSSL:127.0.0.1:{gateway.port},cafile={papers / 'ca.pem'},commonname=localhost"
        other = start("socat", "-", address)
        assert other.stdin
        assert other.stdout
        for typed, answer in (("s 1 r .\n", "ok subscribed 1 regexp .\n"), (":a b\n", ":a b\n")):
            other.stdin.write(typed)
            other.stdin.flush()
            assert other.stdout.readline() == answer
        peer.hears_nothing_before(b":a b\n")
    with Peer(gateway.port) as plain:
        plain.send(b"s 1 r .\n")
        with contextlib.suppress(ConnectionResetError):
            while plain.socket.recv(100):
                pass
    gateway.wait_for("is refused: TLS: ")
    gateway.end()


def test_who_has_no_certificate_of_the_authority_is_not_let_in(bus: Mount, start: Start, papers: Path) -> None:
    papers_of = ("--tls-cert", str(papers / "server.pem"), "--tls-key", str(papers / "server.key"))
    gateway = Gateway(start, bus / "B_x", *papers_of, "--tls-client-ca", str(papers / "ca.pem"))
    with secure(gateway, papers, "client") as peer:
        peer.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
        for name in ("", "stranger"):
            with pytest.raises(OSError), secure(gateway, papers, name) as other:  # noqa: PT011, PT012 - an error of TLS or of TCP
                other.send(b":a b\n")
                while other.socket.recv(100):
                    pass
                raise ConnectionError
        peer.is_told(b":mine\n", b":mine\n")


def test_the_example_of_the_manual_page(bus: Mount, start: Start, papers: Path) -> None:
    example = examples("futebus-tmb.1")[-1].replace("4711", "0").replace("/mnt/bus", str(bus.path))
    log = papers / "log"
    with log.open("w") as stream:
        start("bash", "-c", example, cwd=papers, env=environment(papers), stderr=stream)
    until(lambda: "is served on 0.0.0.0:" in log.read_text(), "it is ready")
    assert log.read_text().endswith(" by TLS\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-cert", "none.pem"], "none.pem: no certificate and key: No such file or directory"),
        (["--tls-cert", "server.pem"], "server.pem: no certificate and key: PEM lib"),
        (
            ["--tls-cert", "server.pem", "--tls-key", "client.key"],
            "server.pem and client.key: no certificate and key: key values mismatch",
        ),
        (["--tls-cert", "server.pem", "--tls-key", "locked.key"], "locked.key: the key is locked by a password"),
        (["--tls-cert", "both.pem", "--tls-client-ca", "client.key"], "client.key: no certificate: "),
    ],
)
def test_papers_that_are_none(papers: Path, options: list[str], words: str) -> None:
    done = run(*TMB, *options, "B_x", cwd=papers)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_handshake_that_never_ends_delays_nobody(bus: Mount, start: Start, papers: Path) -> None:
    gateway = Gateway(start, bus / "B_x", "--tls-cert", str(papers / "both.pem"), "--max-clients", "40")
    silent = [Peer(gateway.port) for _ in range(30)]
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with secure(gateway, papers) as peer:
                peer.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for peer in silent:
        peer.close()


def test_strangers_who_do_not_shake_hands_keep_nobody_out(bus: Mount, start: Start, papers: Path) -> None:
    """There are more of them than places for those who are let in, and for those who are not yet."""
    gateway = Gateway(start, bus / "B_x", "--tls-cert", str(papers / "both.pem"), "--max-clients", "2")
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(secure(gateway, papers))
        early.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
        for _ in range(HANDSHAKES + 50):
            stack.enter_context(Peer(gateway.port))
        for _ in range(3):
            with secure(gateway, papers) as peer:
                peer.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
                early.is_told(b":a b\n", b":a b\n")
        late = stack.enter_context(secure(gateway, papers))
        late.is_told(b"s 1 r .\n", b"ok subscribed 1 regexp .\n")
        with secure(gateway, papers) as other:
            assert other.line() == b"error there are too many clients: try again later\n"
    gateway.end()
