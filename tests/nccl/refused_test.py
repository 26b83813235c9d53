#!/usr/bin/env python3
# refused_test.py LIBRARY FUNCTIONS_DEF: every function that Weft does not support returns ncclInvalidUsage, in both
# spellings, and ncclGetLastError names it and says what to do. Arguments are zeros, so nothing may be read through them.
import ctypes
import re
import sys

INVALID_USAGE = 5


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclGetLastError.argtypes = [ctypes.c_void_p]
    with open(sys.argv[2]) as file:
        names = re.findall(r"^WEFT_NCCL_UNSUPPORTED\(\s*(\w+)", file.read(), re.M)
    wrong = []
    for name in names:
        for spelling in (f"nccl{name}", f"pnccl{name}"):
            code = getattr(library, spelling)(*[ctypes.c_void_p(0)] * 8)
            sentence = library.ncclGetLastError(None).decode()
            if code != INVALID_USAGE or not re.fullmatch(rf"nccl{name}: Weft does not support this function: .{{10,}}", sentence):
                wrong.append(f"{spelling} returns {code}, with the sentence: {sentence}")
    for line in wrong:
        print(line)
    print(f"{len(names)} functions are refused, {len(wrong)} wrongly")
    return bool(wrong) or not names


if __name__ == "__main__":
    sys.exit(main())
