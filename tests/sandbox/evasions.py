"""Ways to go on while a sandbox is to stand still: programs that say `ready`, and then tick, in whatever way.

Each appends to the file `ticks`. None of them is there for long, or for good, or does what it is told.
"""

_PYTHON = """
import ctypes, fcntl, os, platform, signal, struct, sys, threading, time
ARM = platform.machine() == "aarch64"
libc = ctypes.CDLL(None, use_errno=True)
def ready():
    os.write(1, b"ready\\n")
def tick():
    file = os.open("ticks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"x")
    os.close(file)
def tick_for_ever():
    while True:
        tick()
"""


def _python(code: str) -> list[str]:
    return ["python3", "-c", _PYTHON + code]


_BACKGROUND = "(while :; do echo x >> ticks; done) & echo ready; read line"
_AGAIN = (
    "printf '#!/bin/sh\\necho x >> ticks\\nexec \"$0\"\\n' > again; chmod +x again; ./again & echo ready; read line"
)
_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tick_for_ever()
    os._exit(0)
os.wait()
ready()
sys.stdin.read()
"""
_EACH_OTHER = """
pipe = os.pipe()
other = os.fork()
if other == 0:
    other = os.getppid()
else:
    ready()
while True:
    os.kill(other, signal.SIGCONT)
    tick()
"""
_FORKS_AND_ENDS = """
ready()
if os.fork():
    signal.pause()
while True:
    tick()
    if os.fork():
        os._exit(0)
"""
_ORPHANS = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ready()
if os.fork():
    signal.pause()
os.setsid()
while True:  # who ends leaves a group without a parent, whose stopped processes the kernel then lets go on
    tick()
    if os.fork():
        time.sleep(0.0005)
        os._exit(0)
    os.setpgid(0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
"""
_LAST_WILL = """
ready()
if os.fork():
    signal.pause()
while True:  # who ends has the kernel let go on whom it has started
    if os.fork():
        time.sleep(0.0005)
        os._exit(0)
    libc.prctl(1, signal.SIGCONT, 0, 0, 0)
    tick()
"""
_WAITS_FOR_CHILD = """
threading.Thread(target=sys.stdin.read, daemon=True).start()
ready()
CLONE_VFORK = 0x4000
if libc.syscall(220 if ARM else 56, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    tick_for_ever()
"""
_BESIDE = """
threading.Thread(target=tick_for_ever).start()
ready()
CLONE_VFORK = 0x4000
if libc.syscall(220 if ARM else 56, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    signal.pause()
"""
_WITHOUT_FIRST_THREAD = """
threading.Thread(target=tick_for_ever).start()
ready()
libc.syscall(93 if ARM else 60, 0)
"""
_MANY = """
for _ in range(20):
    if os.fork() == 0:
        threading.Thread(target=tick_for_ever).start()
        tick_for_ever()
ready()
sys.stdin.read()
"""
_TIMER = """
event, timer = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0), ctypes.c_void_p()
libc.timer_create(0, event, ctypes.byref(timer))
libc.timer_settime(timer, 0, struct.pack("=qqqq", 0, 10**7, 0, 10**7), None)
ready()
tick_for_ever()
"""
_ALARM = """
signal.signal(signal.SIGALRM, lambda *_: tick())
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
ready()
tick_for_ever()
"""
_INPUT = """
F_SETSIG = 10
try:
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
except OSError:
    pass
ready()
tick_for_ever()
"""
_FOLDER = """
F_SETSIG = 10
try:
    folder = os.open(".", os.O_RDONLY)
    fcntl.fcntl(folder, F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT)
except OSError:
    pass
ready()
tick_for_ever()
"""

EVASIONS = {
    "a process in the background": ["sh", "-c", _BACKGROUND],
    "a program that executes itself again and again": ["sh", "-c", _AGAIN],
    "a daemon": _python(_DAEMON),
    "two that let each other go on": _python(_EACH_OTHER),
    "one that is another whenever somebody looks": _python(_FORKS_AND_ENDS),
    "orphans whom the kernel lets go on": _python(_ORPHANS),
    "heirs whom the kernel lets go on": _python(_LAST_WILL),
    "one whose parent waits in the kernel": _python(_WAITS_FOR_CHILD),
    "a thread beside one that waits in the kernel": _python(_BESIDE),
    "one whose first thread has ended": _python(_WITHOUT_FIRST_THREAD),
    "many with several threads": _python(_MANY),
    "one whom a timer lets go on": _python(_TIMER),
    "one whom an alarm wakes": _python(_ALARM),
    "one whom its input lets go on": _python(_INPUT),
    "one whom a new file lets go on": _python(_FOLDER),
}
