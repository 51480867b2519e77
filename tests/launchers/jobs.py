# SPDX-License-Identifier: Apache-2.0
"""What the tests of launchers share: an environment without a launcher, folders
of their own, and a search for what a job leaves behind."""
import os
import signal
import subprocess
import time

OWN = ("/tmp", "/dev/shm")
APART = ("unshare", "--mount", "--ipc", "--propagation", "private", "sh", "-c")
MOUNT = "mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && "
OF_LAUNCHERS = ("ULYX_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_",
                "MASTER_", "TORCHELASTIC_", "FLUX_", "PALS_", "MV2_", "MPIRUN_",
                "MPI_LOCAL")


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(OF_LAUNCHERS)}
    return {**kept, **more}


def cannot_be_apart():
    done = subprocess.run([*APART, MOUNT + "true"], stderr=subprocess.DEVNULL, check=False)
    return "no mount and IPC namespaces can be made here" if done.returncode else None


def names_of_ulyx(listing):
    return [name for name in listing.split() if "ulyx" in name]


def processes(mark):
    """Returns the processes with this text in their environment or command
    line: daemons, steps, ranks."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for file in ("environ", "cmdline"):
            try:
                with open(f"/proc/{pid}/{file}", "rb") as text:
                    if mark.encode() in text.read() and int(pid) != os.getpid():
                        found.append(int(pid))
            except OSError:
                pass
    return sorted(set(found))


def end_all(mark, seconds=30):
    """Ends all processes. Returns those that did not end by themselves and were
    killed."""
    until = time.monotonic() + seconds
    left = processes(mark)
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left = processes(mark)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return left
