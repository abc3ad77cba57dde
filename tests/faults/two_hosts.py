#!/usr/bin/env python3
# Runs the trainer on two hosts whose cable can be cut, slowed and filtered.
#
#   sudo tests/faults/two_hosts.py build/release/bin/trainer [--list] [CASE...]
#
# The hosts are network namespaces with their own host names; the cable is this process, which
# carries each frame from one tap device to the other. So it can be cut in one direction, lose
# frames, delay them, or let only some ports through, on any kernel. Each case prints one line: what
# was done, how both hosts ended, how long it took, and whether that is what docs/launching.md
# promises; the status is 0 where all are. Needs root and /dev/net/tun. Not part of the check: it
# takes some minutes.
#
# SPDX-License-Identifier: MIT

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

NAMES = [f"gh{os.getpid() % 10000}{side}" for side in "ab"]
V4, V6 = ["10.78.0.1", "10.78.0.2"], ["fd78::1", "fd78::2"]
PORT, FREE_PORTS = 29500, (40000, 40199)
HANG = 8  # --hang-timeout-seconds of all runs.


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


def open_tap(namespace):
    """A tap device named "cable" in `namespace`; its descriptor works from anywhere."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), namespace)
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"cable", 0x0002 | 0x1000))
    finally:
        libc.setns(home, 0x40000000)
        os.close(home)
        os.close(there)
    return tap


class Cable(threading.Thread):
    """Carries frames between two taps. Side 0 sends to side 1, and the other way."""

    def __init__(self, taps):
        super().__init__(daemon=True)
        self.taps, self.cut, self.delay, self.loss, self.ports = taps, [False, False], 0, 0, None
        self.chance, self.held, self.number = random.Random(1), [], itertools.count()
        self.ending = False

    def passes(self, frame):
        """Whether the firewall, if there is one, lets a frame through, by TCP port."""
        kind = frame[12:14]
        if self.ports is None or kind not in (b"\x08\x00", b"\x86\xdd"):
            return True
        header = 14 + (40 if kind == b"\x86\xdd" else (frame[14] & 15) * 4)
        protocol = frame[20] if kind == b"\x86\xdd" else frame[23]
        if protocol != 6:
            return True
        return any(self.ports(port) for port in struct.unpack("!HH", frame[header : header + 4]))

    def run(self):
        while not self.ending:
            wait = 0.05 if not self.held else min(0.05, max(0, self.held[0][0] - time.monotonic()))
            for tap in select.select(self.taps, [], [], wait)[0]:
                try:
                    self.take(self.taps.index(tap), os.read(tap, 65536))
                except OSError:
                    continue
            while self.held and self.held[0][0] <= time.monotonic():
                _, _, tap, frame = heapq.heappop(self.held)
                try:
                    os.write(tap, frame)
                except OSError:
                    continue

    def take(self, side, frame):
        if self.cut[side] or self.chance.random() < self.loss or not self.passes(frame):
            return
        due = time.monotonic() + self.delay
        heapq.heappush(self.held, (due, next(self.number), self.taps[1 - side], frame))


def write_dataset(prefix):
    """200 documents of 12 tokens below 63, each ending in 63."""
    chance = random.Random(7)
    documents = [[chance.randrange(63) for _ in range(11)] + [63] for _ in range(200)]
    with open(prefix + ".bin", "wb") as out:
        for document in documents:
            out.write(struct.pack(f"<{len(document)}H", *document))
    with open(prefix + ".idx", "wb") as out:
        n = len(documents)
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, n, n + 1))
        out.write(struct.pack(f"<{n}i", *[12] * n))
        out.write(struct.pack(f"<{n}q", *[24 * i for i in range(n)]))
        out.write(struct.pack(f"<{n + 1}q", *range(n + 1)))


class Hosts:
    """Both hosts with a fresh cable, a shared folder, and the processes of one case."""

    def __init__(self, trainer, folder, v6=False):
        self.trainer, self.folder, self.address = trainer, folder, (V6 if v6 else V4)[0]
        self.running = [None, None]
        for name in NAMES:
            ip("netns", "add", name)
        self.cable = Cable([open_tap(name) for name in NAMES])
        for side, name in enumerate(NAMES):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "cable", "up")
            address = f"{V6[side]}/64" if v6 else f"{V4[side]}/24"
            extra = ["nodad"] if v6 else []
            ip("-n", name, "addr", "add", address, "dev", "cable", *extra)
        self.cable.start()

    def close(self):
        for side in (0, 1):
            self.kill(side)
        self.cable.ending = True
        self.cable.join()
        for tap in self.cable.taps:
            os.close(tap)
        for name in NAMES:
            ip("netns", "del", name, check=False)

    def path(self, side, name):
        return os.path.join(self.folder, f"{name}.{'ab'[side]}")

    def start(self, side, *more, ranks=1, shared=True, iterations=40, rank=None):
        """Starts the same command on each host: one process per host, which starts its ranks."""
        save = self.folder + "/save"
        own = "" if shared else f"mkdir -p {save} && mount -t tmpfs none {save} && "
        words = [
            "ip",
            "netns",
            "exec",
            NAMES[side],
            "unshare",
            "--uts",
            "--mount",
            "sh",
            "-c",
            f'{own}hostname {"ab"[side]}host && exec "$@"',
            "sh",
            "env",
            f"RANK={side if rank is None else rank}",
            "WORLD_SIZE=2",
            f"MASTER_ADDR={self.address}",
            f"MASTER_PORT={PORT}",
            self.trainer,
            *"--device cpu --num-layers 2 --hidden-size 32 --num-attention-heads 2".split(),
            *"--seq-length 16 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2".split(),
            "--train-iters",
            str(iterations),
            *"--lr-decay-style constant --vocab-size 64 --eod-id 63".split(),
            "--data-path",
            self.folder + "/data",
            "--split",
            "100,0,0",
            "--log-interval",
            "1",
            "--nproc-per-node",
            str(ranks),
            "--hang-timeout-seconds",
            str(HANG),
            *"--meeting-timeout-seconds 8 --distributed-timeout-minutes 0.25".split(),
            *"--cpu-threads 1".split(),
            "--save",
            save,
            "--load",
            save,
            "--save-interval",
            "5",
            *more,
        ]
        with open(self.path(side, "out"), "a") as out, open(self.path(side, "err"), "a") as err:
            self.running[side] = subprocess.Popen(
                words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self, side):
        if self.running[side] is not None and self.running[side].poll() is None:
            os.killpg(self.running[side].pid, signal.SIGKILL)
            self.running[side].wait()

    def step(self, number, timeout=90):
        """Waits until rank 0 has printed that step."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.running[0].poll() is None:
            if re.search(rf"iteration +{number}/", self.read(0, "out")):
                return
            time.sleep(0.05)

    def read(self, side, name):
        with open(self.path(side, name)) as text:
            return text.read()

    def wait(self, timeout=150):
        end = time.monotonic() + timeout
        for side in (0, 1):
            try:
                self.running[side].wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(side)
        return [process.returncode for process in self.running]

    def losses(self):
        with open(self.folder + "/save/metrics.jsonl") as lines:
            rows = [json.loads(line) for line in lines]
        return {row["iteration"]: row["lm_loss"] for row in rows if "lm_loss" in row}


