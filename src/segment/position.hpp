// position.hpp: the last call that a rank entered and the last that it finished, in shared memory.
// The rank's thread writes it at each call, into a line that stays in its cache. Other ranks read it only after a long
// wait or when a call does not match.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "src/base/operation.hpp"

namespace weft::internal {

struct alignas(64) Position {
    std::atomic<uint64_t> entered;   // sequence number of the last call entered; release, pairs with read()
    std::atomic<uint64_t> finished;  // sequence number of the last call finished
    std::atomic<uint64_t> words[4];  // the Operation of `entered`

    struct Report {
        uint64_t entered, finished;
        Operation operation;
        bool inside() const { return entered != finished; }
    };

    void enter(uint64_t sequence, const Operation& operation) {
        uint64_t raw[4];
        static_assert(sizeof raw >= sizeof operation);
        __builtin_memcpy(raw, &operation, sizeof operation);
        entered.store(0, std::memory_order_relaxed);  // not valid until the store below: readers retry
        std::atomic_thread_fence(std::memory_order_release);
        for (int i = 0; i < 4; ++i)
            words[i].store(i * 8 < int(sizeof operation) ? raw[i] : 0, std::memory_order_relaxed);
        entered.store(sequence, std::memory_order_release);
    }
    void finish(uint64_t sequence) { finished.store(sequence, std::memory_order_release); }

    // Empty while the rank is writing it. All zero before the first call.
    std::optional<Report> read() const {
        Report report;
        report.finished = finished.load(std::memory_order_acquire);
        report.entered = entered.load(std::memory_order_acquire);
        uint64_t raw[4];
        for (int i = 0; i < 4; ++i) raw[i] = words[i].load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (entered.load(std::memory_order_relaxed) != report.entered || (report.entered == 0 && raw[0] != 0))
            return {};
        __builtin_memcpy(static_cast<void*>(&report.operation), raw, sizeof report.operation);
        return report;
    }
};
static_assert(sizeof(Position) == 64);

}  // namespace weft::internal
