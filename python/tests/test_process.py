# SPDX-License-Identifier: Apache-2.0
"""What processes do to each other: ends, forks, signals."""
import signal
import time

import pytest

from ranks import Processes

# A peer that waits in a call. It prints how the call ended, and how long after
# the line with which its partner announced that it would exit.
WAITING = """
if rank == 1:
    comm.barrier()
    say("ready")
    began = time.monotonic()
    try:
        comm.barrier()
        say("met")
    except ulyx.UlyxError as error:
        say(type(error).__name__)
    sys.exit(0)
comm.barrier()
"""


def test_lines_that_arrive_together_are_all_read():
    script = 'print("first\\nsecond", flush=True)'
    with Processes(1, script, meet=False) as job:
        assert job.line(0) == "first"
        assert job.end(0) == (0, "second")


@pytest.mark.parametrize("how, wanted", [
    ("sys.exit(0)", "RankLostError"),
    ("raise KeyError('gone')", "RankLostError"),
    ("comm.close(); time.sleep(60)", "RankLostError"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "RankLostError"),
    ("os._exit(3)", "RankLostError"),
    ("comm.abort(); time.sleep(60)", "AbortedError"),
    ("threading.Thread(target=lambda: comm.barrier(), daemon=True)",
     "RankLostError"),
])
def test_peers_are_notified_of_an_exit_at_once(how, wanted):
    with Processes(2, WAITING + "time.sleep(0.2)\n" + how) as job:
        assert job.line(1) == "ready"
        assert job.end(1) == (0, wanted)


@pytest.mark.parametrize("how, wanted", [
    ("", "rank 0 has destroyed its communicator"),
    # As in a program that has the handle in another way, or that ends without
    # atexit.
    ("comm._finalizer.detach()", "rank 0 has left: its process has exited")])
def test_an_exit_is_no_loss_until_the_rank_is_needed(how, wanted):
    script = f"""
plan = ulyx.Plan(comm, [ulyx.Tensor(4, 8, "float32")], [8])
q = np.zeros((1, 4, 4, 8), np.float32)
plan.execute(ulyx.SEQ_TO_HEAD, [q])
if rank == 0:
    plan._finalizer.detach()
    {how}
    sys.exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
say("ready")
signal.sigwait([signal.SIGUSR1])
assert comm.error() is None
say("unharmed")
for call in (lambda: plan.execute(ulyx.SEQ_TO_HEAD, [q]), comm.barrier):
    try:
        call()
    except ulyx.RankLostError as error:
        say(error)
"""
    with Processes(2, script) as job:
        assert job.line(1) == "ready"
        assert job.end(0, timeout=10)[0] == 0
        time.sleep(0.2)
        job.ranks[1].send_signal(signal.SIGUSR1)
        status, said = job.end(1, timeout=10)
        lines = said.splitlines()
        assert status == 0 and lines[0] == "unharmed" and len(lines) == 3, said
        assert wanted in lines[1] and wanted in lines[2]


def test_an_exit_beside_a_call_of_a_daemon_thread():
    script = """
if rank == 0:
    threading.Thread(target=comm.barrier, daemon=True).start()
    time.sleep(0.3)
    say("leaving")
    sys.exit(7)
time.sleep(60)
"""
    with Processes(2, script) as job:
        assert job.end(0) == (7, "leaving")


def test_a_thread_that_waits_lets_others_run():
    script = """
if rank == 0:
    waits = threading.Thread(target=comm.barrier)
    waits.start()
    ticks = 0
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        ticks += 1
        time.sleep(0.001)
    say(ticks)
    waits.join()
else:
    time.sleep(0.6)
    comm.barrier()
"""
    with Processes(2, script) as job:
        status, ticks = job.end(0)
        assert status == 0 and int(ticks) > 20


INTERRUPTED = """
if rank == 0:
    comm.barrier()
    say("waiting")
    began = time.monotonic()
    try:
        %s
    except KeyboardInterrupt:
        say("interrupted")
        try:
            comm.barrier()
        except ulyx.AbortedError:
            say("aborted")
    sys.exit(0)
comm.barrier()
time.sleep(0.5)
try:
    comm.barrier()
except ulyx.AbortedError as error:
    say(error)
"""


@pytest.mark.parametrize("call", [
    "comm.barrier()", "comm.allreduce(np.zeros(8))",
    "ulyx.Plan(comm, [ulyx.Tensor(4, 8)], [8])",
    "comm.split(0)"])
