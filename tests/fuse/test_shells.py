"""Programs that know nothing of a bus: bash, coreutils, socat, Python, a JVM."""

import os
import signal
import sys
from pathlib import Path

import pytest

from ..helpers.mounts import Mount, Mounting, bash, run
from ..helpers.programs import Start, stop
from ..helpers.waiting import DEADLINE, until


def test_echo_publishes_and_cat_subscribes(bus: Mount, start: Start) -> None:
    bus.touch("B_log")
    cat = start("cat", bus / "B_log")
    bus.wait_for_readers(1, "B_log")
    assert (
        bash(f"echo one > {bus / 'B_log'}; echo two >> {bus / 'B_log'}; printf 'three\\nfour\\n' > {bus / 'B_log'}").stderr == ""
    )
    assert cat.stdout
    assert [cat.stdout.readline() for _ in range(4)] == ["one\n", "two\n", "three\n", "four\n"]


def test_cat_into_a_regular_file(bus: Mount, start: Start, tmp_path: Path) -> None:
    """Coreutils copy between regular files in the kernel, for which a channel's size of 0 must not be the end."""
    bus.touch("B_log")
    copy = tmp_path / "copy"
    with copy.open("w") as stream:
        start("cat", bus / "B_log", stdout=stream)
    bus.wait_for_readers(1, "B_log")
    for number in range(3):
        bash(f"echo {number} > {bus / 'B_log'}")
    until(lambda: copy.read_text() == "0\n1\n2\n", "the copy is whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_reader(bus: Mount, start: Start, number: signal.Signals) -> None:
    bus.touch("B_log")
    cat = start("cat", bus / "B_log")
    bus.wait_for_readers(1, "B_log")
    cat.send_signal(number)
    assert cat.wait(DEADLINE) == -number
    bus.wait_for_clients(0, "B_log")


def test_timeout_ends_a_reader(bus: Mount) -> None:
    bus.touch("B_log")
    assert run("timeout", "0.2", "cat", bus / "B_log").returncode == 124
    bus.wait_for_clients(0, "B_log")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("how", ["echo late > {}", "echo late >> {}", "exec 4>{}; echo late >&4", "exec 4<>{}; echo late >&4"])
def test_a_signal_ends_a_blocked_writer(mounting: Mounting, start: Start, how: str, number: signal.Signals) -> None:
    bus = mounting("max_queue=1")
    master = os.open(bus / ".U_log", os.O_RDWR | os.O_CREAT)
    bash(f"echo first > {bus / 'U_log'}")
    writer = start("bash", "-c", how.format(bus / "U_log"))
    bus.wait_for_blocked_writers(1, "U_log")
    writer.send_signal(number)
    assert writer.wait(DEADLINE) == -number
    assert os.read(master, 100) == b"first\n"
    bash(f"echo second > {bus / 'U_log'}")
    assert os.read(master, 100) == b"second\n", "nothing of the one that was ended"
    os.close(master)


def test_a_stopped_reader_goes_on_where_it_was(bus: Mount, start: Start) -> None:
    bus.touch("B_log")
    cat = start("cat", bus / "B_log")
    assert cat.stdout
    bus.wait_for_readers(1, "B_log")
    stop(cat.pid)
    bash(f"echo one > {bus / 'B_log'}; echo two > {bus / 'B_log'}")
    cat.send_signal(signal.SIGCONT)
    assert [cat.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]


def test_a_chat_in_bash_on_one_descriptor(bus: Mount, start: Start) -> None:
    script = "exec 3<>{}; cat <&3 & echo '{{*}}I am {}' >&3; wait"
    chats = []
    for name in ("ann", "bob"):
        chats.append(start("bash", "-c", script.format(bus / "A_chat", name)))
        bus.wait_for_readers(len(chats), "A_chat")
        bus.wait_for_clients(len(chats), "A_chat", sent=1)  # it has been said before the next one hears it
    ann, bob = chats
    assert ann.stdout
    assert bob.stdout
    assert ann.stdout.readline() == "{2}I am bob\n"
    bus.wait_for_clients(2, "A_chat", sent=1)
    # An outsider talks to one of them, and to both.
    assert bash(f"echo '{{2}}psst' > {bus / 'A_chat'}; echo '{{*}}all' > {bus / 'A_chat'}").stderr == ""
    assert bob.stdout.readline() == "{3}psst\n"
    assert bob.stdout.readline() == "{4}all\n"
    assert ann.stdout.readline() == "{4}all\n"


SERVICE_IN_BASH = """
exec 3<>{channel}
while IFS= read -r line <&3; do
    client=${{line%%\\}}*}}\\}}
    case $line in
    *:o\\}}) echo "{{*}}somebody came" >&3 ;;
    *:c\\}}) echo "gone: $line" ;;
    *) echo "$client${{line#*\\}}}} yourself" >&3 ;;
    esac
done
"""

SERVICE_IN_PYTHON = """
import os, re, sys
service = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
while line := os.read(service, 65536):
    client, event, text = re.match(rb"[{](\\w+)(:[oc])?[}](.*)", line).groups()
    if event == b":o":
        os.write(service, b"{*}somebody came\\n")
    elif event == b":c":
        print("gone:", line.decode().strip(), flush=True)
    else:
        os.write(service, b"{%s}%s yourself\\n" % (client, text))
"""


@pytest.mark.parametrize("language", ["bash", "python"])
def test_a_service_whose_clients_come_and_go(bus: Mount, start: Start, language: str) -> None:
    channel = bus / ".S_echo"
    if language == "bash":
        service = start("bash", "-c", SERVICE_IN_BASH.format(channel=channel))
    else:
        service = start(sys.executable, "-c", SERVICE_IN_PYTHON, channel)
    assert service.stdout
    until(lambda: (bus / "S_echo").exists() or service.poll() is not None, "the service is there")
    slaves: list[int] = []
    for _ in range(3):
        slaves.append(os.open(bus / "S_echo", os.O_RDWR))
        assert [os.read(slave, 100) for slave in slaves] == [b"somebody came\n"] * len(slaves)
    os.write(slaves[1], b"hello\n")
    assert os.read(slaves[1], 100) == b"hello yourself\n"
    os.write(slaves[0], b"hey\n")
    assert os.read(slaves[0], 100) == b"hey yourself\n"
    os.close(slaves.pop(1))
    assert service.stdout.readline() == "gone: {3:c}\n"
    service.kill()
    service.wait()
    assert os.read(slaves[0], 100) == b"", "the service is gone: end of file"
    for slave in slaves:
        os.close(slave)


def test_tee_dd_and_head(bus: Mount, start: Start) -> None:
    for name in ("B_in", "B_one", "B_two"):
        bus.touch(name)
    readers = [start("cat", bus / name) for name in ("B_one", "B_two")]
    bus.wait_for_readers(1, "B_one")
    bus.wait_for_readers(1, "B_two")
    tee = start("bash", "-c", f"exec tee {bus / 'B_one'} < {bus / 'B_in'} > {bus / 'B_two'}")
    bus.wait_for_readers(1, "B_in")
    assert bash(f"seq 5 | dd of={bus / 'B_in'} bs=3 2>&1 | tail -1").returncode == 0
    for reader in readers:
        assert reader.stdout
        assert [reader.stdout.readline() for _ in range(5)] == [f"{number}\n" for number in range(1, 6)]
    tee.kill()
    tee.wait()
    until(lambda: not bus.clients("B_in"), "it has gone")
    head = start("head", "-n", "3", bus / "B_in")
    bus.wait_for_readers(1, "B_in")
    bash(f"seq 5 > {bus / 'B_in'}")
    assert head.communicate(timeout=DEADLINE)[0] == "1\n2\n3\n"


def test_bash_reads_lines_itself(bus: Mount, start: Start) -> None:
    bus.touch("B_in")
    reader = start("bash", "-c", f'while IFS= read -r line; do echo "[$line]"; done < {bus / "B_in"}')
    bus.wait_for_readers(1, "B_in")
    bash(f"printf 'one\\n  two  \\n' > {bus / 'B_in'}")
    assert reader.stdout
    assert [reader.stdout.readline() for _ in range(2)] == ["[one]\n", "[  two  ]\n"]


def test_socat_joins_a_channel_to_its_pipes(bus: Mount, start: Start) -> None:
    peer = os.open(bus / "A_chat", os.O_RDWR | os.O_CREAT)
    socat = start("socat", "-u", f"OPEN:{bus / 'A_chat'},rdonly", "STDOUT")
    both = start("socat", "STDIO", f"OPEN:{bus / 'A_chat'}")
    bus.wait_for_clients(3, "A_chat")
    assert both.stdin
    both.stdin.write("{*}from socat\n")
    both.stdin.flush()
    heard = os.read(peer, 100)
    assert heard.endswith(b"}from socat\n")
    os.write(peer, heard.partition(b"}")[0] + b"}answer\n")
    assert both.stdout
    assert both.stdout.readline() == "{1}answer\n"
    assert socat.stdout
    assert socat.stdout.readline() == heard.decode()
    os.close(peer)


def test_python_text_files_read_lines_as_they_come(bus: Mount, start: Start) -> None:
    bus.touch("B_in")
    reader = start(sys.executable, "-c", f"for line in open({str(bus / 'B_in')!r}): print(repr(line), flush=True)")
    bus.wait_for_readers(1, "B_in")
    with (bus / "B_in").open("w") as writer:
        print("one\ntwo", file=writer)
    assert reader.stdout
    assert [reader.stdout.readline() for _ in range(2)] == ["'one\\n'\n", "'two\\n'\n"]


JAVA = """
import java.io.*;
public class Lines {
    public static void main(String[] args) throws Exception {
        try (BufferedReader in = new BufferedReader(new FileReader(args[0]));
             Writer out = new FileWriter(args[1])) {
            for (String line; (line = in.readLine()) != null && !line.equals("end"); ) {
                out.write("java: " + line + "\\n");
                out.flush();
            }
        }
    }
}
"""


def test_a_jvm_reads_and_writes_lines(bus: Mount, start: Start, tmp_path: Path) -> None:
    bus.touch("B_in")
    reader = os.open(bus / "B_out", os.O_RDONLY | os.O_CREAT)
    source = tmp_path / "Lines.java"
    source.write_text(JAVA)
    java = start("java", source, bus / "B_in", bus / "B_out")
    bus.wait_for_readers(1, "B_in")
    bash(f"printf 'one\\ntwo\\nend\\n' > {bus / 'B_in'}")
    assert [os.read(reader, 100) for _ in range(2)] == [b"java: one\n", b"java: two\n"]
    assert java.wait(DEADLINE) == 0
    os.close(reader)


def test_what_a_shell_says_when_something_is_wrong(bus: Mount) -> None:
    deaf = os.open(bus / "A_x", os.O_WRONLY | os.O_CREAT)  # client {1}
    for command, words in {
        "echo hi > U_none": "Illegal seek",
        "echo hi > nothing": "No such device or address",
        "cat B_none": "No such file or directory",
        "echo hi > A_x": "Bad address",
        "echo '{77}hi' > A_x": "No such device",
        "echo '{1}hi' > A_x": "No such process",
        "echo hi > _stat": "No such process",
        "mkdir B_dir": "Operation not permitted",
        "mv A_x A_y": "Operation not permitted",
        "head -c 300000 /dev/zero > A_x": "Message too long",
    }.items():
        done = bash(f"cd {bus.path} && {command}")
        assert done.returncode != 0
        assert words in done.stderr, command
    os.close(deaf)
