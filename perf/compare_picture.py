"""compare_picture: time over size, a panel for each rank count and a line for each library, as an SVG file."""
import io
import re
import sys

import checked_output

# The colours of Okabe and Ito, which colour-blind readers can distinguish. Weft's own line is thick.
LOOKS = {"weft": ("#d55e00", "o", "Weft"), "weft-hostalloc": ("#e69f00", "s", "Weft, weftHostAlloc"),
         "weft-bf16": ("#cc79a7", "D", "Weft, bfloat16"), "limit": ("#888888", None, "limit")}
OTHERS = (("#0072b2", "^"), ("#009e73", "v"), ("#56b4e9", "<"), ("#7a3e9d", ">"), ("#555555", "p"), ("#000000", "*"))


def pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"compare: --svg draws with matplotlib, which {sys.executable} lacks: apt-get install python3-matplotlib")
    # Text stays text, and ids do not depend on chance: the files are small and reproducible.
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "weft", "font.family": "sans-serif", "font.size": 9})
    from matplotlib import pyplot as plots
    return plots


def looks_of(names):
    """By name: colour, marker, caption. Weft's first, the limit last."""
    peers = sorted(name for name in names if name not in LOOKS)
    known = [name for name in LOOKS if name in names and name != "limit"]
    looks = {name: LOOKS[name] for name in known}
    looks.update({name: (*OTHERS[place % len(OTHERS)], name) for place, name in enumerate(peers)})
    return looks | {name: LOOKS[name] for name in ("limit",) if name in names}


def draw_panel(axes, rows, looks, ticks, ranks):
    for name, (colour, marker, caption) in looks.items():
        points = sorted((size, row[name]) for size, row in rows.items() if name in row)
        ours = name == "weft"
        axes.plot(*zip(*points) if points else ((), ()), color=colour, marker=marker, markersize=4, label=caption,
                  linewidth=2 if ours else 1.2, linestyle="--" if marker is None else "-", zorder=3 if ours else 2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=45)
    axes.yaxis.set_major_formatter(lambda us, place: f"{us:,g}")
    axes.minorticks_off()
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_title(f"{ranks} ranks", fontsize=10)
    axes.set_xlabel("bytes")


def draw(path, cells, title, size_text):
    """cells[ranks, bytes][library]: microseconds."""
    plots = pyplot()
    counts = sorted({ranks for ranks, _ in cells})
    sizes = sorted({size for _, size in cells})
    looks = looks_of({name for row in cells.values() for name in row})
    step = -(-len(sizes) // 10)  # so that labels do not touch each other
    ticks = {size: size_text(size) for size in sizes[::step]}
    figure, panels = plots.subplots(1, len(counts), sharey=True, squeeze=False,
                                    figsize=(max(6, 3.4 * len(counts)), 4.4))
    for ranks, axes in zip(counts, panels[0]):
        draw_panel(axes, {size: row for (n, size), row in cells.items() if n == ranks}, looks, ticks, ranks)
    panels[0][0].set_ylabel("us, log scale")
    figure.suptitle(title, fontsize=10)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="lower center", ncols=min(6, len(looks)), frameon=False)
    figure.tight_layout(rect=(0, 0.06 * -(-len(looks) // 6), 1, 1))
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", facecolor="white", metadata={"Date": None})
    try:
        checked_output.write_text(path, re.sub(r"\n +", "\n", drawn.getvalue()))
    except OSError as error:
        sys.exit(f"compare: {path} could not be written: {error.strerror}")
