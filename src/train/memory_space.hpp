// memory_space.hpp: where a training object's memory lies, and the copies there: host memory, or one CUDA device.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "src/base/result.hpp"
#include "weft/types.h"

namespace weft::internal::train {

struct WholeNumbers;

// A place in the own stream's work, which callers' streams can wait for.
class StreamPlace {
  public:
    StreamPlace() = default;
    StreamPlace(const StreamPlace&) = delete;
    StreamPlace& operator=(const StreamPlace&) = delete;
    virtual ~StreamPlace() = default;
};

// Bytes with pages. Thread-safe, except keep_pages().
class HeldMemory {
  public:
    size_t bytes() const { return bytes_; }
    size_t most_bytes() const { return most_bytes_; }
    void add(size_t bytes);
    void remove(size_t bytes) { bytes_ -= bytes; }
    // From now on memory is not discarded.
    void keep_pages() { keeps_pages_ = true; }
    bool keeps_pages() const { return keeps_pages_; }

  private:
    std::atomic<size_t> bytes_{0}, most_bytes_{0};
    bool keeps_pages_ = false;
};

// On a device all work is enqueued on a stream of its own, in the order of the calls. On the host it is done at once.
// Thread-bound.
class MemorySpace {
  public:
    MemorySpace() = default;
    MemorySpace(const MemorySpace&) = delete;
    MemorySpace& operator=(const MemorySpace&) = delete;
    virtual ~MemorySpace() = default;

    virtual bool on_device() const = 0;
    // -1: the host.
    virtual int device() const { return -1; }
    // For calls of weft.h.
    virtual weftStream_t stream() const = 0;
    virtual Status copy(void* to, const void* from, size_t bytes) = 0;
    virtual Status zero(void* memory, size_t bytes) = 0;
    // Whether calls can use the caller's stream: one of the device's context that is not captured.
    virtual Status check(const char* function, weftStream_t callers) const = 0;
    // Before add(): a device may lack the kernels.
    virtual Status prepare_arithmetic() = 0;
    // to[i] += from[i], rounded to the type.
    virtual Status add(void* to, const void* from, size_t count, weftDataType_t type) = 0;
    // Whole numbers with a scale for each block, and back: codecs.hpp.
    virtual Status encode(const WholeNumbers& form, const float* numbers, size_t count, std::byte* message) = 0;
    virtual Status decode(const WholeNumbers& form, const std::byte* message, size_t count, float* numbers) = 0;
    // memory[i] times factor, divided by divisor, of which one is 1: rounded once.
    virtual Status scale(void* memory, size_t count, weftDataType_t type, double factor, double divisor) = 0;
    // to[i] = from[i]: between float32 or float64, which is rounded to float32 first, and float16 or bfloat16.
    virtual Status convert(void* to, weftDataType_t to_type, const void* from, weftDataType_t from_type,
                           size_t count) = 0;
    // Own work from now on waits for the work that the caller's stream has now.
    virtual Status follow(weftStream_t callers) = 0;
    // The caller's stream waits for the own work so far.
    virtual Status lead(weftStream_t callers) = 0;
    // Moves `place` behind the own work so far, and makes it at first. On the host there is nothing to wait for: null.
    virtual Status mark(std::unique_ptr<StreamPlace>& place) = 0;
    // The caller's stream waits for the own work before `place`, if there is one.
    virtual Status lead(weftStream_t callers, const StreamPlace* place) = 0;
    // By work on the caller's stream.
    virtual Status zero_for(weftStream_t callers, void* memory, size_t bytes) = 0;
    virtual Status synchronize() = 0;
    // The owner of memory, not zeroed on a device. pooled: from a device's pool if it has one, for discard().
    virtual Result<std::shared_ptr<void>> allocate(size_t bytes, bool pooled = false) = 0;
    // The owner of host memory, zeroed. On a device it is pinned, so that copies there do not block.
    virtual Result<std::shared_ptr<void>> allocate_on_host(size_t bytes) = 0;
    // Frees the pages of memory that allocate() has returned, which stays mapped. A device gives pooled memory back behind
    // the own work so far, and keeps other memory. Returns whether the memory is free.
    virtual bool discard(std::shared_ptr<void>& memory, size_t bytes) = 0;
    // For discarded memory: zeroed pages, or other memory of the pool. Without this call the first use of pages makes
    // them, or kills the process.
    virtual Status back(std::shared_ptr<void>& memory, size_t bytes) = 0;

    // The memory of FlatBuffers.
    HeldMemory& held() { return held_; }

  private:
    HeldMemory held_;
};

std::unique_ptr<MemorySpace> host_space();
Result<std::unique_ptr<MemorySpace>> device_space(int device);
// Copies between the device and host memory, whole pages, are fast while the owner lives.
Result<std::shared_ptr<void>> pin_for(int device, void* memory, size_t bytes);
// Whether calls on memory of the device can use the caller's stream: as MemorySpace::check.
Status check_device_stream(const char* function, int device, weftStream_t callers);
// The device that holds the memory; -1: host memory.
using DeviceFinder = std::function<Result<int>(const void* memory)>;
// For the addresses of one call: whether the process uses a driver is found once, which reads its memory map. Any device's
// context answers for all addresses: the thread's current one, or one in use. For one thread.
DeviceFinder device_finder();
// For one address.
inline Result<int> device_of(const void* memory) { return device_finder()(memory); }

}  // namespace weft::internal::train
