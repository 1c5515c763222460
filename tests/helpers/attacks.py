"""Hostile programs for the sandbox. Each reaches its last line, or passes its tests, only where the
attack works."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.sandbox.calls import REFUSED
from tasks.sandbox.run import SandboxJob, run_job

Kind = Literal["verdict", "reach", "resources"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile program.

    name      what it tries, as the table of docs/sandbox.md names it
    kind      what it is after
    program   the source; {host}, {folder}, {socket}, {add_key} and {machine} stand for the
              harness' process id, a folder that every user may write to with the files `secret`
              and `kept`, a listening socket in it, a system call, and the machine's name
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

PAIRS = """
def assertion(out, exp):
    assert out == exp
def check(candidate):
    for inp, exp in zip([[3.0], [4.0]], {wanted}):
        assertion(candidate(*inp), exp)
check(f)
"""
"""Tests in the form of HumanEval's, with the results that are wanted."""
NOTHING, NUMBER, NONE = (
    PAIRS.replace("{wanted}", wanted) for wanted in ("[[], []]", "[17, 23]", "[None, None]")
)
MAPPED = "assert all(map(lambda x: f(x) == 3 * x + 1, range(5, 9)))"

PUT = """import os
def put(message):
    for d in range(3, 64):
        try: os.write(d, message)
        except OSError: pass
"""

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
    ("leave with exit status 0", "import os\ndef f(x): os._exit(0)", False),
    ("forge the channel's answers", PUT + "for m in (b'{\"value\": null}', b'{\"value\": {\"dict\": [[\"f\", {\"ref\": 0}]]}}', "
     "b'{\"value\": true}'):\n    put(m + b'\\n')\ndef f(x): return 0", True),
    ("name a library's function as its own", "from operator import truth as f", True),
    ("announce a message of 100 MB", PUT + "for _ in range(100): put(b'0' * 10**6)\ndef f(x): return 0", False),
    ("a result nested 10**5 times", PUT + "def f(x):\n    put(b'{\"value\": ' + b'[' * 10**5 + b']' * 10**5 + b'}\\n')\n    return 0", False),
    ("an exception of no class", PUT + "def f(x):\n    put(b'{\"error\": \"eval\", \"described\": [\"\", \"\"]}\\n')\n    return 0", True),
    ("a result of 300 MB", "def f(x): return 'x' * (300 * 2**20)", False),
    ("close the channel", "import os\nos.closerange(3, 64)\ndef f(x): return 0", False),
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
    ("an error of 100,000 characters on its channel", PUT + "def f(x):\n    put(b'{\"error\": \"ValueError\", \"described\": [\"\", \"' "
     "+ b'A' * 100_000 + b'\"]}\\n')", True),
    ("an error class of 100,000 characters", PUT + "def f(x):\n    put(b'{\"error\": \"' + b'A' * 100_000 + b'\", \"described\": [\"\", \"\"]}\\n')", True),
    ("an error text that JSON makes six times as long", "def f(x): raise ValueError('\\ud800' * 70_000)", True),
    ("read the tests in the checker's memory", "import os\ndef f(x): return open(f'/proc/{os.getppid()}/mem', 'rb')"
     ".read(1)", True),
]  # fmt: skip

