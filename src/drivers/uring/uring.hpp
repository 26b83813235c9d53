// uring.hpp: io_uring by liburing, opened at run time: reads and writes of files that the kernel makes in the background.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/result.hpp"

namespace weft::internal::uring {

// Bytes from `place` of a file into memory, or from memory to there.
struct Transfer {
    int file = -1;
    bool writes = false;
    std::byte* memory = nullptr;
    size_t bytes = 0;
    uint64_t place = 0;
};

// The bytes that a transfer has moved, or a negative errno value.
struct Completion {
    uint64_t tag;
    int64_t result;
};

// The queues between this process and the kernel. The memory of a transfer stays until its completion. Thread-bound.
class Ring {
  public:
    Ring() = default;
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    virtual ~Ring() = default;

    // At most `entries` are in progress.
    virtual Status submit(const Transfer& transfer, uint64_t tag) = 0;
    // Waits for the next transfer that ends.
    virtual Result<Completion> next() = 0;
};

// driver.missing: there is no liburing. system.call: the kernel or a container's filter refuses io_uring.
Result<std::unique_ptr<Ring>> make_ring(unsigned entries);

}  // namespace weft::internal::uring
