"""compare_baseline: judges a build of Weft against an older build: a row for each collective, rank count and transport."""
import json
import statistics
import subprocess
import sys
import textwrap

# The builds' names in the JSON lines. Each round runs the old build twice: its two times show the noise.
OLD, NEW, AGAIN = "old", "new", "old-again"
BUILDS = (OLD, NEW, AGAIN)
MOST = 1.03  # the largest new/old ratio that passes if the old build's own ratio is smaller
# The build options that change its speed.
OPTIONS = ("optimization", "working_optimization", "debug", "b_lto", "b_ndebug", "b_sanitize", "cpp_args", "c_args")


def introspected(build, name):
    path = build / "meson-info" / name
    return json.loads(path.read_text()) if path.exists() else {}


def source_of(build):
    """The folder that this build folder compiles, or None."""
    return introspected(build, "meson-info.json").get("directories", {}).get("source")


def check_options(old, new):
    """Ends the program where the two builds would differ for another reason than their source."""
    values = [{option["name"]: option["value"] for option in introspected(build, "intro-buildoptions.json")} for build in (old, new)]
    differ = [f"{name} is {values[0][name]} and {values[1][name]}" for name in OPTIONS
              if name in values[0] and name in values[1] and values[0][name] != values[1][name]]
    if differ:
        sys.exit(f"compare: {old} and {new} are built with different options: {'; '.join(differ)}")


def check_programs(build, programs):
    missing = [name for name in ("tools/weft", *(f"perf/{program}" for program in programs)) if not (build / name).exists()]
    if missing:
        sys.exit(f"compare: {build} lacks {', '.join(missing)}: build these targets first")


def revision(source):
    git = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown" if source else "unknown"


class Row:
    """times[size][build] in us: of one collective, transport and rank count."""

    def __init__(self, times, wrong):
        self.wrong = wrong
        self.missing = [size for size in sorted(times) if any(build not in times[size] for build in BUILDS)]
        self.by_size = {size: row[NEW] / row[OLD] for size, row in times.items() if size not in self.missing}
        again = [times[size][AGAIN] / times[size][OLD] for size in self.by_size]
        self.new_over_old = statistics.geometric_mean(self.by_size.values()) if again else None
        self.old_over_old = statistics.geometric_mean(again) if again else None

    def verdict(self, size_text):
        if self.missing or not self.by_size:
            return "no result" + (f" at {', '.join(map(size_text, self.missing))}" if self.missing else "")
        if self.wrong:
            return "wrong result"
        spread = max(self.old_over_old, 1 / self.old_over_old)
        return "ok" if self.new_over_old <= max(MOST, spread) else "slower"

    def texts(self, size_text):
        verdict = self.verdict(size_text)
        marked = verdict if verdict == "ok" else f"**{verdict}**"
        if not self.by_size:
            return ["-", "-", "-", marked]
        worst = max(self.by_size, key=self.by_size.get)
        return [f"{self.new_over_old:.3f}", f"{self.old_over_old:.3f}", f"{self.by_size[worst]:.2f} at {size_text(worst)}", marked]


def report(rows, about, rounds, size_text):
    """(the table, whether every row is ok). rows[collective, ranks, transport]"""
    lines = [f"# {about.get('date', 'date unknown')}, a build against its baseline", "",
             *textwrap.wrap(f"Machine: {about.get('machine', 'unknown')}.", 100),
             f"New build: {about.get('weft', 'unknown')}; old build: {about.get('baseline', 'unknown')}.",
             f"`perf/compare --baseline`, {rounds} rounds; other guests took {about.get('stolen_percent', 'unknown')} % of the time.",
             f"A row is ok if new/old is at most {MOST}, or at most the spread of old/old.", "",
             "| collective | ranks | transport | new/old | old/old | worst size, new/old | verdict |", "|---|---|---|---|---|---|---|"]
    for (collective, ranks, transport), row in rows.items():
        lines.append("| " + " | ".join([collective, str(ranks), transport, *row.texts(size_text)]) + " |")
    failed = sum(row.verdict(size_text) != "ok" for row in rows.values())
    lines += ["", f"{len(rows) - failed} rows of {len(rows)} are ok."]
    return "\n".join(lines) + "\n", failed == 0