def test_ctrl_c_ends_a_call_and_tells_the_peers(call):
    # The deadline is far away: without the watcher, rank 0 would be killed by
    # the test here.
    with Processes(2, INTERRUPTED % call, timeout=300) as job:
        assert job.line(0) == "waiting"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.end(0) == (0, "interrupted\naborted")
        status, said = job.end(1)
        assert status == 0 and "rank 0" in said


@pytest.mark.parametrize("create", [
    "ulyx.Communicator.from_env(timeout=300)",
    "ulyx.Communicator.from_unique_id(ulyx.unique_id(), 2, 0, timeout=300)"])
def test_ctrl_c_ends_a_creation(create):
    script = f"""
say("waiting")
try:
    {create}
except KeyboardInterrupt:
    say("interrupted")
"""
    with Processes(2, script, meet=False) as job:
        job.ranks[1].kill()
        assert job.line(0) == "waiting"
        time.sleep(0.5)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.end(0) == (0, "interrupted")


def test_a_program_that_handles_sigint_itself_is_left_alone():
    script = """
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
comm.barrier()
say("waiting")
if rank == 1:
    time.sleep(1)
comm.barrier()
say("met", len(seen))
"""
    with Processes(2, script) as job:
        assert job.line(0) == "waiting"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.end(0) == (0, "met 1")
        assert job.end(1)[0] == 0


def test_signal_handlers_run_during_calls():
    script = """
read, write = os.pipe()
os.set_blocking(write, False)
signal.set_wakeup_fd(write)
signal.signal(signal.SIGUSR1, lambda *_: None)
comm.barrier()
say("waiting")
if rank == 1:
    time.sleep(1)
comm.barrier()
os.set_blocking(read, False)
say(signal.SIGUSR1 in os.read(read, 64), signal.set_wakeup_fd(-1) == write)
"""
    with Processes(2, script) as job:
        assert job.line(0) == "waiting"
        time.sleep(0.3)
        job.ranks[0].send_signal(signal.SIGUSR1)
        assert job.end(0) == (0, "True True")


def test_a_forked_child_gets_an_error_and_harms_no_rank():
    script = """
plan = ulyx.Plan(comm, [ulyx.Tensor(4, 8, "float32")], [8])
child = os.fork()
if child == 0:
    told = 0
    for call in (comm.barrier, plan.seq_rows, lambda: comm.split(0)):
        try:
            call()
        except ulyx.ForkedError:
            told += 1
    sys.exit(40 + told)      # with the interpreter's whole end
_, status = os.waitpid(child, 0)
comm.barrier()
q = np.zeros((1, 4, 4, 8), np.float32)
plan.execute(ulyx.SEQ_TO_HEAD, [q])
say(os.WEXITSTATUS(status))
"""
    with Processes(2, script) as job:
        assert [job.end(rank) for rank in range(2)] == [(0, "43")] * 2


def test_a_killed_child_is_no_lost_rank():
    script = """
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
comm.barrier()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
for _ in range(20):
    comm.barrier()
    time.sleep(0.01)
say(comm.allreduce(np.ones(1))[0])
"""
    with Processes(2, script) as job:
        assert [job.end(rank) for rank in range(2)] == [(0, "2.0")] * 2


def test_a_child_has_a_communicator_of_its_own_after_close():
    script = """
comm.close()
child = os.fork()
if child == 0:
    own, = ulyx.Communicator.local(1)
    own.barrier()
    os._exit(9)
_, status = os.waitpid(child, 0)
say(os.WEXITSTATUS(status))
"""
    with Processes(1, script) as job:
        assert job.end(0) == (0, "9")


def test_a_child_that_lives_on_does_not_hide_the_parent_s_death():
    script = """
if rank == 0:
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    comm.barrier()
    say(child)
    os.kill(os.getpid(), signal.SIGKILL)
comm.barrier()
try:
    comm.barrier()
except ulyx.RankLostError as error:
    say(error)
"""
    import os
    with Processes(2, script) as job:
        child = int(job.line(0))
        try:
            status, said = job.end(1)
            assert status == 0 and "rank 0" in said
        finally:
            os.kill(child, signal.SIGKILL)


def test_forks_beside_calls_of_another_thread():
    script = """
stop = threading.Event()
calls = 0
def run():
    global calls
    while not comm.agree(0 if stop.is_set() and rank == 0 else 1, "min") == 0:
        calls += 1
worker = threading.Thread(target=run)
worker.start()
if rank == 0:
    for _ in range(5):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(0.02)
    stop.set()
worker.join()
say(calls > 0)
"""
    with Processes(2, script) as job:
        assert [job.end(rank) for rank in range(2)] == [(0, "True")] * 2
