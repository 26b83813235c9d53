"""Loads the extension, and says in a sentence why it cannot be loaded."""

import atexit


def _refuse_sub_interpreter() -> None:
    try:
        import _interpreters as interpreters  # type: ignore[import-not-found]  # 3.13 and newer
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:
            return
    current = interpreters.get_current()
    number = current[0] if isinstance(current, tuple) else int(current)
    if number != 0:
        raise ImportError(
            f"weft does not run in sub-interpreter {number}, because its threads and signals belong to the process. "
            "Import it in the main interpreter. [python.sub-interpreter]"
        )


_refuse_sub_interpreter()
try:
    from . import _weft as _weft
except ImportError as error:
    # A symbol that an older library lacks, or the sentence of module.cpp.
    cause = error.__cause__ if error.__cause__ is not None else error
    if "undefined symbol: weft" in str(cause):
        raise ImportError(
            f"this package needs a newer libweft.so than the one that was loaded: {cause}. "
            "Remove the older one from LD_LIBRARY_PATH or LD_PRELOAD. [python.libweft]"
        ) from None
    if "[python.libweft]" in str(cause):
        raise ImportError(str(cause)) from None
    raise

# Communicators that live at the end of the program leave in order, so that other ranks do not wait for this one.
atexit.register(_weft.end_all)