UNDESERVED = [
    ("a text for an empty list", "def f(x): return ''", NOTHING),
    ("an object for None", "class N:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x): return N()", NONE),
    ("StopIteration inside map", "def f(x): raise StopIteration", MAPPED),
    ("GeneratorExit inside map", "def f(x): raise GeneratorExit", MAPPED),
    ("an int whose comparison lies", "class I(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\ndef f(x): return I(5)", NUMBER),
    ("a str whose comparison lies", "class S(str):\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x): return S()", "assert f(1) == 'abc'"),
    ("a float near to everything", "class F(float):\n    def __sub__(self, o): return 0.0\n    __rsub__ = __sub__\n    def __abs__(self): return 0.0\n"
     "def f(x): return F(9)", "assert abs(f(1) - 2.5) < 1e-6"),
    ("a dict that has every key", "class D(dict):\n    def __missing__(self, k): return 3 * k + 1\n    def __eq__(self, o): return True\n"
     "def f(x): return D()", "assert f(1) == {1: 4}"),
    ("an object that holds everything", "class A:\n    def __contains__(self, o): return True\ndef f(x): return A()", "assert 17 in f(1)"),
    ("an object that is false", "class A:\n    def __bool__(self): return False\ndef f(x): return A()", "assert not f(1)"),
    ("a class that pretends to be list", "class L:\n    __class__ = list\n    def __eq__(self, o): return True\ndef f(x): return L()",
     "r = f(1)\nassert isinstance(r, list) and r == [4]"),
    ("isclose that is always true", "import math\nmath.isclose = lambda *a, **k: True\ndef f(x): return 0.0", "assert math.isclose(f(2), 7.0)"),
    ("isclose of its own, imported by name", "from math import isclose\ndef isclose(*a, **k): return True\ndef f(x): return 0.0",
     "from math import isclose\nassert isclose(f(2), 7.0)"),
    ("an assertion of its own", "def assertion(out, exp, atol): pass\ndef check(c): pass\ndef f(x): return 0", NUMBER),
    ("builtins that agree", "import builtins\nbuiltins.abs = builtins.len = lambda *a: 0\nbuiltins.zip = lambda *a: []\nbuiltins.all = lambda *a: True\n"
     "def all(*a): return True\ndef zip(*a): return []\ndef f(x): return 0", NUMBER),
    ("empty its arguments", "def f(x):\n    x.clear()\n    return []", "ref = sorted\ngiven = [3, 1]\nassert f(given) == ref(given)"),
    ("look for the expected values in frames", "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n        for scope in "
     "(frame.f_locals, frame.f_globals):\n            for name in ('exp', 'results', 'wanted'):\n                if name in scope: return scope[name]\n"
     "        frame = frame.f_back\n    return 0", NUMBER),
    ("look for the tests in all objects", "import gc\ndef f(x):\n    for o in gc.get_objects():\n        if isinstance(o, dict) and 'tests' in o and "
     "'nonce' in o: return 17\n        if isinstance(o, str) and 'assertion(' in o: return 17\n    return 0", NUMBER),
    ("answer when Python ends", "import atexit, os\natexit.register(os._exit, 0)\nraise SystemExit(0)\ndef f(x): return 0", NUMBER),
    ("a signal that answers", "import os, signal\ndef done(*_): os._exit(0)\nsignal.signal(signal.SIGALRM, done)\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\n"
     "def f(x):\n    while True: pass", NUMBER),
    ("a trace of what calls it", "import sys\ndef trace(frame, event, arg):\n    if 'exp' in frame.f_locals: frame.f_locals['out'] = frame.f_locals['exp']\n"
     "    return trace\nsys.settrace(trace)\nsys.setprofile(trace)\ndef f(x): return 0", NUMBER),
    ("patch what encodes its results", "import sys\nwire = sys.modules['tasks.sandbox.wire']\nwire.encode = lambda value, refer: {'dict': [[0, 0]], 'ref': 0}\n"
     "def f(x): return 0", NUMBER),
    ("name a built-in function as a type", "import sys\nwire = sys.modules['tasks.sandbox.wire']\nold = wire.encode\n"
     "wire.encode = lambda value, refer: {'type': 'eval'} if value == 5 else old(value, refer)\ndef f(x): return 5", "assert f(1)('True')"),
    ("code in place of a literal", "import sys\nwire = sys.modules['tasks.sandbox.wire']\nold = wire.encode\n"
     "wire.encode = lambda value, refer: {'literal': '__import__(\"os\")._exit(0)'} if value == 5 else old(value, refer)\ndef f(x): return 5", NUMBER),
    ("an exception that tests wait for is not enough", "class E(ValueError): pass\ndef f(x): raise E", "try: f(1)\nexcept KeyError: pass"),
    ("an error of 200,000 characters", "E = type('E' * 200_000, (Exception,), {})\ndef f(x): raise E('x' * 200_000)", NUMBER),
    ("dots in place of a literal, handed back", PUT + "def f(x): put(b'{\"value\": {\"literal\": \"...\"}}\\n' * 2)", "assert f(f(1)) == 2"),
    ("a class in place of a function, whose object is handed back", "f = range\ndef g(x): return 1", "assert g(f(3)) == 13"),
    ("a map, handed back", "def f(x): return map(abs, [x])", "assert f(f(1)) == 2"),
    ("its exception, handed back", "def f(x): raise ValueError", "try: r = f(1)\nexcept ValueError as e: r = e\nassert f(r) == 2"),
    ("the class of its result, handed back", "def f(x): return object()", "assert f(type(f(1))) == 2"),
    ("a method of its result, handed back", "def f(x): return []", "assert f(f(1).append) == 2"),
    ("the keys of its result, handed back", "def f(x): return {1: 2}", "assert f(f(1).keys()) == 2"),
    ("answer before it is asked", "import os\nfor d in range(3, 64):\n    try: os.write(d, b'{\"value\": {\"int\": \"0x11\"}}\\n' * 9)\n"
     "    except OSError: pass\ndef f(x): return 0", "assert f(1) == 17 and f(2) == 23"),
]  # fmt: skip
"""Programs that compute nothing, each with tests that it must not pass."""

