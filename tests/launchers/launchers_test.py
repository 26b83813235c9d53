#!/usr/bin/env python3
# launchers_test.py ALL_REDUCE_PERF WITH_MPI: four ranks on this host under each real launcher. They come from PyPI, by
# perf/peers/peers.sh; `tools/test --launchers` installs them, and without it this test is skipped.
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

HOME = os.environ.get("PEERS_HOME", os.path.expanduser("~/.cache/weft-peers"))
RANKS = 4
SKIPPED = 77  # meson's word for it
PERF, WITH_MPI = sys.argv[1:3]
SWEEP = [PERF, "-b", "8", "-e", "1M", "-f", "32", "-n", "5", "-w", "1"]


def place(peer, *path):
    return os.path.join(HOME, peer, *path)


def as_root():
    return ["--allow-run-as-root"] if os.geteuid() == 0 else []


def openmpi(program="mpirun", ranks=RANKS):
    return [place("openmpi", "bin", program), *as_root(), "--map-by", ":OVERSUBSCRIBE", "-n", str(ranks)]


def hydra(peer, ranks=RANKS):
    return [place(peer, "bin", "mpiexec.hydra"), "-n", str(ranks)]


def intel_environment():
    home = place("impi")
    return {"I_MPI_ROOT": home, "PATH": f"{home}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{home}/lib"}


TORCH_ENVIRONMENT = {"LD_LIBRARY_PATH": place("torch", "stubs")}


def torchrun(*arguments):
    return [place("torch", "bin", "torchrun"), *arguments, "--no-python"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def environment(more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "NCCL_"))}
    return {**kept, "WEFT_DEBUG": "INFO", "WEFT_DEBUG_SUBSYS": "INIT", **more}


class RealLaunchers(unittest.TestCase):
    def output_of(self, commands, environments):
        """The output of commands that run at the same time; all must end well. Only a hang meets the limit."""
        running = [
            subprocess.Popen(command, env=environment(more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command, more in zip(commands, environments)
        ]
        outputs = []
        for process in running:
            try:
                outputs.append(process.communicate(timeout=240)[0])
            except subprocess.TimeoutExpired:
                for other in running:
                    other.terminate()  # launchers take their processes with them
                self.fail("no end in sight of " + " ".join(process.args) + "\n" + process.communicate()[0])
        for process, output in zip(running, outputs):
            self.assertEqual(process.returncode, 0, f"{' '.join(process.args)}\n{output}")
        return "".join(outputs)

    def check_job(self, output, launcher, source):
        """Every rank joined, knows its launcher, has the id from where it should, and no sum is wrong."""
        for rank in range(RANKS):
            self.assertIn(f"rank {rank} of {RANKS}, started by {launcher}\n", output)
        found = re.findall(rf"{re.escape(launcher)}: the unique id of {RANKS} ranks is from (.*)", output)
        self.assertEqual(len(found), RANKS, output)
        for each in found:
            self.assertIn(source, each)
        self.assertRegex(output, r"# Out of bounds values : 0 OK")
        self.assertNotIn("WARN", output)

    def sweep(self, launch, launcher, source, more=None):
        self.check_job(self.output_of([launch + SWEEP], [more or {}]), launcher, source)

    def test_open_mpi(self):
        self.sweep(openmpi(), "Open MPI", "the launcher's PMIx server")

    def test_rank_and_size_left_over_in_the_shell_under_open_mpi(self):
        alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999"}
        for left_over in alone, {"WORLD_SIZE": "1"}:
            output = self.output_of([openmpi() + SWEEP], [left_over])
            for rank in range(RANKS):
                self.assertIn(f"rank {rank} of {RANKS}, started by Open MPI\n", output)
            self.assertIn("WARN", output)

    def test_prterun(self):
        self.sweep(openmpi("prterun"), "prterun", "the launcher's PMIx server")

    def test_mpich(self):
        self.sweep(hydra("mpich"), "MPICH", "the launcher's PMI server")

    def test_intel_mpi(self):
        self.sweep(hydra("impi"), "Intel MPI", "the launcher's PMI server", intel_environment())

    def test_torchrun(self):
        self.sweep(torchrun("--nproc-per-node", str(RANKS)), "torchrun", "the store at MASTER_ADDR", TORCH_ENVIRONMENT)

    def test_torchrun_on_two_nodes_that_are_both_this_host(self):
        port = free_port()
        agents = [
            torchrun("--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                     "--master-port", str(port)) + SWEEP
            for node in range(2)
        ]
        output = self.output_of(agents, [TORCH_ENVIRONMENT] * 2)
        self.check_job(output, "torchrun", "the store at MASTER_ADDR")

    def test_torchrun_restarts_workers_of_two_agents_of_which_one_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            # In the first attempt one worker fails and the agents end the others. Its agent alone counts the restart.
            worker = os.path.join(folder, "worker")
            with open(worker, "w") as script:
                script.write(f"""#!/bin/sh
                    if mkdir "{folder}/$RANK" 2>/dev/null; then [ "$RANK" != {RANKS - 1} ] || exit 7; exec sleep 200; fi
                    echo "rank $RANK after $TORCHELASTIC_RESTART_COUNT restarts"
                    exec "$@"
                    """)
            os.chmod(worker, 0o755)
            agent = torchrun("--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "1", "--rdzv-backend", "c10d",
                             "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "job", "--monitor-interval", "0.1")
            output = self.output_of([agent + [worker] + SWEEP] * 2, [TORCH_ENVIRONMENT] * 2)
        for restarts in 0, 1:
            self.assertRegex(output, rf"rank \d after {restarts} restarts\n")
        self.check_job(output, "torchrun", "the store at MASTER_ADDR")

    def test_ranks_that_share_no_memory_connect_over_tcp(self):
        more = {"WEFT_TRANSPORTS": "tcp", "WEFT_SOCKET_IFNAME": "lo"}
        self.sweep(openmpi(), "Open MPI", "the launcher's PMIx server", more)
        self.sweep(hydra("mpich"), "MPICH", "the launcher's PMI server", more)

    def test_env_without_a_store(self):
        port = str(free_port())
        jobs = [{"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS),
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(RANKS)]
        output = self.output_of([SWEEP] * RANKS, jobs)
        self.check_job(output, "env://", "the job's identity, as no process serves PyTorch's store at 127.0.0.1:" + port)

    def test_weft_before_and_after_mpi_init_in_one_process(self):
        for order in ("mpi-first", "weft-first"):
            for peer, more in (("mpich", {}), ("impi", intel_environment())):
                with self.subTest(peer=peer, order=order):
                    program = [WITH_MPI, place(peer, "lib", "libmpi.so.12"), order]
                    self.assertEqual(self.output_of([hydra(peer, 2) + program], [more]).count("both work"), 2)
        # libpmix does not survive MPI_Init after a session of ours: docs/guide/launching.md.
        program = [WITH_MPI, place("openmpi", "lib", "libmpi.so.40"), "mpi-first"]
        self.assertEqual(self.output_of([openmpi(ranks=2) + program], [{}]).count("both work"), 2)


if __name__ == "__main__":
    if not os.environ.get("WEFT_TEST_LAUNCHERS"):
        print("skipped: tools/test --launchers installs the launchers and runs this")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
