"""The command weft-run: `weft run` of this package's installation."""

import os
import shutil
import sys
import sysconfig


def command() -> str:
    """The command weft, beside this Python's other scripts or in PATH."""
    folders = [os.path.dirname(os.path.abspath(sys.argv[0])), sysconfig.get_path("scripts")]
    found = shutil.which("weft", path=os.pathsep.join(folders)) or shutil.which("weft")
    if not found:
        sys.exit("weft-run: the command weft is neither beside it nor in PATH. Install the package again.")
    return found


def main() -> None:
    found = command()
    os.execv(found, [found, "run", *sys.argv[1:]])