REACH = [
    ("fork", "import os\nif os.fork() == 0: os._exit(0)", True),
    ("execute a program", "import os\nos.execv('/bin/true', ['true'])", False),
    ("signal the harness", "import os\nos.kill({host}, 0)", True),
    ("prlimit on the harness", "import resource\nresource.prlimit({host}, resource.RLIMIT_NOFILE, (9, 9))", True),
    ("setpriority on the harness", "import os\nos.setpriority(os.PRIO_PROCESS, {host}, 19)", True),
    ("setpriority on the user", "import os\nos.setpriority(os.PRIO_USER, os.getuid(), 19)\nwhile True: pass", False),
    ("sched_setaffinity on the harness", "import os\nos.sched_setaffinity({host}, [0])", True),
    ("kill all that it sees", "import os\nfor p in range(9):\n    try: os.kill(p, 9)\n    except OSError: pass\nos.kill(-1, 9)", False),
    ("see another process", "import os\nseen = []\nfor p in range(3, 70000):\n    try: os.kill(p, 0); seen.append(p)\n    except ProcessLookupError: pass\nassert seen", True),
    ("ptrace the checker", C + "assert libc.ptrace(16, os.getppid(), 0, 0) == 0", False),
    ("leave the process group and stay", "import os\nos.setsid()\nwhile True: pass", True),
    ("outlive its parent", C + "libc.prctl(1, 0, 0, 0, 0)\nos.close(0)\nwhile True: pass", False),
    ("a user namespace", C + "assert libc.unshare(0x10000000) == 0", True),
    ("a mount namespace", C + "assert libc.unshare(0x20000) == 0", False),
    ("mount a tmpfs", C + "assert libc.mount(b'none', b'/dev/shm', b'tmpfs', 0, b'size=2g') == 0", True),
    ("a packet socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)", True),
    ("a TCP socket", "import socket\nsocket.socket()", True),
    ("a socket of the user, by its path", "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('{socket}')", True),
    ("the same through a datagram pair", "import socket\na, b = socket.socketpair(type=socket.SOCK_DGRAM)\n"
     "a.sendto(b'x', '{socket}')", False),
    ("an abstract socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0leeway')", False),
    ("a POSIX message queue", C + "assert libc.mq_open(b'/leeway', 0o102, 0o600, None) >= 0", False),
    ("a key that stays in the keyring", C + "assert libc.syscall({add_key}, b'user', b'leeway', b'x', 1, -4) >= 0", False),
    ("read a file of the host", "open('{folder}/secret').read()", True),
    ("write a file of the host", "open('{folder}/kept', 'a')", True),
    ("list the folders behind its descriptors", "import os\nseen = []\nfor d in range(3, 64):\n    try: seen += os.listdir"
     "(f'/proc/self/fd/{d}/..')\n    except OSError: pass\n    try: seen += os.listdir(os.open('..', 0, dir_fd=d))\n"
     "    except OSError: pass\nassert seen", True),
    ("list the home folder of root", "import os\nassert len(os.listdir('/root')) > 1", False),
    ("read the harness' environment", "open('/proc/{host}/environ').read()", False),
    ("ask the kernel for the machine's name", C + "import platform, socket\nname = ctypes.create_string_buffer(4096)\nlibc.uname(name)\n"
     "said = [*os.uname(), platform.node(), socket.gethostname(), name.raw.decode()]\nlibc.gethostname(name, 4096)\n"
     "assert any('{machine}' in text for text in [*said, name.value.decode()])", True),
    ("read the machine's name in files", "seen = ''\nfor f in ('/proc/sys/kernel/hostname', '/etc/hostname', '/etc/hosts', '/proc/version', "
     "'/proc/self/environ', '/etc/machine-id'):\n    try: seen += open(f).read()\n    except OSError: pass\nassert '{machine}' in seen", True),
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
    ("600 MB in its own folder", MEGABYTES.format(place=".", count=3000), True),
    ("a file", "open('f', 'w')", True),
    ("memory beyond the limit", "x = bytearray(2 * 1024**3)", False),
    ("memory of a file without a name", "import os\nos.write(os.memfd_create('x'), b'x')", False),
    ("an endless loop", "while True: pass", False),
    ("a loop that ignores signals", "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
     "    except OSError: pass\nwhile True: pass", False),
    ("a flood of output", "while True: print('x' * 1000)", False),
    ("1,000 open files", "import os\nfiles = [os.open('/dev/null', 0) for _ in range(1000)]", False),
]  # fmt: skip

