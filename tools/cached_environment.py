"""cached_environment.py: whether a virtual environment in the cache can be used again."""
import re
import subprocess


def is_usable(folder, wanted, base):
    """It holds what is wanted, and `base`, a Python, is of the version that made it.

    After an upgrade of the system's Python the environment's interpreter is the new one, which finds no packages there.
    """
    try:
        complete, about = (folder / "complete").read_text(), (folder / "pyvenv.cfg").read_text()
    except OSError:
        return False
    maker = re.search(r"^version(?:_info)? *= *(\d+\.\d+)", about, re.M)
    tell = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run([base, "-c", tell], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return complete == wanted and maker is not None and maker[1] == version
