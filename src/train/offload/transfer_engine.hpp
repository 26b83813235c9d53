// transfer_engine.hpp: reads and writes of a file in the background, by io_uring or by threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/result.hpp"
#include "src/drivers/uring/uring.hpp"

namespace weft::internal::train {

using uring::Transfer;

// One transfer at a time in each slot. Its memory stays until wait(). Thread-bound.
class TransferEngine {
  public:
    TransferEngine() = default;
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;
    virtual ~TransferEngine() = default;

    virtual const char* name() const = 0;
    // Begins a transfer in a slot that has none.
    virtual Status begin(int slot, const Transfer& transfer) = 0;
    // Waits for the slot's transfer. The bytes that it moved, which may be fewer, or a negative errno value.
    virtual Result<int64_t> wait(int slot) = 0;
};

Result<std::unique_ptr<TransferEngine>> ring_engine(int slots);
// One thread reads, and one writes.
Result<std::unique_ptr<TransferEngine>> thread_engine(int slots);

}  // namespace weft::internal::train
