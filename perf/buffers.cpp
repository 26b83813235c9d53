// buffers.cpp: allocation on which all ranks agree.
#include "buffers.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace perf {

Buffers::Buffers(Rank& rank, const Layout& layout) : rank_(rank), layout_(layout) {
    const size_t bytes = layout.offset + layout.bytes + guard_bytes;
    std::string shortage;
    for (void*& memory : memory_) {
        if (!layout.registered)
            memory = std::malloc(bytes);
        else if (weftMemAlloc(&memory, bytes) != weftSuccess)
            shortage = weftGetLastError(nullptr);
        if (!memory && shortage.empty()) shortage = fmt::format("malloc cannot give {} bytes", bytes);
        if (!shortage.empty()) break;
    }
    if (rank.combine(shortage.empty() ? 1 : 0, weftMin) == 0) {
        release();
        throw Shortage{
            shortage.empty() ? "" : fmt::format("rank {}: no memory for its buffers: {}", rank.index(), shortage)};
    }
    // First touch here, not in a timed call.
    for (void* memory : memory_) std::memset(memory, 0xa5, bytes);
    for (int i = 0; i < 2 && layout.registered; ++i)
        rank.expect(weftCommRegister(rank.comm(), memory_[i], bytes, &handles_[i]), "weftCommRegister");
}

Buffers::~Buffers() { release(); }

void Buffers::release() {
    for (int i = 0; i < 2; ++i) {
        if (handles_[i]) weftCommDeregister(rank_.comm(), handles_[i]);
        if (layout_.registered)
            weftMemFree(memory_[i]);
        else
            std::free(memory_[i]);
        memory_[i] = handles_[i] = nullptr;
    }
}

size_t Buffers::total_bytes(const Layout& layout) {
    return layout.bytes > SIZE_MAX / 4 ? SIZE_MAX : 2 * (layout.offset + layout.bytes + guard_bytes);
}

size_t available_memory() {
    std::ifstream file("/proc/meminfo");
    std::string name, unit;
    size_t kib = 0;
    while (file >> name >> kib) {
        if (name == "MemAvailable:") return kib * 1024;
        std::getline(file, unit);
    }
    return 0;
}

}  // namespace perf
