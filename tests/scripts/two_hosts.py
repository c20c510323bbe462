#!/usr/bin/env python3
"""Trains on two hosts, which are network namespaces joined by a link of limited rate, and cuts them off from each other.

    tests/scripts/two_hosts.py build/release/bin/lora        as root; ends with 77 where namespaces can't be made

A run of a process on each writes the bytes of one process. Of another the link is cut in the middle: both processes end within
ddp_timeout and some seconds, one line tells which rank was not heard of, nothing is left, and one process goes on to the same
bytes. What was made is removed at the end, also after an error.
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import soak

TIMEOUT = 5
NAMES = [f"lora-{os.getpid()}-{name}" for name in ("one", "two")]
HOSTS = dict(zip(NAMES, ("10.77.31.1", "10.77.31.2")))


def run(*words):
    return subprocess.run(words, capture_output=True, text=True)


class Hosts:
    """Two namespaces, with a name of a host each, and the link between them."""

    def __enter__(self):
        made = [run("ip", "netns", "add", name) for name in HOSTS]
        if any(one.returncode != 0 for one in made):
            self.__exit__()
            print(f"no network namespaces can be made here: {made[0].stderr.strip()}")
            sys.exit(77)
        run("ip", "link", "add", "lora-v1", "netns", NAMES[0], "type", "veth", "peer", "name", "lora-v2",
            "netns", NAMES[1])
        for (name, address), link in zip(HOSTS.items(), ("lora-v1", "lora-v2")):
            for words in (["addr", "add", f"{address}/24", "dev", link], ["link", "set", link, "up"], ["link", "set", "lo", "up"]):
                done = run("ip", "-n", name, *words)
                assert done.returncode == 0, done.stderr
            done = run("tc", "-n", name, "qdisc", "add", "dev", link, "root", "tbf", "rate", "200mbit", "burst", "64kb",
                       "latency", "50ms")
            if done.returncode != 0:
                print(f"the link's rate is not limited: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        for name in HOSTS:
            for process in run("ip", "netns", "pids", name).stdout.split():
                run("kill", "-KILL", process)
            run("ip", "netns", "del", name)

    @staticmethod
    def cut():
        assert run("ip", "-n", NAMES[1], "link", "set", "lora-v2", "down").returncode == 0

    @staticmethod
    def mend():
        assert run("ip", "-n", NAMES[1], "link", "set", "lora-v2", "up").returncode == 0


def agent(folder):
    """In the place of ssh: runs a command on the host with an address."""
    lines = ["#!/bin/sh", "host=$1; shift", 'case "$host" in']
    lines += [f"  {address}) name={name} ;;" for name, address in HOSTS.items()]
    lines += ["esac", 'exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"', ""]
    path = folder / "agent.sh"
    path.write_text("\n".join(lines))
    path.chmod(0o755)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("network namespaces need root")
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was made is removed then too
    options = argparse.Namespace(program=args.program, steps=args.steps, ranks=2, kills=0, zero_stage=1, stand_in=None, mca=[],
                                 seed=1)
    with tempfile.TemporaryDirectory(prefix="two-hosts-") as name, Hosts() as hosts:
        folder = Path(name)
        soaking = soak.Soak(options, folder)
        program = str(args.program.resolve())
        shell = agent(folder)

        def start(out, *more):
            mpirun = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(shell), "--mca", "btl", "tcp,self",
                      "--mca", "btl_tcp_if_include", "10.77.31.0/24", "--mca", "oob_tcp_if_include", "10.77.31.0/24", "-n", "2",
                      "--host", ",".join(f"{address}:1" for address in HOSTS.values())]
            words = [word for word in soaking.words(2, out) if not word.startswith("--step_units")]
            inside = ["ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", f'hostname {NAMES[0]}; exec "$@"', "sh"]
            # A file, since daemons that are left behind would hold a pipe open.
            with open(folder / "errors", "w") as errors:
                return subprocess.Popen(inside + mpirun + [program] + words + ["--step_units=2", *more],
                                        stdout=subprocess.DEVNULL, stderr=errors, env=soaking.environment, start_new_session=True)

        def told():
            return (folder / "errors").read_text()

        def expect(truth, what, errors=""):
            if not truth:
                sys.exit(f"FAILED: {what}\n{errors}")
            print(what, flush=True)

        def alone(out):
            words = [word for word in soaking.words(1, out) if not word.startswith("--step_units")] + ["--step_units=2"]
            done = subprocess.run([program] + words, capture_output=True, text=True, env=soaking.environment)
            expect(done.returncode == 0, f"one process ends: {out.name}", done.stderr)
            expect(soak.last_step(out) == args.steps, "its last checkpoint is of the last step")
            return soak.lasting(out)

        expected = alone(folder / "alone")
        whole = start(folder / "both")
        whole.wait()
        expect(whole.returncode == 0 and "2 ranks on 2 hosts" in told(), "two hosts train to the end", told())
        expect(soak.lasting(folder / "both") == expected, "their bytes are those of one process")

        out = folder / "cut"
        process = start(out, f"--ddp_timeout={TIMEOUT}")
        while not (out / "checkpoints" / "checkpoint-10").exists() and process.poll() is None:
            time.sleep(0.01)
        hosts.cut()
        begin = time.monotonic()
        while (left := soak.processes_of(out)) and time.monotonic() - begin < TIMEOUT + 60:
            time.sleep(0.1)
        took = time.monotonic() - begin
        # mpirun may go on to wait for its own daemon on the other host.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        expect(not left, f"where the hosts are cut off from each other, both processes have ended {took:.1f} s later", told())
        expect(f"rank 1 sent nothing for {TIMEOUT} s" in told(), "the first says which rank was not heard of", told())
        hosts.mend()
        expect(alone(out) == expected, "one process goes on to the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
