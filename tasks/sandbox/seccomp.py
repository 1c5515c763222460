"""Refuse system calls that reach beyond a process: other processes, namespaces, sockets, shared memory, file metadata.

The filter is classic BPF (seccomp(2), linux/filter.h). It names what is refused: an allow-list would break programs
wherever the C library makes a call that another one does not. Calls newer than the table get ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Collection

# name: (x86_64, aarch64); None where the architecture has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other programs and other processes
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "setpriority": (141, 140),
    "sched_setaffinity": (203, 122), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "setsid": (112, 157), "setpgid": (109, 154),
    # namespaces, mounts, the kernel's less walked paths
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "sync": (162, 81), "syncfs": (306, 267),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_setup": (206, 0), "io_submit": (209, 2),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "personality": (135, 92),
    "syslog": (103, 116), "modify_ldt": (154, None), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # what stays in memory when the process has ended
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # sockets, those with a path included
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendmmsg": (307, 269),
    # what Landlock does not cover: metadata and locks of files that can be opened
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "flock": (73, 32),
}  # fmt: skip
NO_PROCESS: dict[str, tuple[int | None, int | None]] = {"fork": (57, None), "vfork": (58, None), "clone": (56, 220)}
NOT_KNOWN: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435)}  # the C library then takes clone
NEWEST = 451

_SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
            "rt_tgsigqueueinfo": (297, 240)}  # fmt: skip
_PRLIMIT, _SOCKETPAIR, _PRCTL, _FCNTL, _IOCTL = (302, 261), (53, 199), (157, 167), (72, 25), (16, 29)
_STREAM = (0x1, 0x801, 0x80001, 0x80801)
"""SOCK_STREAM with its flags: a datagram pair can still send to a path."""
_PRCTLS = (1, 35, 0x59616D61)
"""PR_SET_PDEATHSIG, PR_SET_MM, PR_SET_PTRACER."""
_FCNTLS = (6, 7, 8, 10, 15, 37, 38, 1024, 1026)
"""Locks, leases, and signals to the owner of a descriptor."""
_IOCTLS = (0x540E, 0x5412, 0x541C)
"""TIOCSCTTY, TIOCSTI, TIOCLINUX."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _GREATER, _RETURN = 0x20, 0x15, 0x25, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2

Instruction = tuple[int, int, int, int]


def program(machine: str, processes: Collection[int]) -> list[Instruction]:
    """The filter as (code, jump if true, jump if false, constant); `processes` are the ids that may be signalled.

    Raises OSError for a machine whose system calls are not in the table."""
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}, only for {' and '.join(_MACHINES)}")
    column, architecture = _MACHINES[machine]
    filter_: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_GREATER, 0, 1, NEWEST), _refuse(errno.ENOSYS),
    ]  # fmt: skip
    for calls, number in ((DENIED, errno.EPERM), (NO_PROCESS, errno.EAGAIN), (NOT_KNOWN, errno.ENOSYS)):
        for numbers in calls.values():
            if (call := numbers[column]) is not None:
                filter_ += [(_EQUAL, 0, 1, call), _refuse(number)]
    for numbers in _SIGNALS.values():
        filter_ += _argument(numbers[column], 0, allowed=processes)
    filter_ += _argument(_PRLIMIT[column], 0, allowed=(0, *processes))
    filter_ += _argument(_SOCKETPAIR[column], 1, allowed=_STREAM)
    for numbers, place, denied in ((_PRCTL, 0, _PRCTLS), (_FCNTL, 1, _FCNTLS), (_IOCTL, 1, _IOCTLS)):
        filter_ += _argument(numbers[column], place, denied=denied)
    return [*filter_, (_RETURN, 0, 0, _ALLOW)]


def install(processes: Collection[int]) -> None:
    """Put the filter in force for this process and all that it starts. Raises OSError where the kernel refuses."""
    filter_ = program(os.uname().machine, processes)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in filter_))
    pointer = struct.pack("@HP", len(filter_), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, pointer, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _refuse(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _argument(
    call: int, place: int, allowed: Collection[int] = (), denied: Collection[int] = ()
) -> list[Instruction]:
    """Refuse a call by the low 32 bits of one argument: outside `allowed`, or in `denied` where that is given."""
    kept, last = ((_RETURN, 0, 0, _ALLOW), _refuse(errno.EPERM))
    if denied:
        kept, last = last, kept
    tests = [part for value in (denied or allowed) for part in ((_EQUAL, 0, 1, value), kept)]
    return [(_EQUAL, 0, len(tests) + 2, call), (_LOAD, 0, 0, _ARGUMENTS + 8 * place), *tests, last]