CASES = {}


def case(about):
    def add(function):
        CASES[function.__name__.replace("_", "-")] = (about, function)
        return function

    return add


def both(hosts, **options):
    for side in (0, 1):
        hosts.start(side, **options)


def good(hosts, reference):
    """Whether both ended normally, with the losses of an undisturbed run."""
    statuses = hosts.wait()
    return statuses, statuses == [0, 0] and hosts.losses() == reference


def ended(hosts, *patterns, statuses=((75, 75), (1, 1), (1, 75), (75, 1))):
    """Whether both ended by themselves, and each host's stderr matches its pattern."""
    found = hosts.wait()
    said = [re.search(pattern, hosts.read(side, "err")) for side, pattern in enumerate(patterns)]
    return found, tuple(found) in statuses and all(said)


def cut_in_steps(hosts, sides, seconds):
    both(hosts, iterations=400 if seconds is None else 40)
    hosts.step(7)
    for side in sides:
        hosts.cable.cut[side] = True
    if seconds is not None:
        time.sleep(seconds)
        hosts.cable.cut = [False, False]


@case("nothing is done")
def untouched(hosts, reference):
    both(hosts)
    return good(hosts, reference)


@case("cable cut for 3 s in the steps, both ways")
def steps_cut_3s(hosts, reference):
    cut_in_steps(hosts, (0, 1), 3)
    return good(hosts, reference)


@case("cut for 3 s in the steps, from the first host to the second")
def steps_cut_3s_there(hosts, reference):
    cut_in_steps(hosts, (0,), 3)
    return good(hosts, reference)


@case("cut for 3 s in the steps, from the second host to the first")
def steps_cut_3s_back(hosts, reference):
    cut_in_steps(hosts, (1,), 3)
    return good(hosts, reference)


@case("cut for good in the steps, both ways")
def steps_cut(hosts, _):
    cut_in_steps(hosts, (0, 1), None)
    return ended(hosts, r"rank 1 \(bhost.*silent for", r"rank 0 \(ahost.*silent")


