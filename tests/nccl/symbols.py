#!/usr/bin/env python3
# symbols.py LIBRARY [--must-object]
#
# Checks the dynamic symbol table of libnccl.so.2 against NCCL 2.32's: 96 weak functions, each with a strong twin whose
# name begins with p, and one more. Also the soname, and that symbols have no versions.
# The option --must-object is for libraries that are wrong.
import re
import subprocess
import sys

NAMES = """
GetVersion GetErrorString GetLastError ResetDebugInit SetEncryption
GetUniqueId CommInitRank CommInitRankConfig CommInitRankScalable CommInitAll CommFinalize CommDestroy CommAbort CommRevoke
CommSplit CommShrink CommGetUniqueId CommGrow CommGetAsyncError CommCount CommCuDevice CommUserRank CommSuspend CommResume
CommMemStats CommQueryProperties
MemAlloc MemFree CommRegister CommDeregister CommWindowRegister CommWindowDeregister WinGetUserPtr
RedOpCreatePreMulSum RedOpDestroy
Reduce Bcast Broadcast AllReduce ReduceScatter AllGather AlltoAll Gather Scatter
ReduceConfig BroadcastConfig AllReduceConfig ReduceScatterConfig AllGatherConfig AlltoAllConfig GatherConfig ScatterConfig
Send Recv PutSignal Signal WaitSignal
GroupStart GroupEnd GroupSimulateEnd
ParamBind ParamGetI8 ParamGetI16 ParamGetI32 ParamGetI64 ParamGetU8 ParamGetU16 ParamGetU32 ParamGetU64 ParamGetStr ParamGet
ParamGetParameter ParamGetAllParameterKeys ParamDumpAll
DevCommCreate DevCommDestroy GetLsaDevicePointer GetPeerDevicePointer GetMultimemDevicePointer GetLsaMultimemDevicePointer
GetPeerDeviceLeInfo GetMultimemDeviceLeInfo GetCftDeviceLeInfo TeamWorld TeamLsa TeamRail TeamCft TeamCftMultimem
TeamRankToWorld TeamRankToLsa LsaBarrierCreateRequirement GinBarrierCreateRequirement LLA2ACreateRequirement
GinInboxA2ACreateRequirement GinOutboxCreateRequirement LLA2ACalcSlots
""".split()
NEEDED = re.compile(r"(libweft|libc|libm|libstdc\+\+|libgcc_s|libpthread|librt|libdl|ld-linux[\w-]*)\.so\.\d+")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library = sys.argv[1]
    wanted = {f"nccl{name}": "W" for name in NAMES} | {f"pnccl{name}": "T" for name in NAMES} | {"ncclResetDebugInitInternal": "T"}
    assert len(wanted) == 193
    found = {line.split()[-1]: line.split()[-2] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    objections = [f"does not export {name}" for name in sorted(wanted.keys() - found.keys())]
    objections += [f"exports {name}" for name in sorted(found.keys() - wanted.keys())]
    objections += [f"exports {name} as {found[name]}, not {kind}" for name, kind in wanted.items() if found.get(name, kind) != kind]
    dynamic = output("readelf", "-d", library)
    if "soname: [libnccl.so.2]" not in dynamic:
        objections.append("is not named libnccl.so.2")
    objections += [f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic) if not NEEDED.fullmatch(name)]
    for objection in objections:
        print(f"{library} {objection}")
    print(f"{len(found)} symbols, {len(objections)} objections")
    return (not objections) if "--must-object" in sys.argv else bool(objections)


if __name__ == "__main__":
    sys.exit(main())
