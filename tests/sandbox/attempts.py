"""Ways out of a sandbox, each a program that says `ESCAPED` if it got out, and `contained` if it found no way.

`@name@` stands for something outside; tests.sandbox.stage has the names.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from antwort.sandbox import Ending

MB = 1 << 20


class Attempt(NamedTuple):
    """What somebody tries, and how it has to end."""

    name: str
    command: list[str]
    ending: Ending = "exit"
    limits: Mapping[str, Any] = MappingProxyType({})
    says: str = "contained"
    """What the program has to have said; empty if it is ended before it says anything."""


def shell(name: str, script: str) -> Attempt:
    """Return an attempt whose last command succeeds if it is an escape."""
    return Attempt(name, ["bash", "-c", f"{{ {script}\n}} 2>/dev/null && echo ESCAPED || echo contained"])


def python(name: str, statement: str) -> Attempt:
    """Return an attempt in Python that raises OSError unless it is an escape."""
    return Attempt(name, ["python3", "-c", _PROGRAM.replace("STATEMENT", statement)])


def system_call(name: str, x86: int, arm: int, *arguments: str) -> Attempt:
    """Return an attempt to make a system call, which the filter refuses or says that it does not exist."""
    attempt = python(name, f"call({x86}, {arm}, {', '.join(arguments)})")
    return attempt._replace(says="contained [Errno 38]" if arm in _UNKNOWN else "contained [Errno 1]")


def ended(name: str, ending: Ending, script: str, says: str = "", **limits: Any) -> Attempt:
    """Return a script that has to be ended by a limit."""
    return Attempt(name, ["bash", "-c", script], ending, {"seconds": 20.0, **limits}, says)


_UNKNOWN = (0, 107, 180, 186, 190, 194, 234, 279, 435, 448, 457, 458)
_PROGRAM = """
import ctypes, os, platform, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    done = libc.syscall(arm if platform.machine() == "aarch64" else x86, *arguments)
    if done == -1:
        raise OSError(ctypes.get_errno(), "refused")
def connected(family, address):
    one = socket.socket(family)
    one.settimeout(1)
    one.connect(address)
try:
    STATEMENT
except (OSError, ValueError, MemoryError) as error:
    print("contained", error)
else:
    print("ESCAPED")
"""

_FORKS = """
import os, time
try:
    while True:
        os.fork()
except OSError:
    os.write(1, b"contained\\n")
    time.sleep(0.2)
"""
_THREADS = """
import os, threading, time
try:
    while True:
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
except RuntimeError:
    os.write(1, b"contained")
os._exit(0)
"""
_MAPPED = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
while True:
    file = os.open("x", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 1 << 20)
    place = libc.mmap(None, 1 << 20, 3, 1, file, 0)
    os.close(file)
    os.unlink("x")
    ctypes.memset(place, 120, 1 << 20)
    time.sleep(0.01)
"""
_SENT = """
import os, socket, time
pairs = []
while True:
    file = os.open("x", os.O_RDWR | os.O_CREAT)
    os.unlink("x")
    os.write(file, bytes(2 << 20))
    pairs.append(socket.socketpair())
    socket.send_fds(pairs[-1][0], [b"x"], [file])
    os.close(file)
    time.sleep(0.01)
"""
_AFTER_THE_FIRST_THREAD = """
import ctypes, os, platform, threading, time
def work():
    time.sleep(0.1)
    WORK
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)
"""
_NAMELESS = """file = os.open("x", os.O_RDWR | os.O_CREAT)
    os.unlink("x")
    while os.write(file, bytes(1 << 20)): time.sleep(0.01)"""
_GREEDY = """kept = []
    try:
        while True: kept.append(b"x" * 10**6); time.sleep(0.001)
    except MemoryError: time.sleep(9)"""

_SIGNALS = """
import os, time
def state():
    return open("/proc/1/stat").read().split()[2]
for number in range(1, 65):
    os.kill(1, number)
    for _ in range(20):
        os.sched_yield()
    assert state() in "SR", (number, state())
print("contained")
"""

