"""Ways out of a sandbox that one process tries one after the other: statements that raise an error unless they work.

`@name@` stands for something outside; tests.sandbox.stage has the names.
"""

import json

_PROGRAM = """
import ctypes, json, os, platform, resource, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *arguments):
    if libc.syscall(arm if platform.machine() == "aarch64" else x86, *arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")
def written(path, text):
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text)
    finally:
        os.close(file)
def own():
    os.close(os.open("own", os.O_CREAT | os.O_RDWR))
    return "own"
def opened():
    return os.open(own(), os.O_RDWR)
def nothing():
    raise OSError("nothing came of it")
def can_have(family, kind):
    try:
        socket.socket(family, kind).close()
    except OSError:
        return False
    return True
for name, statement in json.loads(sys.argv[1]).items():
    try:
        exec(statement)
    except (OSError, ValueError) as error:
        print(f"contained: {name}")
    except BaseException as error:
        print(f"broken: {name}: {error!r}")
    else:
        print(f"ESCAPED: {name}")
"""

_PLACES = {
    "read through the folder that is open": "os.open(f'/proc/self/fd/{os.open(\".\", 0)}/../../../..@database@', 0)",
    "read through its own root": "open('/proc/self/root@database@')",
    "read through the root of a thread": "open('/proc/thread-self/root@key@')",
    "read through its own folder": "open('/proc/self/cwd/../../../../..@other@')",
    "find the root from which it was set up": "os.listdir('/oldroot')",
    "find the root as it was built": "os.listdir('/newroot')",
    "read the memory of the machine": "open('/proc/kcore', 'rb')",
    "read messages of the kernel": "os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK)",
    "read how the machine was configured": "open('/proc/bootconfig').read(1) or nothing()",
    "read of the device tree": "os.listdir('/proc/device-tree/')",
    "see where devices are in memory": "any(int(line.split('-')[0], 16) for line in open('/proc/iomem')) or nothing()",
    "see how the kernel has cut up its memory": "open('/proc/slabinfo')",
    "see what the kernel has mapped": "open('/proc/vmallocinfo')",
    "see whose timers there are": "open('/proc/timer_list')",
    "see who shares pages": "open('/proc/kpagecount', 'rb')",
    "see what devices there are": "os.listdir('/sys/class')",
    "find the control groups": "os.listdir('/sys/fs/cgroup')",
    "plant a module of Python": "open('/usr/lib/python3/dist-packages/evil.py', 'w')",
    "plant a library that everybody loads": "open('/etc/ld.so.preload', 'w')",
    "plant a library": "open('/usr/local/lib/evil.so', 'w')",
    "empty the list of users": "os.truncate('/etc/passwd', 0)",
    "open the root to everybody": "os.chmod('/', 0o777)",
    "close the programs to others": "os.chmod('/usr/bin', 0)",
    "change the time of a program": "os.utime('/usr/bin/env')",
    "mark a program": "os.setxattr('/usr/bin/env', 'user.evil', b'x')",
    "rename its folder": "os.rename('/workspace', '/elsewhere')",
    "remove its folder": "os.rmdir('/workspace')",
    "lead its other path elsewhere": "os.unlink('/mnt/data')",
    "make a link beside it": "os.symlink('/', '/mnt/evil')",
    "make a pipe among the settings": "os.mkfifo('/etc/evil')",
    "link the list of users": "os.link('/etc/passwd', 'users')",
    "make the memory of the machine a device": "os.mknod('memory', 0o020666, os.makedev(1, 1))",
    "make a disk among the devices": "os.mknod('/dev/disk', 0o060666, os.makedev(254, 0))",
}
_SETTINGS = {
    f"change {what}": f"written('/proc/sys/{path}', b'{value}')"
    for what, path, value in (
        ("the name of the machine", "kernel/hostname", "evil"),
        ("how many namespaces there may be", "user/max_user_namespaces", "1000"),
        ("who is dumped", "fs/suid_dumpable", "1"),
        ("where addresses are", "kernel/randomize_va_space", "0"),
        ("how many threads there may be", "kernel/threads-max", "4194304"),
        ("the number of the next process", "kernel/ns_last_pid", "1"),
        ("how many files may be open", "fs/file-max", "9999999"),
        ("what is kept in memory", "vm/drop_caches", "3"),
        ("what memory may be promised", "vm/overcommit_memory", "1"),
        ("where packets go", "net/ipv4/ip_forward", "1"),
        ("which programs interpret others", "fs/binfmt_misc/register", ":evil:M::x::/workspace/evil:"),
    )
}
_OTHERS = {
    "have a handle of a process outside": "os.pidfd_open(@victim@)",
    "end a group of processes outside": "os.kill(-@victim@, signal.SIGKILL)",
    "stop all processes": "os.kill(-1, signal.SIGSTOP); nothing()",
    "let all processes of the user stand back": "os.setpriority(os.PRIO_USER, os.getuid(), 19); nothing()",
    "let a process outside stand back": "os.setpriority(os.PRIO_PROCESS, @victim@, 19)",
    "let a group outside stand back": "os.setpriority(os.PRIO_PGRP, @victim@, 19)",
    "limit a process outside": "resource.prlimit(@victim@, resource.RLIMIT_NOFILE, (1, 1))",
    "choose the processors of a process outside": "os.sched_setaffinity(@victim@, [0])",
    "see the group of a process outside": "os.getpgid(@victim@)",
    "step before others": "os.setpriority(os.PRIO_PROCESS, 0, -1)",
    "run in real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "run in real time by turns": "os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(99))",
    "run by a deadline": "call(314, 274, 0, struct.pack('=IIQiIQQQ', 48, 6, 0, 0, 0, 10**7, 10**8, 10**8), 0)",
    "read the disk before others": "call(251, 30, 1, 0, 1 << 13)",
    "be the last to be ended without memory": "written('/proc/self/oom_score_adj', b'-1000')",
    "be somebody else by a map": "written('/proc/self/uid_map', b'0 0 1')",
    "be in other groups by a map": "written('/proc/self/gid_map', b'0 0 1')",
    "be allowed to have groups": "written('/proc/self/setgroups', b'allow')",
    "change its clock": "written('/proc/self/timens_offsets', b'monotonic 1000 0')",
    "raise the limit of its memory": "resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 40, 1 << 40))",
    "raise the limit of its files": "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))",
    "raise the limit of its signals": "resource.setrlimit(resource.RLIMIT_SIGPENDING, (10**6, 10**6))",
    "raise the limit of its dumps": "resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))",
}
_PRIVILEGES = {
    "hand a capability on": "call(157, 167, 47, 2, 21, 0, 0)",
    "change how privileges are lost": "call(157, 167, 28, 1, 0, 0, 0)",
    "get privileges by programs again": "call(157, 167, 38, 0, 0, 0, 0)",
    "lay down the filter": "call(157, 167, 22, 0, 0, 0, 0)",
    "be another program": "call(157, 167, 35, 13, 1, 0, 0)",
    "let anybody look into it": "call(157, 167, 0x59616d61, -1, 0, 0, 0)",
    "take all capabilities": "call(126, 91, struct.pack('=Ii', 0x20080522, 0), b'\\xff' * 24)",
    "be root at heart": "os.setresuid(-1, -1, 0)",
    "be in the group of root": "os.setresgid(0, 0, 0)",
    "be nobody": "os.setresuid(65534, 65534, 65534)",
    "give a file to nobody": "os.chown(own(), 65534, 65534)",
    "give a file a capability": "os.setxattr(own(), 'security.capability', b'\\1\\0\\0\\2' + b'\\xff' * 16)",
    "mark a file as root does": "os.setxattr(own(), 'trusted.evil', b'x')",
    "make a file that nobody can delete": "call(16, 29, opened(), 0x40086602, struct.pack('=q', 0x10))",
    "give a file to another project": "call(16, 29, opened(), 0x401c5820, bytes(28))",
    "let the file system stand still": "call(16, 29, opened(), 0xc0045877, 0)",
    "trim the disk": "call(16, 29, opened(), 0xc0185879, struct.pack('=3Q', 0, 1 << 40, 0))",
    "have a disk of its own": "os.open('/dev/loop-control', os.O_RDWR)",
    "have a disk of others": "os.open('/dev/loop0', os.O_RDONLY)",
    "have the console": "os.open('/dev/console', os.O_RDWR)",
    "have a terminal of others": "os.open('/dev/tty', os.O_RDWR)",
    "have a network card": "os.open('/dev/net/tun', os.O_RDWR)",
}
_NAMESPACES = {
    **{
        f"clone into another namespace of {what}": f"call(56, 220, {flag:#x} | 17, 0, 0, 0, 0)"
        for what, flag in (
            ("mounts", 0x00020000),
            ("groups", 0x02000000),
            ("names", 0x04000000),
            ("messages", 0x08000000),
            ("processes", 0x20000000),
            ("networks", 0x40000000),
        )
    },
    **{
        f"have another namespace of {what}": f"call(272, 97, {flag:#x})"
        for what, flag in (("users", 0x10000000), ("networks", 0x40000000), ("clocks", 0x80))
    },
}
_KERNEL = {
    name: f"call({call})"
    for name, call in {
        "hear of all files": "300, 262, 0, 0",
        "hear of changes": "294, 26, 0",
        "swap to a file": "167, 224, b'own', 0",
        "swap no more": "168, 225, b'own'",
        "write down who does what": "163, 89, b'own'",
        "change a quota": "179, 60, 0, 0, 0, 0",
        "change a quota by a file": "443, 443, 0, 0, 0, 0",
        "compare what processes have": "312, 272, 1, os.getpid(), 0, 0, 0",
        "have a handle of a file": "303, 264, -100, b'.', 0, 0, 0",
        "move pages of others": "279, 239, 1, 0, 0, 0, 0, 0",
        "say where memory is": "237, 235, 0, 0, 0, 0, 0, 0",
        "read the log of the kernel": "103, 116, 3, bytes(10), 10",
        "turn the clock": "159, 171, bytes(208)",
        "set the clock in the old way": "164, 170, bytes(16), 0",
        "write the memory of another process": "311, 271, 1, 0, 0, 0, 0, 0",
        "be followed step by step": "101, 117, 0, 0, 0, 0",
        "name the domain of the machine": "171, 162, b'evil', 4",
        "have memory that is secret": "447, 447, 0",
        "lay on another filter in the new way": "317, 277, 1, 0, 0",
        "hand pages to a pipe": "278, 75, 1, 0, 0, 0",
        "copy a pipe": "276, 77, 0, 1, 1, 0",
        "mount what was opened": "432, 432, 0, 0, 0",
        "move a mount": "429, 429, -100, b'/tmp', -100, b'/mnt', 0",
        "change a mount": "442, 442, -100, b'/usr/bin', 0, bytes(32), 32",
        "load another kernel from a file": "320, 294, 0, 0, 0, 0, 0",
        "load a module from a file": "313, 273, 0, b'', 0",
        "unload a module": "176, 106, b'ext4', 0",
        "register with a ring of requests": "427, 427, 0, 0, 0, 0",
        "hand in requests": "209, 2, 0, 0, 0",
        "have rules of its own": "444, 444, 0, 0, 1",
    }.items()
}
_NETWORK = {
    "have a socket of any other kind": "any(can_have(f, k) for f in range(2, 47) for k in (1, 2, 3, 5)) or nothing()",
    "ask whether another machine is there": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)",
    "reach another machine by many ways": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "reach another machine by streams of messages": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)",
    "read packets": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)",
    "have datagrams of this machine": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "have packets of this machine": "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
    "reach a socket by a link": "os.symlink('@socket@', 'there'); socket.socket(socket.AF_UNIX).connect('there')",
}

TRIES = {**_PLACES, **_SETTINGS, **_OTHERS, **_PRIVILEGES, **_NAMESPACES, **_KERNEL, **_NETWORK}


def trying() -> list[str]:
    """Return a program that makes all of them, and tells of each what came of it."""
    return ["python3", "-c", _PROGRAM, json.dumps(TRIES)]
