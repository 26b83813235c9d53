#include "src/kernels/user_reduction.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/base/datatype.hpp"

namespace weft::internal {

namespace {

// A block of partial results that stays in the first-level cache from one source to the next.
constexpr size_t block_bytes = 8 << 10;

class InFunction {
  public:
    explicit InFunction(std::atomic<int64_t>* since_us) : since_us_(since_us) {
        if (since_us_) since_us_->store(now_us(), std::memory_order_relaxed);
    }
    ~InFunction() {
        if (since_us_) since_us_->store(0, std::memory_order_relaxed);
    }
    InFunction(const InFunction&) = delete;

  private:
    std::atomic<int64_t>* since_us_;
};

void combine_all(const UserReduction& by, const ReduceJob& job) {
    const size_t element = size_of(by.type);
    const auto call = [&](const void* left, const void* right, void* result, size_t count) {
        by.function(left, right, result, count, by.type, by.context);
    };
    const auto source = [&](int i, size_t at) { return static_cast<const std::byte*>(job.sources[i]) + at * element; };
    const auto hand_out = [&](int first, size_t at, const void* result, size_t count) {
        for (int i = first; i < job.destination_count; ++i) {
            std::byte* const to = static_cast<std::byte*>(job.destinations[i]) + at * element;
            if (to != result) memcpy(to, result, count * element);
        }
    };
    if (job.source_count == 1) return hand_out(0, 0, job.sources[0], job.count);
    if (job.source_count == 2) {
        call(job.sources[0], job.sources[1], job.destinations[0], job.count);
        return hand_out(1, 0, job.destinations[0], job.count);
    }
    alignas(64) std::byte partial[block_bytes];
    for (size_t at = 0; at < job.count; at += block_bytes / element) {
        const size_t count = std::min(block_bytes / element, job.count - at);
        call(source(0, at), source(1, at), partial, count);
        for (int i = 2; i < job.source_count; ++i) call(partial, source(i, at), partial, count);
        hand_out(0, at, partial, count);
    }
}

}  // namespace

void reduce_by(const UserReduction& reduction, const ReduceJob& job) {
    if (job.count == 0) return;
    const InFunction inside(reduction.in_function_us);
    try {
        combine_all(reduction, job);
    } catch (const std::exception& exception) {
        throw UserReductionFailed(exception.what());
    } catch (...) {
        throw UserReductionFailed("no std::exception");
    }
}

}  // namespace weft::internal
