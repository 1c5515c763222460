"""Give up what a process does not need. Only the standard library is at hand; the kernel is asked directly."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
from collections.abc import Collection
from typing import Any

from tasks.sandbox import landlock, seccomp

NOBODY = 65534
PRIVATE = "/dev/shm"
"""A folder that every Linux has and no interpreter lies in: a file system of bounded size is mounted over it."""
SCRATCH = f"{PRIVATE}/scratch"
PYTHON = f"{PRIVATE}/python"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_NEWNS, _NEWUSER, _NEWIPC, _NEWNET = 0x00020000, 0x10000000, 0x08000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 1, 4, 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def prepare(config: dict[str, Any]) -> bool:
    """What the checker and the program share: namespaces, a scratch folder, limits, a user without rights.

    Returns whether there is a scratch folder of bounded size, which is then the working folder. Raises OSError."""
    root = os.geteuid() == 0
    inside = config["mode"] == "bubblewrap"
    private = inside or _own_namespaces(root)
    mounted = private and _mount_private(config["scratch_bytes"], config["scratch_files"])
    bounded = mounted or inside  # bubblewrap mounts a file system of bounded size, with any number of files, there
    if bounded:
        os.mkdir(SCRATCH)
        os.chmod(SCRATCH, 0o1777)
    if root and not _open_to_all(sys.base_prefix):
        if not bounded:
            raise OSError(f"the interpreter lies in {sys.base_prefix}, which only root may enter: take one elsewhere")
        _show_python()
    os.chdir(SCRATCH if bounded else "/")
    for name, limit in config["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    if root:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    _drop_capabilities()
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # /proc shows other processes neither its memory nor its descriptors
    return bounded


def hide_files(config: dict[str, Any], bounded: bool) -> int:
    """Leave the interpreter, the system's libraries and the scratch folder. A process that calls this again is in a
    domain of its own, from which it can neither look into the one it comes from nor signal it.

    Returns the version of Landlock in force, 0 where the kernel has none. Raises OSError."""
    writable = [SCRATCH] if bounded else []
    return landlock.confine([*config["readable"], PYTHON, *DEVICES], [*writable, "/dev/null"])


def seal(processes: Collection[int]) -> None:
    """No further processes, no system calls that reach out; `processes` may be signalled. Raises OSError."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    seccomp.install(processes)


def die_with_parent(parent: int) -> None:
    """Be killed when the parent ends, also if it has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _own_namespaces(root: bool) -> bool:
    """As many namespaces as the machine lets a process have; whether that of mounts is among them."""
    if root:
        return [_libc.unshare(flag) for flag in (_NEWNET, _NEWIPC, _NEWNS)][-1] == 0
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_NEWUSER | _NEWNET | _NEWIPC | _NEWNS):
        return False
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError:
        return False
    return True


def _mount_private(size: int, files: int) -> bool:
    """Mount a file system of bounded size and number of files, which ends with the process; False where that fails."""
    if _libc.mount(None, b"/", None, _REC | _PRIVATE, None):
        return False
    options = f"size={size},nr_inodes={files},mode=755".encode()
    return bool(_libc.mount(b"tmpfs", PRIVATE.encode(), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, options) == 0)


def _open_to_all(path: str) -> bool:
    parts = os.path.realpath(path).split("/")
    return all(os.stat("/".join(parts[:end]) or "/").st_mode & 1 for end in range(1, len(parts) + 1))


def _show_python() -> None:
    """The interpreter's files lie where only root may look: show them, read-only, where everybody may."""
    os.mkdir(PYTHON)
    before, target = sys.base_prefix, PYTHON.encode()
    if _libc.mount(os.fsencode(before), target, None, _BIND, None):
        raise OSError(ctypes.get_errno(), f"{before} cannot be shown to another user")
    if _libc.mount(None, target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV, None):
        raise OSError(ctypes.get_errno(), f"{before} cannot be shown read-only")
    packages = [module for module in sys.modules.values() if hasattr(module, "__path__")]
    for paths in [sys.path, *(package.__path__ for package in packages)]:
        paths[:] = [PYTHON + path.removeprefix(before) if path.startswith(before) else path for path in paths]


def _drop_capabilities() -> None:
    _libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header, none = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24)
    if _libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "the capabilities cannot be dropped")
