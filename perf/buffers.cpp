// buffers.cpp: allocates buffers; either all ranks succeed or none does.
#include "buffers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace perf {

namespace {

constexpr int symmetric = 1;  // NCCL's flag, which Weft accepts

// If the GPU has no memory left, the result is null and `shortage` holds the reason.
void* device_memory(Gpu& gpu, size_t bytes, std::string& shortage) {
    try {
        return gpu.allocate(bytes);
    } catch (const Failure& failure) {
        shortage = failure.what();
        return nullptr;
    }
}

}  // namespace

Buffers::Buffers(Rank& rank, const Layout& layout) : rank_(rank), layout_(layout) {
    const size_t bytes = layout.offset + layout.bytes + guard_bytes;
    std::string shortage;
    for (void*& memory : memory_) {
        if (!from_weft())
            memory = rank.gpu() ? device_memory(*rank.gpu(), bytes, shortage) : std::malloc(bytes);
        else if ((rank.gpu() ? weftMemAlloc : weftHostAlloc)(&memory, bytes) != weftSuccess)
            shortage = weftGetLastError(nullptr);
        if (!memory && shortage.empty()) shortage = fmt::format("{} bytes cannot be had", bytes);
        if (!shortage.empty()) break;
    }
    if (rank.combine(shortage.empty() ? 1 : 0, weftMin) == 0) {
        release();
        throw Shortage{shortage.empty()
                           ? ""
                           : fmt::format("rank {}: no memory for its buffers: {}; lower -e", rank.index(), shortage)};
    }
    // The first touch must not happen in a timed call.
    for (void* memory : memory_)
        if (!rank.gpu()) std::memset(memory, 0xa5, bytes);
    for (int i = 0; i < 2; ++i) {
        if (layout.registered == Registered::buffers)
            rank.expect(weftCommRegister(rank.comm(), memory_[i], bytes, &handles_[i]), "weftCommRegister");
        if (layout.registered == Registered::windows)
            rank.expect(weftCommWindowRegister(rank.comm(), memory_[i], bytes, &symmetric_[i], symmetric),
                        "weftCommWindowRegister");
    }
    if (layout.window_of)
        rank.expect(layout.window_of->open_window(rank.comm(), memory_[receiving], bytes, &window_),
                    "lending the buffer");
    // Other processes map a GPU's memory within 0.1 s, and it comes behind the switch within 0.5 s. Until then, messages
    // go through staging buffers.
    if (layout.registered == Registered::buffers && rank.gpu())
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

Buffers::~Buffers() { release(); }

void Buffers::release() {
    if (window_) layout_.window_of->close_window(rank_.comm(), window_);
    window_ = nullptr;
    for (int i = 0; i < 2; ++i) {
        if (symmetric_[i]) (void)weftCommWindowDeregister(rank_.comm(), symmetric_[i]);
        symmetric_[i] = nullptr;
        if (handles_[i]) (void)weftCommDeregister(rank_.comm(), handles_[i]);
        if (from_weft())
            (void)weftMemFree(memory_[i]);
        else if (rank_.gpu())
            rank_.gpu()->free(memory_[i]);
        else
            std::free(memory_[i]);
        memory_[i] = handles_[i] = nullptr;
    }
}

void Buffers::write(Side side, size_t offset, size_t bytes, const Period& period) const {
    if (!rank_.gpu()) return fill(address(side) + offset, bytes, period);
    if (rank_.gpu()->no_kernels().empty()) return rank_.gpu()->fill(address(side) + offset, bytes, period);
    mirror_.resize(std::max(mirror_.size(), bytes));
    fill(mirror_.data(), bytes, period);
    rank_.gpu()->to_device(address(side) + offset, mirror_.data(), bytes);
}

size_t Buffers::wrong(Side side, size_t offset, size_t bytes, const Period& period, size_t element_bytes) const {
    const std::byte* looked_at = address(side) + offset;
    if (rank_.gpu() && rank_.gpu()->no_kernels().empty())
        return rank_.gpu()->count_wrong(looked_at, bytes, period, element_bytes);
    if (rank_.gpu()) {
        mirror_.resize(std::max(mirror_.size(), bytes));
        rank_.gpu()->to_host(mirror_.data(), looked_at, bytes);
        looked_at = mirror_.data();
    }
    return count_wrong(looked_at, bytes, period, element_bytes);
}

size_t Buffers::total_bytes(const Layout& layout) {
    return layout.bytes > SIZE_MAX / 4 ? SIZE_MAX : 2 * (layout.offset + layout.bytes + guard_bytes);
}

}  // namespace perf