_PATHS = [
    shell("read the database of the server", "cat @database@"),
    shell("read the key of the server", "cat @key@"),
    shell("read the files of another run", "cat @other@"),
    shell("read the files of another run by a path upwards", "cat ../../../../../../../@other@"),
    shell("find another run beside the own folder", "test $(ls -A /workspace/.. | grep -c ^w0) -gt 0"),
    shell("list the data folder", "ls @folder@"),
    shell("read the passwords of the system", "cat /etc/shadow"),
    shell("look for people", "ls -A /root /home | grep ."),
    shell("look at what the system keeps", "ls /var /run /sys /boot /srv /opt /mnt"),
    shell("read a secret from the environment", "env | grep -i secret"),
    shell("read a secret from the environment of others", "cat /proc/[0-9]*/environ | grep -ai secret"),
    shell("read the environment of the server through its parent", "cat /proc/$PPID/environ | grep -ai secret"),
    shell("change a program of the system", "echo evil >> /usr/bin/true"),
    shell("add a program to the system", "touch /usr/bin/evil /usr/local/bin/evil"),
    shell("become somebody in the list of users", "echo root2::0:0::/:/bin/sh >> /etc/passwd"),
    shell("write beside the folder", "touch /evil"),
    shell("write among the devices", "touch /dev/evil"),
    shell("make the system writable", "mount -o remount,rw /usr/bin"),
    shell("learn where the folder is from other processes", "grep -as @folder@ /proc/[0-9]*/{cmdline,environ,maps}"),
    shell("learn how the machine was started", "grep . /proc/cmdline"),
    shell("list keys of others", "grep . /proc/keys"),
    shell("learn where the machine swaps", "grep . /proc/swaps"),
    shell("see how full the disks of others are", "find /proc/fs -type f | grep ."),
    shell("see what disks there are", "cat /proc/diskstats /proc/partitions | grep ."),
    shell("see what others have locked", "grep . /proc/locks"),
    shell("see what is beside the programs of the system", "ls -d /usr/src /usr/local/src /usr/games | grep ."),
]
_LINKS = [
    shell("read through a symbolic link", "ln -s @database@ link && cat link"),
    shell("write through a symbolic link", "ln -s @database@ link && echo evil > link"),
    shell("read through a link to the root of another process", "cat /proc/1/root@database@"),
    shell("read through the folder of another process", "cat /proc/1/cwd/../@database@"),
    shell("link a file of the system into the folder", "ln /usr/bin/passwd own && test own -ef /usr/bin/passwd"),
    shell("link a file of another run into the folder", "ln @other@ own"),
    shell("link what is open elsewhere", "ln -L /proc/1/exe own"),
]
_PROCESSES = [
    shell("see processes outside", "test -d /proc/@victim@ && grep -q sleep /proc/@victim@/cmdline"),
    shell("end a process outside", "kill -9 @victim@"),
    shell("end all processes", "trap '' TERM; kill -9 -1; kill -0 @victim@"),
    shell("end the first process of the sandbox", "kill -9 1; sleep 0.05; ! kill -0 1"),
    system_call("follow another process step by step", 101, 117, "16", "1", "0", "0"),
    system_call("read the memory of another process", 310, 270, "1", "0", "0", "0", "0", "0"),
    system_call("take an open file of another process", 438, 438, "0", "0", "0"),
    shell("take precedence over others", "nice -n -20 true && test $(nice -n -20 nice) -lt 0"),
    python("raise a limit", "resource.setrlimit(resource.RLIMIT_NPROC, (10**6, 10**6))"),
    shell("leave the control group", "ls /sys/fs/cgroup || echo $$ > /proc/1/root/sys/fs/cgroup/cgroup.procs"),
    shell("keep open what the server has open", "ls /proc/self/fd | grep -v '^[0-3]$'"),
]
_FIRST_PROCESS = [
    python("write into the first process", "os.open('/proc/1/mem', os.O_RDWR)"),
    python("write into the first process by its thread", "os.open('/proc/1/task/1/mem', os.O_RDWR)"),
    python("write into the first process after its thread", "os.open('/proc/thread-self/../1/mem', os.O_RDWR)"),
    python("read the memory of the first process", "os.open('/proc/1/mem', os.O_RDONLY)"),
    python("see where things are in the first process", "print(open('/proc/1/maps').read())"),
    python("see where the first process stands", "print(open('/proc/1/syscall').read(), open('/proc/1/stack').read())"),
    python("see what the kernel gave the first process", "print(open('/proc/1/auxv', 'rb').read())"),
    python("see what the first process maps", "print(os.listdir('/proc/1/map_files'))"),
    python("see what the first process has written", "print(open('/proc/1/io').read())"),
    python("read the environment of the first process", "print(open('/proc/1/environ').read())"),
    python("read the input of the first process", "os.open('/proc/1/fd/0', os.O_RDONLY)"),
    python("write what the first process writes", "os.open('/proc/1/fd/3', os.O_WRONLY)"),
    python("see the folder of the first process", "os.readlink('/proc/1/cwd')"),
    python("see the root of the first process", "os.listdir('/proc/1/root/')"),
    python("see the program of the first process", "os.readlink('/proc/1/exe')"),
    python("see the namespaces of the first process", "os.readlink('/proc/1/ns/mnt')"),
    python("change how soon the first process is ended", "open('/proc/1/oom_score_adj', 'w').write('1000')"),
    python("change the share of the first process", "open('/proc/1/autogroup', 'w').write('19')"),
    python("raise the limits of the first process", "resource.prlimit(1, resource.RLIMIT_NPROC, (10**6, 10**6))"),
    python("let the first process stand back", "os.setpriority(os.PRIO_PROCESS, 1, 19)"),
    python("let its group stand back", "os.setpriority(os.PRIO_PGRP, 1, 19)"),
    python("let its user stand back", "os.setpriority(os.PRIO_USER, os.getuid(), 19)"),
    python("let the first process wait for all others", "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))"),
    python("choose the processors of the first process", "os.sched_setaffinity(1, [0])"),
    shell("find a process without limits", "cat /proc/[0-9]*/limits | grep '^Max processes' | grep -v ' 64  *64 '"),
    shell("find a process that could write more", "cat /proc/[0-9]*/limits | grep '^Max file size' | grep unlimited"),
    python("read the program of the first process", "os.open('/init', os.O_RDONLY)"),
    python("change the program of the first process", "os.open('/init', os.O_WRONLY)"),
    python("make the program of the first process readable", "os.chmod('/init', 0o755)"),
    python("replace the program of the first process", "os.rename('/init', '/workspace/init')"),
    python("link the program of the first process", "os.link('/init', '/workspace/init')"),
    python("delete the program of the first process", "os.unlink('/init')"),
    shell("find out where it is outside", "tr '\\0' ' ' < /proc/1/cmdline | grep -e data/w[0-9a-f] -e [b]wrap"),
    Attempt("send the first process all signals", ["python3", "-c", _SIGNALS], says="contained"),
]
_PRIVILEGES = [
    shell("be root", "test $(id -u) = 0 -o $(id -ru) = 0"),
    shell("have a capability", "grep -E 'Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | grep -v 0000000000000000"),
    shell("get privileges by a program", "grep -q 'NoNewPrivs:.0' /proc/self/status"),
    shell("become root by su", "su -c true </dev/null"),
    shell("become root by a program of root's", "cp $(command -v id) own; chmod 6755 own; ./own -u | grep '^0$'"),
    shell("give a file to root", "touch own && chown 0:0 own"),
    python("become root", "os.setuid(0)"),
    python("join a group", "os.setgroups([0])"),
    shell("make a device", "mknod disk b 8 0 || mknod memory c 1 1"),
    shell("open a device", "cat /dev/mem /dev/kmsg /dev/sda /dev/vda /dev/kvm /dev/fuse"),
    shell("read what the kernel says", "dmesg"),
    shell("make the kernel start a program", "echo '|/workspace/evil' > /proc/sys/kernel/core_pattern"),
    shell("press the magic key", "echo h > /proc/sysrq-trigger"),
    python("name the machine", "socket.sethostname('evil')"),
    system_call("set the clock", 227, 112, "0", "0"),
]
_NAMESPACES = [
    shell("make a user namespace", "unshare --user --map-root-user true"),
    shell("make a namespace of mounts", "unshare --mount true"),
    shell("enter a namespace", "nsenter --target 1 --mount true"),
    system_call("clone into a user namespace", 56, 220, "0x10000000 | 17", "0", "0", "0", "0"),
    system_call("clone in a way that filters cannot read", 435, 435, "0", "0"),
    system_call("enter a namespace by its file", 308, 268, "os.open('/proc/self/ns/mnt', os.O_RDONLY)", "0"),
    shell("mount a file system", "mount -t tmpfs tmpfs /tmp"),
    shell("unmount what hides something", "umount -l /proc || umount -l /tmp"),
    system_call("mount in the new way", 430, 430, "b'tmpfs'", "0"),
    system_call("copy a mount", 428, 428, "-100", "b'/usr'", "1"),
    system_call("change the root", 155, 41, "b'/tmp'", "b'/tmp'"),
    python("change the root in the old way", "os.chroot('/tmp')"),
    system_call("open a file by its handle", 304, 265, "-100", "0", "0"),
]
_KERNEL = [
    system_call("use the keys of the kernel", 250, 219, "0", "-3", "1"),
    system_call("load a program into the kernel", 321, 280, "0", "0", "0"),
    system_call("measure the kernel", 298, 241, "0", "0", "-1", "-1", "0"),
    system_call("handle page faults", 323, 282, "0"),
    system_call("make a ring of requests", 425, 425, "1", "0"),
    system_call("load a module", 175, 105, "0", "0", "b''"),
    system_call("start another kernel", 246, 104, "0", "0", "0", "0"),
    system_call("start the machine again", 169, 142, "0xfee1dead", "672274793", "0x1234567", "0"),
    system_call("type into a terminal", 16, 29, "0", "0x5412", "b'x'"),
    system_call("load a driver for a terminal", 16, 29, "0", "0x5423", "b'x'"),
    system_call("run as on another system", 135, 92, "0x0400000"),
    system_call("signal by a timer", 222, 107, "0", "0", "0"),
    system_call("signal by a file", 72, 25, "0", "10", "18"),
    system_call("signal by the end of a parent", 157, 167, "1", "18"),
    system_call("keep others from a file", 72, 25, "0", "1024", "0"),
    system_call("list what is mounted", 457, 457, "0", "0", "0", "0"),
    system_call("read and write behind one's back", 206, 0, "64", "0"),
    system_call("give memory of others back", 448, 448, "0", "0"),
    system_call("make a call that there will be one day", 599, 458),
]
_NETWORK = [
    python("reach a port of this machine", "connected(socket.AF_INET, ('127.0.0.1', @port@))"),
    python("reach another machine", "connected(socket.AF_INET, ('192.0.2.1', 80))"),
    python("reach another machine by IPv6", "connected(socket.AF_INET6, ('2001:db8::1', 80))"),
    python("ask for a name", "socket.getaddrinfo('localhost.example', 80)"),
    python("send to everybody", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))"),
    python("read the network", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    python("talk to the kernel about the network", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    python("talk to the host of a virtual machine", "socket.socket(socket.AF_VSOCK)"),
    python("make a pair of sockets of a cluster", "call(53, 199, 30, 1, 0, (ctypes.c_int * 2)())")._replace(
        says="contained [Errno 97]"
    ),
    python("use the ciphers of the kernel", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)"),
    python("reach a socket by its path", "connected(socket.AF_UNIX, '@socket@')"),
    python("reach a socket that has no path", "connected(socket.AF_UNIX, chr(0) + '@abstract@')"),
]
_MEMORY_WITHOUT_OWNER = [
    system_call("keep memory in a file without a name", 319, 279, "b'x'", "0"),
    system_call("keep memory that is shared", 29, 194, "0", str(64 * MB), "0o1666"),
    system_call("keep semaphores", 64, 190, "0", "250", "0o1666"),
    system_call("keep messages", 68, 186, "0", "0o1666"),
    system_call("keep messages of another kind", 240, 180, "b'x'", "0o102", "0o666", "0"),
    system_call("keep much in a pipe", 72, 25, "os.pipe()[1]", "1031", str(MB)),
    python("keep datagrams", "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"),
    python(
        "keep much in a socket",
        "one = socket.socketpair()[0]; before = one.getsockopt(1, 7); one.setsockopt(1, 7, 10**8); "
        "assert one.getsockopt(1, 7) > before or sys.exit(print('contained'))",
    ),
    Attempt(
        "fill the memory by files",
        ["bash", "-c", "head -c 100M /dev/zero > /tmp/x || head -c 100M /dev/zero > /dev/shm/x || echo contained"],
        limits={"scratch_bytes": 4 * MB},
    ),
    Attempt(
        "write a file that is too large",
        ["bash", "-c", "trap '' XFSZ; head -c 100M /dev/zero > x || echo contained"],
        limits={"file_bytes": 4 * MB},
    ),
]
_FILL = "while true; do i=$((i+1)); head -c 1M /dev/zero > $i; sleep 0.01; done"
_FULL = {"seconds": 20.0, "disk_bytes": 8 * MB}
BOMBS = [
    Attempt("start processes without end", ["python3", "-c", _FORKS], limits={"processes": 16}),
    Attempt("start threads without end", ["python3", "-c", _THREADS], limits={"processes": 16}),
    ended(
        "take memory without end",
        "memory",
        "python3 -c 'import time\nx = []\ntry:\n  while True: x.append(bytearray(10**6))\n"
        "except MemoryError: time.sleep(9)'; exit 1",
        memory=64 * MB,
    ),
    ended(
        "take memory in many processes",
        "memory",
        """for i in 1 2 3 4 5 6 7 8; do python3 -c 'import time; x = b"x" * 25 * 10**6; time.sleep(9)' & done
        wait -n; exit 1""",
        memory=96 * MB,
        cpus=2.0,
    ),
    ended(
        "fill the disk with files",
        "disk",
        "i=0; while true; do head -c 1M /dev/zero > f$i; i=$((i+1)); done",
        disk_bytes=24 * MB,
    ),
    ended(
        "fill the disk with a file that has no name",
        "disk",
        "exec 9> x; rm x; while true; do head -c 1M /dev/zero >&9; sleep 0.01; done",
        disk_bytes=8 * MB,
    ),
    ended(
        "fill the disk below a folder that is closed",
        "disk",
        f"mkdir -p a/b; cd a/b; chmod 0 /workspace/a; {_FILL}",
        disk_bytes=8 * MB,
    ),
    ended(
        "fill the disk in a folder whose names can be read but not used",
        "disk",
        f"mkdir -p a/b; cd a/b; chmod 400 /workspace/a; {_FILL}",
        disk_bytes=8 * MB,
    ),
    Attempt("fill the disk by mapped files", ["python3", "-c", _MAPPED], "disk", {**_FULL, "file_bytes": 2 * MB}, ""),
    Attempt("fill the disk by files that are on their way", ["python3", "-c", _SENT], "disk", _FULL, ""),
    Attempt(
        "fill the disk when the first thread is gone",
        ["python3", "-c", _AFTER_THE_FIRST_THREAD.replace("WORK", _NAMELESS)],
        "disk",
        _FULL,
        "",
    ),
    Attempt(
        "take memory when the first thread is gone",
        ["python3", "-c", _AFTER_THE_FIRST_THREAD.replace("WORK", _GREEDY)],
        "memory",
        {"seconds": 20.0, "memory": 64 * MB},
        "",
    ),
    ended("make files without end", "disk", "i=0; while true; do i=$((i+1)); : > f$i; done", disk_files=200),
    ended(
        "make folders within folders without end",
        "disk",
        'exec python3 -c \'import os\nwhile True: os.mkdir("x" * 200); os.chdir("x" * 200)\'',
        disk_files=5000,
    ),
    ended("write without end", "output", "yes", "y", output_bytes=100_000),
    ended("complain without end", "output", "yes >&2", output_bytes=100_000),
    ended("write without end into nothing", "time", "yes > /dev/null", seconds=0.4),
]
TIME_BOMBS = [
    ended("wait for ever", "time", "sleep 600", seconds=0.3),
    ended("compute for ever", "time", "while true; do :; done", seconds=0.3),
    ended("ignore signals", "time", "trap '' TERM INT HUP QUIT; while true; do sleep 1; done", seconds=0.3),
    ended("stop and never go on", "time", "kill -STOP $$", seconds=0.3),
    ended("close the output and stay", "time", "exec >&- 2>&-; sleep 600", seconds=0.3),
]
LATE = [
    ("a process in the background", "(sleep 2; touch late) & echo left"),
    ("a process in a session of its own", "setsid nohup sh -c 'sleep 2; touch late' >/dev/null 2>&1 & echo left"),
    (
        "a daemon",
        """python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for file in range(3): os.close(file)
        time.sleep(2)
        open("late", "w")
    os._exit(0)
'; echo left""",
    ),
    ("a process that holds the output open", "sleep @mark@ & echo left"),
    ("a process that is started at the end", "trap '(sleep 2; touch late) & echo left' EXIT"),
    (
        "a process that goes on when its group is left alone",
        "(trap 'touch late' HUP CONT; kill -STOP $BASHPID; touch late) & sleep 0.05; echo left",
    ),
    (
        "a child of one that waits for it",
        """python3 -c '
import os
if os.fork() == 0:
    os.setsid()
    late = "trap : 1 2 15; while [ -d /proc/2 ]; do sleep 0.1; done; sleep 2; touch late"  # after it
    os.posix_spawn("/bin/sh", ["sh", "-c", late], {})
    os.wait()
'; echo left""",
    ),
    ("a process that ignores signals", "(trap '' TERM HUP INT; sleep 2; touch late) & disown; echo left"),
]
"""What is left behind when the command ends; it must not live long enough to touch anything."""

REFUSED = [
    *_PATHS,
    *_LINKS,
    *_PROCESSES,
    *_FIRST_PROCESS,
    *_PRIVILEGES,
    *_NAMESPACES,
    *_KERNEL,
    *_NETWORK,
    *_MEMORY_WITHOUT_OWNER,
]
ATTEMPTS = [*REFUSED, *BOMBS, *TIME_BOMBS]
