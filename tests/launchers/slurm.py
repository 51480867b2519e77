# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes on this machine: its own munged, slurmctld and two slurmd,
each of these in namespaces with its own /tmp, /dev/shm and IPC. As root; everything is in one
folder, and stop() leaves neither a process nor a file."""
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import jobs

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "unshare",
          "nsenter")
NODES = ("n1", "n2")
START_SECONDS = 20
STOP_SECONDS = 60  # a slurmctld that is killed leaves a child behind
CONF = """\
ClusterName=ulyx
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdParameters=config_overrides
SlurmdUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
KillWait=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8
PartitionName=all Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE:8
"""


def missing():
    """Returns why no Slurm can be started here, or None."""
    if os.geteuid() != 0:
        return "slurmd is started by root only"
    gone = [name for name in NEEDED if shutil.which(name) is None]
    if gone:
        return "not installed: " + ", ".join(gone)
    return jobs.cannot_be_apart()


def port_is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_ports(count):
    """Returns ports below those that the kernel assigns: a connection of
    another program could take an assigned one before its daemon listens."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as text:
        first = int(text.read().split()[0])
    drawn = random.sample(range(max(first - 20000, 1025), first), 50 * count)
    return [port for port in drawn if port_is_free(port)][:count]


class Slurm:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="ulyx-slurm-", dir="/var/tmp")
        self.conf = os.path.join(self.folder, "slurm.conf")
        self.daemons = []

    def environment(self, **more):
        return jobs.environment(SLURM_CONF=self.conf, **more)

    def start(self):
        os.chmod(self.folder, 0o755)
        os.mkdir(os.path.join(self.folder, "state"))
        for node in NODES:
            os.mkdir(os.path.join(self.folder, "spool-" + node))
        with open(self.conf, "w", encoding="ascii") as conf:
            conf.write(CONF.format(host=socket.gethostname(), folder=self.folder,
                                   ports=free_ports(3)))
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as out:
            out.write(os.urandom(64))
        os.chmod(key, 0o600)
        self.spawn("munged", "--foreground", "--force", "--key-file", key,
                   "--socket", os.path.join(self.folder, "munge.socket"),
                   "--pid-file", os.path.join(self.folder, "munged.pid"),
                   "--seed-file", os.path.join(self.folder, "munged.seed"),
                   "--log-file", os.path.join(self.folder, "munged.log"))
        self.wait(lambda: os.path.exists(os.path.join(self.folder, "munge.socket")), "munged")
        self.spawn("slurmctld", "-D", "-f", self.conf)
        for node in NODES:
            self.spawn(*jobs.APART, jobs.MOUNT + 'exec slurmd -D -N "$0" -f "$1"',
                       node, self.conf)
        self.wait(self.all_idle, "both nodes")

    def spawn(self, *words):
        with open(os.path.join(self.folder, "daemons.log"), "ab") as log:
            self.daemons.append(subprocess.Popen(
                words, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=self.folder, start_new_session=True))

    def all_idle(self):
        done = self.run("sinfo", "-h", "-N", "-o", "%T")
        return done.stdout.split() == ["idle"] * len(NODES)

    def wait(self, ready, what):
        until = time.monotonic() + START_SECONDS
        while not ready():
            dead = [each.args[0] for each in self.daemons if each.poll() is not None]
            if dead or time.monotonic() > until:
                raise RuntimeError("Slurm: %s: not up; ended: %s\n%s" % (
                    what, dead, self.logs()))
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                path = os.path.join(self.folder, name)
                with open(path, encoding="utf-8", errors="replace") as log:
                    text += "== %s\n%s\n" % (name, log.read()[-2000:])
        return text

    def run(self, *words, seconds=60, **more):
        return subprocess.run(words, env=self.environment(**more), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=seconds, check=False,
                              cwd=self.folder)

    def left(self):
        """Returns what ulyx has left in the folders of the nodes."""
        files = []
        for slurmd in self.daemons[2:]:
            files += jobs.names_of_ulyx(subprocess.run(
                ["nsenter", "-t", str(slurmd.pid), "-m", "ls", "-A", *jobs.OWN],
                stdout=subprocess.PIPE, text=True, check=True).stdout)
        return files

    def stop(self):
        """Stops all daemons. Returns what had to be killed, which should be
        nothing."""
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        left = jobs.end_all(self.folder)
        shutil.rmtree(self.folder)
        return left
