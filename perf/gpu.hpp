// gpu.hpp: the GPU of a rank, as a program that uses Weft would drive it: a context, a stream, memory, time by events.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "pattern.hpp"

namespace perf {

// Thread-bound to the rank's thread, in which its context is current. Whatever CUDA refuses is thrown as Failure.
class Gpu {
  public:
    // Makes the device the thread's current one, as a rank does before it joins. `legacy`: everything goes to the legacy
    // stream, which calls get as NULL.
    static std::unique_ptr<Gpu> use(int device, bool legacy = false);
    // How many there are; a Failure that says why there are none.
    static int count();
    ~Gpu();

    int device() const { return device_; }
    std::string name() const;  // "[0000:1b:00.0] NVIDIA H200"
    void make_current() const;
    void* stream() const;  // a weftStream_t

    void* allocate(size_t bytes);
    void free(void* memory);
    void to_device(void* to, const void* from, size_t bytes);  // done when it returns, after all work of the stream
    void to_host(void* to, const void* from, size_t bytes);    // likewise
    void synchronize();

    // Why it does not run the benchmarks' own kernels; empty: it does, and fill() and count_wrong() of pattern.hpp are
    // served in its memory. Done when they return, after all work of the stream.
    const std::string& no_kernels() const;
    void fill(void* buffer, size_t bytes, const Period& period);
    size_t count_wrong(const void* buffer, size_t bytes, const Period& period, size_t element_bytes);

    // Microseconds of what `enqueue` puts into the stream, by events around it; waits for its end.
    double time_us(const std::function<void()>& enqueue);

    // Captures what `enqueue` puts into the stream.
    void capture(const std::function<void()>& enqueue);
    void replay();  // enqueues what was captured last

  private:
    struct Parts;
    Gpu(int device, std::unique_ptr<Parts> parts);
    int device_;
    std::unique_ptr<Parts> parts_;
};

}  // namespace perf
