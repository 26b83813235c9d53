"""Ranks for tests: threads of this process, or processes that run a text."""
import os
import subprocess
import sys
import threading

import weft

LONG = 60  # seconds; only a hang takes so long


def on_ranks(count, body, devices=None):
    """body(comm) in a thread for each rank; a list of what it returns. An exception of a rank is raised here."""
    comms = weft.init_all(count, devices)
    results = [None] * count
    failures = []

    def run(rank):
        try:
            results[rank] = body(comms[rank])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            comms[rank].abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONG)
        assert not each.is_alive(), "a rank hangs"
    if failures:
        raise failures[0]
    for comm in comms:
        comm.close()
    return results


def errors_of_ranks(count, body):
    """As on_ranks, for bodies of which some raise: the exception of each rank, or None."""

    def caught(comm):
        try:
            body(comm)
        except Exception as error:  # noqa: BLE001
            return error
        return None

    return on_ranks(count, caught)


def blocked(call):
    """A thread that is inside call(), which must block: it has released the GIL there."""
    interval = sys.getswitchinterval()
    # No thread gives the GIL up before it blocks.
    sys.setswitchinterval(LONG)
    entered = threading.Event()

    def run():
        entered.set()
        call()

    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        entered.wait()
    finally:
        sys.setswitchinterval(interval)
    return thread


def environment(rank, size, identifier):
    return {
        **os.environ,
        "WEFT_RANK": str(rank),
        "WEFT_SIZE": str(size),
        "WEFT_UNIQUE_ID": identifier,
    }


def start_job(count, text, **variables):
    """A process for each rank that runs `text`, with more variables of the environment."""
    identifier = weft.unique_id().hex()
    # Python 3.12 warns of fork() in a process with threads, which these tests do on purpose.
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    return [
        subprocess.Popen(
            [sys.executable, "-u", *warnings, "-c", text],
            env={**environment(rank, count, identifier), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def end_job(processes):
    """(status, output, errors) of each rank. A rank that hangs is killed, and the test fails."""
    ends = []
    try:
        for each in processes:
            output, errors = each.communicate(timeout=LONG)
            ends.append((each.returncode, output, errors))
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
                each.wait()
    return ends


def run_job(count, text):
    """The output of each rank, all of which must succeed."""
    ends = end_job(start_job(count, text))
    for rank, (status, output, errors) in enumerate(ends):
        assert status == 0, f"rank {rank} has status {status}\n{output}\n{errors}"
    return [output for _, output, _ in ends]
