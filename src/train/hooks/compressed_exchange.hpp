// compressed_exchange.hpp: an all-reduce whose messages are compressed.
#pragma once
#include <cstddef>
#include <span>

#include "src/base/result.hpp"
#include "src/train/flat_buffer.hpp"
#include "src/train/hooks/hook_worker.hpp"

namespace weft::internal::train {

class Peers;

// The part of `count` numbers that a rank adds up.
struct NumberRange {
    size_t begin = 0, count = 0;
};
NumberRange part_of(size_t count, int ranks, int rank, size_t unit);

// Two steps: each rank receives its part from all ranks and adds that up in float32; then all ranks receive the sums.
// Keeps its messages' memory, which is the worker's. Thread-bound.
class CompressedExchange {
  public:
    // `numbers` become the sum over all ranks divided by `divisor`; all ranks get the same bits. If they are not empty:
    // `own_error` becomes the numbers less what was sent of them. `sum_error`, of this rank's part, is added to the
    // part's result, and becomes that less what was sent of it. On a device the work is enqueued.
    Status run(const Peers& peers, HookWorker& worker, const MessageForm& form, double divisor,
               std::span<float> numbers, std::span<float> own_error, std::span<float> sum_error);

  private:
    Status add_up(const Peers& peers, HookWorker& worker, const MessageForm& form, size_t bytes, std::span<float> sum);
    float* decoded() const { return reinterpret_cast<float*>(decoded_.data()); }

    FlatBuffer sent_, received_, sum_, decoded_;
};

}  // namespace weft::internal::train