@case("cut for good in the steps, from the first host to the second")
def steps_cut_there(hosts, _):
    cut_in_steps(hosts, (0,), None)
    return ended(hosts, r"rank [01] \(", r"rank 0 \(ahost")


@case("cut for good in the steps, from the second host to the first")
def steps_cut_back(hosts, _):
    cut_in_steps(hosts, (1,), None)
    return ended(hosts, r"rank 1 \(bhost.*silent for", r"rank 1 \(bhost|rank 0 \(ahost")


@case("cut for 20 s in the steps, longer than the hang's timeout; then the same command again")
def steps_cut_20s_again(hosts, reference):
    cut_in_steps(hosts, (0, 1), 20)
    first = hosts.wait()
    both(hosts)
    statuses, right = good(hosts, reference)
    return first + statuses, right and first[0] in (1, 75)


@case("cut for 3 s in the meeting")
def meeting_cut_3s(hosts, reference):
    hosts.cable.cut = [True, True]
    both(hosts)
    time.sleep(3)
    hosts.cable.cut = [False, False]
    return good(hosts, reference)


@case("cut for good from before the meeting")
def meeting_cut(hosts, _):
    hosts.cable.cut = [True, True]
    both(hosts)
    return ended(hosts, r"rank 1 of 2 did not come within 15 s", r"rank 0 was not found within")


@case("cut for good in a save")
def save_cut(hosts, _):
    both(hosts, iterations=400)
    while not os.path.exists(hosts.folder + "/save/latest_checkpointed_iteration.txt"):
        if hosts.running[0].poll() is not None:
            break
        time.sleep(0.01)
    hosts.cable.cut = [True, True]
    return ended(hosts, r"rank 1 \(bhost", r"rank 0 \(ahost", statuses=((75, 75),))


@case("25 ms each way, one frame of a hundred lost")
def slow_and_lossy(hosts, reference):
    hosts.cable.delay, hosts.cable.loss = 0.025, 0.01
    both(hosts)
    return good(hosts, reference)


@case("a firewall lets through only the ports that docs/launching.md names")
def named_ports(hosts, reference):
    low, high = FREE_PORTS
    for name in NAMES:
        subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                name,
                "sysctl",
                "-qw",
                f"net.ipv4.ip_local_port_range={low} {high}",
            ],
            check=True,
        )
    hosts.cable.ports = lambda port: PORT <= port < PORT + 16 or low <= port <= high
    both(hosts)
    return good(hosts, reference)


@case("the firewall lets through only the meeting's ports")
def unnamed_ports(hosts, _):
    hosts.cable.ports = lambda port: PORT <= port < PORT + 16
    both(hosts)
    return ended(hosts, r"rank 1 \(bhost, cpu\): no connection within", r"no connection within")


@case("IPv6 only")
def ipv6(hosts, reference):
    both(hosts)
    return good(hosts, reference)


@case("--save is a folder of each host's own")
def save_not_shared(hosts, _):
    both(hosts, shared=False)
    begin = time.monotonic()
    statuses, right = ended(
        hosts, r"--save must be one", r"--save must be one", statuses=((1, 1),)
    )
    return statuses, right and time.monotonic() - begin < 60 and not hosts.read(0, "out").count(
        "iteration        1/"
    )


@case("the second host comes back without the folder that both shared")
def save_not_mounted(hosts, _):
    for side in (0, 1):
        hosts.start(side, "--exit-interval", "10")
    first = hosts.wait()
    hosts.start(0)
    hosts.start(1, shared=False)
    statuses, right = ended(
        hosts, r"--load must lead all", r"--load must lead all", statuses=((1, 1),)
    )
    return first + statuses, right and first == [75, 75]


@case("the dataset is missing on the second host")
def data_missing(hosts, _):
    hosts.start(0)
    hosts.start(1, "--data-path", hosts.folder + "/nowhere")
    return ended(hosts, r"nowhere", r"nowhere", statuses=((1, 1), (2, 2), (1, 2), (2, 1)))


@case("one rank on the first host, three on the second")
def unequal(hosts, _):
    hosts.start(0)
    hosts.start(1, ranks=3)
    return ended(
        hosts,
        r"start as many processes",
        r"start as many processes",
        statuses=((1, 1), (1, 2), (2, 1), (2, 2)),
    )


@case("RANK=0 on both")
def two_rank_zero(hosts, _):
    hosts.start(0)
    hosts.start(1, rank=0)
    return ended(hosts, r"rank 0 .* has come twice", r"rank 0 .* has come twice")


