"""System calls that are refused beside what bubblewrap does, as a filter for its option --seccomp.

Namespaces leave holes: System V objects are memory that no limit counts, keys outlive the sandbox,
AF_VSOCK reaches the host of a virtual machine, a user namespace of its own lets a program mount
memory, and bubblewrap's own first process, which has no limits, could be traced. The others are the
kernel's less walked paths."""

from __future__ import annotations

import errno
import os
import struct

REFUSED = {  # name: (x86_64, aarch64)
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "socket": (41, 198),
    "unshare": (272, 97),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    "inotify_init": (253, 26),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "mq_open": (240, 180),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def filter_program() -> bytes:
    """Classic BPF (seccomp(2)): EPERM for the calls above, and for x32's. Raises OSError for an
    unknown machine."""
    if (machine := os.uname().machine) not in _MACHINES:
        raise OSError(
            errno.ENOSYS,
            f"no numbers of system calls for {machine}, only for {' and '.join(_MACHINES)}",
        )
    column, architecture = _MACHINES[machine]
    load = 0x20
    equal = 0x15
    at_least = 0x35
    end = 0x06
    refuse = (0x06, 0, 0, 0x00050000 | errno.EPERM)
    steps = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (end, 0, 0, 0x80000000),
        (load, 0, 0, 0),
        (at_least, 0, 1, 1 << 30),
        refuse,
    ]
    for number in sorted({numbers[column] for numbers in REFUSED.values()}):
        steps += [(equal, 0, 1, number), refuse]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (end, 0, 0, 0x7FFF0000)])
