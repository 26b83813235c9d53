#!/usr/bin/env python3
# design.py [--check] FOLDER: writes the pictures of docs/design as SVG files to FOLDER (docs/pictures).
# With --check it writes nothing and fails if a file is stale.
import argparse
import sys
from pathlib import Path
from xml.sax.saxutils import escape

INK, FAINT, LINE = "#1b2733", "#5c6b7a", "#8896a5"
FILLS = {"client": "#f3f4f6", "call": "#dbe9fb", "plan": "#e3f3e1", "run": "#fdeccf", "base": "#ece7f6", "cold": "#fbe3e1"}


class Picture:
    def __init__(self, width, height, title):
        self.size = width, height
        self.parts = [f"<title>{escape(title)}</title>",
                      '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                      f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>',
                      f'<rect width="{width}" height="{height}" fill="white"/>']

    def text(self, x, y, words, size=12, anchor="middle", color=INK, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color}"{weight}>{escape(words)}</text>')

    def box(self, x, y, width, height, lines, fill="client", size=12, dashed=False):
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{FILLS[fill]}" stroke="{LINE}"{dash}/>')
        lines = [lines] if isinstance(lines, str) else lines
        first = y + height / 2 - (len(lines) - 1) * (size + 3) / 2 + size / 2 - 2
        for number, line in enumerate(lines):
            top = number == 0
            self.text(x + width / 2, first + number * (size + 3), line, size if top else size - 1, color=INK if top else FAINT, bold=top)

    def arrow(self, *points, dashed=False):
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.4" marker-end="url(#head)"{dash}/>')

    def line(self, *points, dashed=False):
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{LINE}"{dash}/>')

    def svg(self):
        width, height = self.size
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">')
        return "\n".join([head, *self.parts, "</svg>\n"])


def layers():
    """The rooms: a room includes what is below it, or to its right."""
    picture = Picture(760, 500, "The rooms of Weft in layers")
    rows = [
        ("client", [("perf, tools", "benchmarks, the command weft"), ("examples", "programs to read first")]),
        ("call", [("src/api", "checks arguments, maps errors")]),
        ("call", [("src/calls", "groups, prepared calls"), ("src/comm", "communicator: identity, abort"), ("src/streams", "host streams, turns")]),
        ("run", [("src/gpu", "device calls"), ("src/rma", "windows"), ("src/p2p", "send, receive"), ("src/planning", "Choice to Plan")]),
        ("run", [("src/executor, src/kernels", "runs a Plan"), ("src/peer_access", "reads peers' memory"), ("transports", "shm, tcp")]),
        ("plan", [("src/selector", "Operation to Choice"), ("algorithms", "Layout to Schedule"), ("topology", "machine as a graph"),
                  ("checker, simulator, msccl", "read a Schedule")]),
        ("base", [("src/launchers", "rank and size"), ("src/rendezvous", "how ranks meet"), ("src/control", "health between hosts"),
                  ("src/schedule", "instructions, Layout")]),
        ("base", [("src/segment", "shared memory of a host"), ("src/net", "sockets"), ("src/drivers", "CUDA, NVML, hwloc, verbs")]),
        ("base", [("src/base", "Result, log, options, types, clock, descriptors")]),
    ]
    y = 12
    for fill, rooms in rows:
        width = (736 - 10 * (len(rooms) - 1)) / len(rooms)
        for number, (name, caption) in enumerate(rooms):
            picture.box(12 + number * (width + 10), y, width, 42, [name, caption], fill)
        y += 53
    return picture


def call():
    """The life of a host collective."""
    picture = Picture(760, 540, "The life of a collective call on host memory")
    x, width = 40, 300
    steps = [
        ("call", "1  src/api: check handle and arguments", "Operation"),
        ("call", "2  src/calls, src/comm: turn, sequence number", "Operation, numbered"),
        ("call", "3  src/planning: look up the plan cache", ""),
        ("run", "7  src/comm, src/executor: position, buffers", "Run"),
        ("run", "8  src/executor: stage, post flags, poll, reduce", ""),
        ("run", "done: finish the position, return", ""),
    ]
    places = [14, 76, 138, 276, 338, 470]
    for (fill, name, value), y in zip(steps, places):
        picture.box(x, y, width, 40, name, fill, 11)
        if value:
            picture.text(x + width / 2 + 8, y + 55, value, 11, "start", FAINT)
    middle = x + width / 2
    for above, below in ((54, 76), (116, 138), (178, 276), (316, 338)):
        picture.arrow((middle, above), (middle, below))
    picture.text(middle + 8, 225, "hit: PreparedPlan", 11, "start", FAINT)
    cold = [("4  src/selector: predict, choose", "Choice"), ("5  algorithms: emit", "Schedule"), ("6  src/planning: connect, size", "Plan")]
    for number, (name, value) in enumerate(cold):
        y = 120 + number * 62
        picture.box(460, y, 270, 40, name, "plan", 11)
        picture.text(603, y + 55, value, 11, "start", FAINT)
        if number < 2:
            picture.arrow((595, y + 40), (595, y + 62))
    picture.arrow((x + width, 148), (460, 140))
    picture.text(400, 132, "miss", 11, color=FAINT)
    picture.arrow((460, 268), (x + width, 290))
    picture.box(460, 320, 270, 40, ["9  src/segment: spin, yield, sleep"], "base", 11)
    picture.box(460, 392, 270, 48, ["10  src/control: watchdog", "20 ms: deaths; 50 ms: mismatch, lateness"], "base", 11)
    picture.arrow((x + width, 346), (460, 334))
    picture.text(400, 330, "blocked", 11, color=FAINT)
    picture.arrow((460, 354), (x + width, 368))
    picture.arrow((595, 360), (595, 392))
    picture.arrow((460, 420), (x + width, 484), dashed=True)
    picture.text(372, 440, "error", 11, color=FAINT)
    picture.arrow((middle, 378), (middle, 470))
    picture.text(x, 530, "A plan-cache hit takes steps 1, 2, 3, 7 and 8 only.", 11, "start", FAINT)
    return picture


def flags():
    """A two-shot all-reduce of three ranks over the flag block."""
    picture = Picture(760, 260, "A two-shot all-reduce of one tile over the flag block")
    columns = [(110, 100, "stage"), (315, 110, "reduce own chunk"), (540, 110, "copy results out")]
    for rank in range(3):
        y = 34 + rank * 70
        shift = (0, 18, 8)[rank]
        picture.text(60, y + 24, f"rank {rank}", 12, bold=True)
        for x, width, name in columns:
            picture.box(x + shift, y, width + 28, 36, name, "run", 11)
        picture.line((90, y + 36), (745, y + 36))
    for x, above, below in ((268, "arrival flag", "wait for all arrival flags"), (486, "departure flag", "wait for all departure flags")):
        picture.line((x, 20), (x, 232), dashed=True)
        picture.text(x, 16, above, 11, color=FAINT)
        picture.text(x, 248, below, 11, color=FAINT)
    return picture


def hosts():
    """Three hosts with their segments and leaders."""
    picture = Picture(760, 330, "Hosts, segments, leaders and what travels between them")
    for number, (x, ranks) in enumerate(((20, "0 to 3"), (270, "4 to 7"), (520, "8 to 11"))):
        picture.box(x, 96, 220, 170, "", "client")
        picture.text(x + 110, 114, f"host {number}", 12, bold=True)
        picture.box(x + 14, 124, 192, 44, ["leader's service thread", "control connection, listener"], "base", 11)
        picture.box(x + 14, 204, 192, 50, [f"segment: ranks {ranks}", "rows, flags, heaps; mirrors of others"], "run", 11)
        picture.arrow((x + 70, 204), (x + 70, 168))
        picture.text(x + 64, 192, "doorbell", 10, "end", FAINT)
        picture.arrow((x + 150, 168), (x + 150, 204))
        picture.text(x + 156, 192, "mirrors", 10, "start", FAINT)
    picture.box(270, 12, 220, 44, ["root (rendezvous only)", "rank table to every leader"], "plan", 11)
    for x in (130, 380, 630):
        picture.line((380, 56), (x, 124), dashed=True)
    picture.arrow((284, 150), (226, 150))
    picture.arrow((534, 158), (500, 158), (500, 82), (130, 82), (130, 124))
    picture.text(256, 142, "tree", 10, color=FAINT)
    for left, right in ((200, 300), (450, 550)):
        picture.arrow((left, 254), (left, 296), (right, 296), (right, 254))
    picture.text(380, 316, "data connections: from rank to rank, one direction each", 11, color=FAINT)
    return picture


PICTURES = {"layers": layers, "call": call, "flag_block": flags, "hosts": hosts}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    stale = 0
    for name, draw in PICTURES.items():
        path, text = chosen.folder / f"design_{name}.svg", draw().svg()
        if not chosen.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what tools/pictures/design.py draws: run tools/pictures/design.py {chosen.folder}")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
