// gpu.hpp: the GPU of a rank, driven as a user's program drives it: a context, a stream, memory, and event times.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "pattern.hpp"

namespace perf {

// Thread-bound to the rank's thread, in which its context is current. A CUDA error is thrown as Failure.
class Gpu {
  public:
    // Makes the device current in the thread, as a rank does before it joins.
    // With `legacy`, all work goes to the legacy stream, which calls receive as NULL.
    static std::unique_ptr<Gpu> use(int device, bool legacy = false);
    // The number of GPUs. If there is none, throws Failure with the reason.
    static int count();
    ~Gpu();

    int device() const { return device_; }
    std::string name() const;  // "[0000:1b:00.0] NVIDIA H200"
    void make_current() const;
    void* stream() const;  // a weftStream_t

    void* allocate(size_t bytes);
    void free(void* memory);
    // returns when the copy is done, after all earlier work of the stream
    void to_device(void* to, const void* from, size_t bytes);
    // returns when the copy is done, after all earlier work of the stream
    void to_host(void* to, const void* from, size_t bytes);
    void synchronize();

    // The reason why this GPU does not run the benchmarks' own kernels; empty: it runs them.
    // With kernels, fill() and count_wrong() of pattern.hpp work in its memory. They return after all work of the
    // stream.
    const std::string& no_kernels() const;
    void fill(void* buffer, size_t bytes, const Period& period);
    size_t count_wrong(const void* buffer, size_t bytes, const Period& period, size_t element_bytes);

    // The microseconds between events around the work that `enqueue` adds to the stream; waits for its end.
    double time_us(const std::function<void()>& enqueue);

    // Captures the work that `enqueue` adds to the stream.
    void capture(const std::function<void()>& enqueue);
    void replay();  // enqueues the last captured graph

  private:
    struct Parts;
    Gpu(int device, std::unique_ptr<Parts> parts);
    int device_;
    std::unique_ptr<Parts> parts_;
};

}  // namespace perf
