"""Compiles fake_device.cpp for the torch of this Python: build.py WEFT_TORCH_FOLDER SOURCE OUTPUT FLAGS..."""

import subprocess
import sys

folder, source, output, *flags = sys.argv[1:]
sys.path.insert(0, folder)
import _build  # noqa: E402  # the compiler's command

subprocess.run(
    _build.command("fake_device_extension", [*flags, source, "-o", output, "-ldl"], "-O1"), check=True
)