@case("MASTER_ADDR is docker0 of each host")
def docker0(hosts, _):
    for name in NAMES:
        ip("-n", name, "link", "add", "docker0", "type", "dummy", check=False)
        ip("-n", name, "link", "add", "docker0", "type", "bridge", check=False)
        ip("-n", name, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        ip("-n", name, "link", "set", "docker0", "up")
    hosts.address = "172.17.0.1"
    both(hosts)
    return ended(hosts, r"is docker0 of ahost", r"that address is docker0 of bhost itself")


@case("the second host loses power in the steps, and comes back; the same command on both")
def reboot(hosts, reference):
    both(hosts)
    hosts.step(12)
    hosts.cable.cut = [True, True]  # a machine without power closes nothing.
    hosts.kill(1)
    first = hosts.running[0].wait(60)
    hosts.cable.cut = [False, False]
    both(hosts)
    statuses, right = good(hosts, reference)
    return [first] + statuses, right and first == 75


AGAIN = ("--max-restarts", "3")


def both_again(hosts, *more, iterations=400):
    for side in (0, 1):
        hosts.start(side, *AGAIN, *more, iterations=iterations)


def good_again(hosts, side=None):
    """Whether both ended normally; the other side than `side`, or both, restarted by themselves."""
    statuses = hosts.wait()
    restarted = all(
        "restart 1 of 3" in hosts.read(other, "err") for other in (0, 1) if other != side
    )
    return statuses, statuses == [0, 0] and restarted


@case("--max-restarts: cut for 20 s in the steps, longer than the hang's timeout")
def restart_cut_20s(hosts, _):
    both_again(hosts)
    hosts.step(12)
    hosts.cable.cut = [True, True]
    time.sleep(20)
    hosts.cable.cut = [False, False]
    return good_again(hosts)


def power_cycle(hosts, side, *more):
    both_again(hosts, *more)
    hosts.step(12)
    hosts.cable.cut = [True, True]
    hosts.kill(side)
    time.sleep(14)
    hosts.cable.cut = [False, False]
    hosts.start(side, *AGAIN, *more, iterations=400)
    return good_again(hosts, side)


@case("--max-restarts: the second host loses power in the steps, and comes back")
def restart_reboot(hosts, _):
    return power_cycle(hosts, 1)


@case("--max-restarts: rank 0's host loses power in the steps, and comes back")
def restart_reboot_first(hosts, _):
    return power_cycle(hosts, 0)


@case("--in-memory-checkpoint: the second host loses power, and gets its memory back")
def restart_memory(hosts, _):
    statuses, right = power_cycle(
        hosts, 1, "--in-memory-checkpoint", "2", "--save-interval", "100000"
    )
    return statuses, right and "in memory (in memory: step" in hosts.read(0, "err")


@case("--in-memory-checkpoint: rank 0's host loses power, and gets its memory back")
def restart_memory_first(hosts, _):
    statuses, right = power_cycle(
        hosts, 0, "--in-memory-checkpoint", "2", "--save-interval", "100000"
    )
    return statuses, right and "in memory (in memory: step" in hosts.read(0, "err")


def run_case(name, trainer, reference):
    about, function = CASES[name]
    folder = tempfile.mkdtemp(prefix="two_hosts.")
    write_dataset(folder + "/data")
    hosts = Hosts(trainer, folder, v6=name == "ipv6")
    begin = time.monotonic()
    try:
        statuses, right = function(hosts, reference)
        if name == "untouched":
            reference.update(hosts.losses())
            right = statuses == [0, 0]
        texts = [hosts.read(side, "err") for side in (0, 1)]
    finally:
        hosts.close()
    word = "as promised" if right else "NOT AS PROMISED"
    print(
        f"{name}: {about}: statuses {statuses}, {time.monotonic() - begin:.1f} s: {word}",
        flush=True,
    )
    if not right:
        for side, text in enumerate(texts):
            print(f"  host {'ab'[side]}: " + text[-1500:].replace("\n", "\n          "))
    shutil.rmtree(folder)
    return right


def main():
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        sys.exit("two_hosts.py TRAINER [--list] [CASE...]")
    if "--list" in words:
        for name, (about, _) in CASES.items():
            print(f"{name}: {about}")
        return
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        sys.exit("two_hosts.py: needs root and /dev/net/tun")
    names = words[1:] or list(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"two_hosts.py: no such case: {unknown[0]}; --list names them")
    reference = {}
    order = ["untouched"] + [name for name in names if name != "untouched"]
    results = [run_case(name, os.path.abspath(words[0]), reference) for name in order]
    print(
        f"{results.count(True)} of {len(results)} as promised; not tried here: clocks that differ "
        "(namespaces share the time of day)"
    )
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
