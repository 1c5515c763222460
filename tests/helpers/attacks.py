"""Hostile programs for the sandbox. Each reaches its last line, or passes its tests, only where the attack works."""

# ruff: noqa: E501  a program is one line
from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.sandbox import seccomp
from tasks.sandbox.run import Job, Mode, run_job

Kind = Literal["verdict", "reach", "resources"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program.

    name      what it tries, as the table of docs/sandbox.md names it
    kind      what it is after
    program   the source; {host}, {folder}, {socket} and {add_key} stand for the harness' process id, a folder that
              every user may write to with the files `secret` and `kept`, a listening socket in it, and a system call
    tests     the tests that it must not pass
    quick     run on every `make test`; the others with `make attack`
    """

    name: str
    kind: Kind
    program: str
    tests: str = ""
    quick: bool = False


UNGUESSED = "import random\nx = random.SystemRandom().randrange(2**64)\nassert f(x) == 3 * x + 1"
"""No program passes this that does not compute it."""

C = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_PASS = '{"state": "passed", "error": null, "nonce": ""}'

VERDICT = [
    ("write a pass record to descriptors 3 to 63", "import os\ndef f(x):\n    for d in range(3, 64):\n        try: os.write"
     f"(d, b'{_PASS}\\n')\n        except OSError: pass\n    os._exit(0)", True),
    ("write what is no record to them, and go on", "import os\nfor d in range(3, 64):\n    for b in (b'not json', b'[1]', "
     "b'['*10**5, b'\\0'*10**5):\n        try: os.write(d, b)\n        except OSError: pass\ndef f(x): return 0", True),
    ("truncate the files behind them", "import os\ndef f(x):\n    for d in range(1, 64):\n        try: os.ftruncate(d, 0)"
     f"; os.pwrite(d, b'{_PASS}\\n', 0)\n        except OSError: pass\n    return 0", True),
    ("call what the frames below hold", "import os, sys\ndef f(x):\n    frame = sys._getframe().f_back\n    while frame:\n        "
     "for name, value in list(frame.f_locals.items()):\n            if callable(value) and 'report' in name:\n"
     "                value('passed')\n                os._exit(0)\n        frame = frame.f_back\n    return 0", True),
    ("patch __main__ and the sandbox's modules", "import sys\nfor name, module in list(sys.modules.items()):\n    if name "
     "== '__main__' or name.startswith('tasks'):\n        for key, value in list(vars(module).items()):\n            if "
     "callable(value) and not isinstance(value, type):\n                setattr(module, key, lambda *a, **k: None)\n"
     "def f(x): return 0", True),
    ("an __eq__ that is always true", "class Same:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
     "def f(x): return Same()", True),
    ("the same on a subclass of int", "class Same(int):\n    def __eq__(self, other): return True\n    __req__ = __eq__\n"
     "def f(x): return Same()", False),
    ("replace built-in functions", "import builtins\nbuiltins.print = builtins.int = lambda *a: None\n"
     "def random(): pass\ndef f(x): return 0", False),
    ("leave with exit status 0", "import os\ndef f(x): os._exit(0)", False),
    ("raise SystemExit(0) in a function", "def f(x): raise SystemExit(0)", False),
    ("forge the channel's answers", "import os\nfor m in (b'{\"value\": null}', b'{\"value\": {\"f\": {\"ref\": 0}}}', "
     "b'{\"value\": {\"result\": true, \"changed\": []}}'):\n    os.write(3, len(m).to_bytes(8, 'big') + m)\ndef f(x): return 0", True),
    ("name a library's function as its own", "import os\nfor m in (b'{\"value\": null}', b'{\"value\": {\"f\": {\"library\": "
     "[\"operator\", \"not_\"]}}}'):\n    os.write(3, len(m).to_bytes(8, 'big') + m)\ndef f(x): return 0", False),
    ("announce a message of 2**63 bytes", "import os\nos.write(3, (2**63).to_bytes(8, 'big'))\ndef f(x): return 0", False),
    ("a result nested 10**5 times", "import os\nm = b'{\"value\": {\"result\": ' + b'[' * 10**5 + b']' * 10**5 + b', "
     "\"changed\": []}}'\ndef f(x):\n    os.write(3, len(m).to_bytes(8, 'big') + m)\n    return 0", False),
    ("a result of 300 MB", "def f(x): return 'x' * (300 * 2**20)", False),
    ("close the channel", "import os\nos.close(3)\ndef f(x): return 0", False),
    ("kill the checker", "import os, signal\ndef f(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 0", True),
    ("stop the checker", "import os, signal\ndef f(x):\n    os.kill(os.getppid(), signal.SIGSTOP)\n    return 0", False),
    ("kill the process group", "import os\ndef f(x):\n    os.kill(0, 9)\n    return 0", False),
    ("die of SIGKILL", "import os\ndef f(x): os.kill(os.getpid(), 9)", False),
    ("an error text that UTF-8 cannot carry", "def f(x): raise ValueError('\\ud800')", True),
    ("an error text that clears the terminal", "def f(x): raise ValueError('\\x1b[2J\\x1b]0;owned\\x07')", True),
    ("an exception that lies about itself", "class E(AssertionError):\n    def __str__(self): raise SystemExit(0)\n"
     "    @property\n    def args(self): return object()\ndef f(x): raise E", False),
    ("a segmentation fault", "import ctypes\ndef f(x): ctypes.string_at(0)", False),
    ("exhaust memory in a result", "def f(x):\n    a = []\n    while True: a.append(bytearray(10**7))", False),
    ("read the tests in the checker's memory", "import os\ndef f(x): return open(f'/proc/{os.getppid()}/mem', 'rb')"
     ".read(1)", True),
    ("read the checker's descriptors", "import os\ndef f(x):\n    for d in range(64):\n        try: return open(f'/proc/"
     "{os.getppid()}/fd/{d}', 'rb').read()\n        except FileNotFoundError: pass\n    raise OSError", False),
]  # fmt: skip

REACH = [
    ("fork", "import os\nif os.fork() == 0: os._exit(0)", True),
    ("start a thread", "import threading\nthreading.Thread(target=int).start()", False),
    ("execute a program", "import os\nos.execv('/bin/true', ['true'])", False),
    ("signal the harness", "import os\nos.kill({host}, 0)", True),
    ("prlimit on the harness", "import resource\nresource.prlimit({host}, resource.RLIMIT_NOFILE, (9, 9))", True),
    ("setpriority on the harness", "import os\nos.setpriority(os.PRIO_PROCESS, {host}, 19)", True),
    ("setpriority on the user", "import os\nos.setpriority(os.PRIO_USER, os.getuid(), 19)", False),
    ("sched_setaffinity on the harness", "import os\nos.sched_setaffinity({host}, [0])", True),
    ("sched_setaffinity on the checker", "import os\nos.sched_setaffinity(os.getppid(), [0])", False),
    ("prlimit on the checker", "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))", True),
    ("ptrace the checker", C + "assert libc.ptrace(16, os.getppid(), 0, 0) == 0", False),
    ("leave the process group", "import os\nos.setsid()", False),
    ("outlive its parent", C + "assert libc.prctl(1, 0, 0, 0, 0) == 0", False),
    ("a user namespace", C + "assert libc.unshare(0x10000000) == 0", True),
    ("a mount namespace", C + "assert libc.unshare(0x20000) == 0", False),
    ("mount a tmpfs", C + "assert libc.mount(b'none', b'/dev/shm', b'tmpfs', 0, b'size=2g') == 0", True),
    ("a packet socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)", True),
    ("a TCP socket", "import socket\nsocket.socket()", False),
    ("a UDP datagram", "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))", False),
    ("a socket of the user, by its path", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{socket}')", True),
    ("the same through a datagram pair", "import socket\na, b = socket.socketpair(type=socket.SOCK_DGRAM)\n"
     "a.sendto(b'x', '{socket}')", False),
    ("an abstract socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0leeway')", False),
    ("a POSIX message queue", C + "assert libc.mq_open(b'/leeway', 0o102, 0o600, None) >= 0", False),
    ("a key that stays in the keyring", C + "assert libc.syscall({add_key}, b'user', b'leeway', b'x', 1, -4) >= 0", False),
    ("read a file of the host", "open('{folder}/secret').read()", True),
    ("write a file of the host", "open('{folder}/kept', 'a')", True),
    ("make a file in an open folder", "open('{folder}/new', 'w')", False),
    ("remove a file of the host", "import os\nos.remove('{folder}/kept')", False),
    ("change a host file's permissions", "import os\nos.chmod('{folder}/kept', 0)", False),
    ("touch a host file", "import os\nos.utime('{folder}/kept', (0, 0))", False),
    ("lock a host file", "import fcntl\nfcntl.flock(open('{folder}/kept'), fcntl.LOCK_EX)", False),
    ("list the folders behind its descriptors", "import os\nseen = []\nfor d in range(3, 64):\n    try: seen += os.listdir"
     "(f'/proc/self/fd/{d}/..')\n    except OSError: pass\n    try: seen += os.listdir(os.open('..', 0, dir_fd=d))\n"
     "    except OSError: pass\nassert seen", True),
    ("list the home folder of root", "import os\nos.listdir('/root')", False),
    ("read the harness' environment", "open('/proc/{host}/environ').read()", False),
    ("write to the kernel's settings", "open('/proc/sys/kernel/hostname', 'w').write('x')", False),
    ("raise its own limits", "import resource as r\nr.setrlimit(r.RLIMIT_NPROC, (9, 9))", False),
]  # fmt: skip

MEGABYTES = """import os
made = 0
for number in range({count}):
    try:
        with open(os.path.join({place!r}, f'f{{number}}'), 'wb') as file: file.write(bytes(200_000))
        made += 200_000
    except OSError: break
print(made)
assert made > 70_000_000
"""

RESOURCES = [
    ("2.5 GB of System V shared memory", C + "for _ in range(20): assert libc.shmget(0, 128 * 2**20, 0o1600) >= 0", True),
    ("600 MB in /dev/shm", MEGABYTES.format(place="/dev/shm", count=3000), True),
    ("600 MB in /dev", MEGABYTES.format(place="/dev", count=3000), False),
    ("600 MB in /", MEGABYTES.format(place="/", count=3000), False),
    ("600 MB in /tmp", MEGABYTES.format(place="/tmp", count=3000), False),
    ("600 MB in its own folder", MEGABYTES.format(place=".", count=3000), True),
    ("10,000 files", "for n in range(10_000): open(f'f{n}', 'w').close()", False),
    ("3,000 nested folders", "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nwhile True: pass", True),
    ("a file of 10 MB", "open('f', 'wb').write(bytes(10**7))", False),
    ("memory beyond the limit", "x = bytearray(2 * 1024**3)", False),
    ("memory of a file without a name", "import os\nos.memfd_create('x')", False),
    ("an endless loop", "while True: pass", False),
    ("a loop that ignores signals", "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
     "    except OSError: pass\nwhile True: pass", False),
    ("a flood of output", "while True: print('x' * 1000)", False),
    ("1,000 open files", "import os\nfiles = [os.open('/dev/null', 0) for _ in range(1000)]", False),
]  # fmt: skip

_COLUMN = 0 if os.uname().machine == "x86_64" else 1
CALLS = {name: numbers[_COLUMN] for name, numbers in seccomp.DENIED.items() if numbers[_COLUMN] is not None}
EVERY_CALL = C + (
    f"for name, number in {CALLS}.items():\n    ctypes.set_errno(0)\n"
    "    assert libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, name\n"
)
"""A program that passes where each system call of the table is refused."""

ATTACKS = [
    *(Attack(name, "verdict", program, UNGUESSED, quick) for name, program, quick in VERDICT),
    *(Attack(name, "reach", program, quick=quick) for name, program, quick in REACH),
    *(Attack(name, "resources", program, quick=quick) for name, program, quick in RESOURCES),
]


@contextmanager
def prey() -> Iterator[dict[str, str]]:
    """What the attacks aim at, by the name that stands for it in their programs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name, socket.socket(socket.AF_UNIX) as listening:
        folder = Path(name)
        folder.chmod(0o777)
        for file in ("secret", "kept"):
            (folder / file).write_text("mine")
            (folder / file).chmod(0o666)
        listening.bind(str(folder / "socket"))
        listening.listen()
        (folder / "socket").chmod(0o777)
        yield {"{host}": str(os.getpid()), "{folder}": name, "{socket}": str(folder / "socket"),
               "{add_key}": str(CALLS["add_key"])}  # fmt: skip


def attempt(attack: Attack, mode: Mode, aims: dict[str, str], timeout_s: float = 5.0) -> tuple[bool, str]:
    """Run one attack; whether it was stopped, and how it ended. Raises SandboxError where it harmed the sandbox."""
    program = attack.program
    for name, value in aims.items():
        program = program.replace(name, value)
    before = _state(Path(aims["{folder}"]))
    outcome = run_job(Job(program, attack.tests), timeout_s=timeout_s, require=mode)
    after = _state(Path(aims["{folder}"]))
    if before != after:
        return False, f"it changed {', '.join(sorted(name for name in before if before[name] != after[name]))}"
    return not outcome.ok, outcome.error or "it worked"


def _state(folder: Path) -> dict[str, object]:
    """What no program may change on the host."""
    return {
        "files": [(path.name, path.stat().st_mode, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())],
        "shared memory": Path("/proc/sysvipc/shm").read_text(),
        "the harness": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
    }
