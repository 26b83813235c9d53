// memory.cpp: memory that peers can map, registration of buffers, and the memory that a communicator uses.
#include <map>

#include "src/api/guard.hpp"
#include "src/comm/facts.hpp"
#include "src/gpu/engine/device_memory.hpp"
#include "src/segment/arena.hpp"
#include "weft/weft.h"

using namespace weft::internal;

extern "C" {

weftResult_t weftHostAlloc(void** ptr, size_t bytes) {
    return guarded([&]() -> Status {
        if (!ptr) return fail(error::argument_null, "weftHostAlloc: ptr is NULL");
        *ptr = nullptr;
        auto arena = Arena::get();
        if (!arena) return arena.take_status();
        auto memory = (*arena)->allocate(bytes);
        if (!memory) return memory.take_status();
        *ptr = *memory;
        return ok();
    });
}

weftResult_t weftMemAlloc(void** ptr, size_t bytes) {
    return guarded([&]() -> Status {
        if (!ptr) return fail(error::argument_null, "weftMemAlloc: ptr is NULL");
        *ptr = nullptr;
        auto memory = allocate_device_memory(bytes);
        if (!memory) return memory.take_status();
        *ptr = *memory;
        return ok();
    });
}

weftResult_t weftMemFree(void* ptr) {
    return guarded([&]() -> Status {
        if (!ptr || free_device_memory(ptr)) return ok();
        Arena* arena = Arena::existing();
        if (!arena)
            return fail(error::memory_not_allocated,
                        "{} was not allocated by weftHostAlloc or weftMemAlloc in this process", ptr);
        return arena->free(ptr);
    });
}

weftResult_t weftCommRegister(const weftComm_t comm, void* buff, size_t bytes, void** handle) {
    return guarded_comm(comm, [&]() -> Status {
        if (!handle || (!buff && bytes > 0))
            return fail(error::argument_null, "weftCommRegister: {} is NULL", handle ? "buff" : "handle");
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        *handle = comm->communicator->inputs().buffers.add(buff, bytes);
        return ok();
    });
}

weftResult_t weftCommDeregister(const weftComm_t comm, void* handle) {
    return guarded_comm(comm, [&]() -> Status {
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        return comm->communicator->inputs().buffers.remove(handle, !comm->communicator->calls().idle());
    });
}

weftResult_t weftCommMemStats(weftComm_t comm, weftMemStat_t stat, uint64_t* bytes) {
    return guarded_comm(comm, [&]() -> Status {
        if (!bytes) return fail(error::argument_null, "weftCommMemStats: bytes is NULL");
        Inside inside(comm);
        if (!inside.entered()) return inside.refused();
        const MemoryUse use = memory_use(*comm->communicator);
        switch (stat) {
            case weftMemFlagBlock: *bytes = use.flag_block; break;
            case weftMemConnection: *bytes = use.connections; break;
            case weftMemHeap: *bytes = use.heap; break;
            case weftMemDevice: *bytes = use.device; break;
            case weftMemTotal: *bytes = use.flag_block + use.connections + use.heap + use.device; break;
            default:
                return fail(error::argument_value, "weftCommMemStats: stat is {}; it must be 0 to {}", int(stat),
                            int(weftMemTotal));
        }
        return ok();
    });
}
}
