// copy_loops.hpp: copies for one instruction set, whole and in steps (simd_vector.hpp).
#pragma once
#include "src/base/small_copy.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/simd_vector.hpp"

namespace weft::internal {
namespace {

WEFT_INLINE void copy_lines(char* destination, const char* source, size_t lines, bool streaming) {
    constexpr int vectors = line_bytes / WEFT_VECTOR_BYTES;
    using V = Vector<char, WEFT_VECTOR_BYTES>;
    for (; lines; --lines, destination += line_bytes, source += line_bytes) {
        V value[vectors];
        for (int u = 0; u < vectors; ++u) value[u] = load<V>(source + u * sizeof(V));
        for (int u = 0; u < vectors; ++u) store(destination + u * sizeof(V), value[u], streaming);
    }
}

void copy(const CopyJob& job) {
    if (job.bytes <= 64) return copy_small(job.destination, job.source, job.bytes);
    if (job.destination == job.source) return;
    if (job.stores == Stores::ordinary || job.bytes < least_streamed_bytes) {
        __builtin_memcpy(job.destination, job.source, job.bytes);
        return;
    }
    auto* destination = static_cast<char*>(job.destination);
    auto* source = static_cast<const char*>(job.source);
    const size_t head = bytes_to_line(destination);
    copy_small(destination, source, head);
    const size_t lines = (job.bytes - head) / line_bytes;
    copy_lines(destination + head, source + head, lines, true);
    const size_t done = head + lines * line_bytes;
    copy_small(destination + done, source + done, job.bytes - done);
    fence_streaming();
}

// Runs copy jobs one after the other, in steps. The caller fences after the last step.
class CopySteps {
  public:
    WEFT_INLINE CopySteps(const CopyJob* jobs, int count) : jobs_(jobs), end_(jobs + count) {}

    // Copies `bytes` bytes, a multiple of a line, or the rest if that is less.
    WEFT_INLINE void advance(size_t bytes) {
        while (bytes && jobs_ != end_) {
            const bool streaming = jobs_->stores == Stores::streaming;
            auto* destination = static_cast<char*>(jobs_->destination) + done_;
            auto* source = static_cast<const char*>(jobs_->source) + done_;
            const size_t left = jobs_->bytes - done_;
            if (streaming && done_ == 0 && left > line_bytes && bytes_to_line(destination)) {
                done_ = bytes_to_line(destination);
                copy_small(destination, source, done_);
            } else if (left >= line_bytes) {
                const size_t step = (left < bytes ? left : bytes) / line_bytes * line_bytes;
                copy_lines(destination, source, step / line_bytes, streaming);
                done_ += step;
                bytes -= step;
            } else {
                copy_small(destination, source, left);
                ++jobs_;
                done_ = 0;
            }
        }
    }

  private:
    const CopyJob* jobs_;
    const CopyJob* end_;
    size_t done_ = 0;  // bytes of the first job
};

}  // namespace
}  // namespace weft::internal