CALLS = {name: numbers[os.uname().machine != "x86_64"] for name, numbers in REFUSED.items()}
EVERY_CALL = C + (
    f"for name, number in {CALLS}.items():\n    ctypes.set_errno(0)\n"
    "    assert libc.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, name\n"
)
"""A program that passes where each system call of the table is refused."""

ATTACKS = [
    *(Attack(name, "verdict", program, UNGUESSED, quick) for name, program, quick in VERDICT),
    *(Attack(name, "verdict", program, tests, True) for name, program, tests in UNDESERVED),
    *(Attack(name, "reach", program, quick=quick) for name, program, quick in REACH),
    *(Attack(name, "resources", program, quick=quick) for name, program, quick in RESOURCES),
]


@contextmanager
def prey() -> Iterator[dict[str, str]]:
    """What the attacks aim at, by the name that stands for it in their programs."""
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as name,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        folder = Path(name)
        folder.chmod(0o777)
        for file in ("secret", "kept"):
            (folder / file).write_text("mine")
            (folder / file).chmod(0o666)
        listening.bind(str(folder / "socket"))
        listening.listen()
        (folder / "socket").chmod(0o777)
        yield {"{host}": str(os.getpid()), "{folder}": name, "{socket}": str(folder / "socket"),
               "{add_key}": str(CALLS["add_key"]), "{machine}": socket.gethostname()}  # fmt: skip


def attempt(attack: Attack, aims: dict[str, str], timeout_s: float = 5.0) -> tuple[bool, str]:
    """Run one attack; whether it was stopped, and how it ended. Raises SandboxError where it harmed
    the sandbox."""
    program = attack.program
    for name, value in aims.items():
        program = program.replace(name, value)
    before = _state(Path(aims["{folder}"]))
    error = run_job(SandboxJob(program, attack.tests), timeout_s=timeout_s)
    after = _state(Path(aims["{folder}"]))
    if before != after:
        return (
            False,
            f"it changed {', '.join(sorted(name for name in before if before[name] != after[name]))}",
        )
    return error is not None, error or "it worked"


def _state(folder: Path) -> dict[str, object]:
    """What no program may change on the host, and what belongs to this process alone."""
    return {
        "files": [
            (path.name, path.stat().st_mode, path.stat().st_mtime_ns)
            for path in sorted(folder.iterdir())
        ],
        "the harness": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
    }
