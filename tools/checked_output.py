# checked_output.py: checks the output of Weft's Python programs: a full disk gives a message and status 1.
import os
import sys
from pathlib import Path


def write_text(path, text):
    """In the place of what the file held, which stays as it was where not all of the text can be written."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def run(main):
    """Ends the process with main's status, as sys.exit takes it, or 1 if output is lost, 141 if nobody reads it."""
    name = Path(sys.argv[0]).stem
    try:
        try:
            status = main()
        finally:
            sys.stdout.flush()
    except OSError as error:
        # Python would flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(128 + 13)
        sys.exit(f"{name}: {error.filename or 'its output'}: {error.strerror}")
    sys.exit(status)
