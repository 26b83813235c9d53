"""hello_all_reduce.py: the shortest useful program in Python. Every rank contributes its number plus one."""
import array

import weft

with weft.init() as comm:
    x = array.array("f", [comm.rank + 1] * 4)
    comm.all_reduce(x)
    expected = comm.size * (comm.size + 1) / 2
    if list(x) != [expected] * 4:
        raise SystemExit(f"rank {comm.rank} has {list(x)}, not {expected}")
    if comm.rank == 0:
        print(f"the sum over {comm.size} ranks is {expected:g}")
