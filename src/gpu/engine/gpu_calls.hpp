// gpu_calls.hpp: the interfaces of the parts of a GPU's engine (gpu_engine.hpp): collectives, messages, windows,
// staging and buffers. They hide CUDA from the communicator. Thread-bound to the rank.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/gpu/domain/multicast/multicast_entry.hpp"
#include "src/gpu/engine/device_calls.hpp"

namespace weft::internal {

// The device of a communicator: a number, the one of the calling thread's current context, or none.
inline constexpr int current_gpu = -1, no_gpu = -2;

// Collectives on device memory, by kernels. A call has two steps: prepare() may refuse it, and a refused call does not
// count; launch() enqueues it. Between them register_captured() is called.
class GpuCollectives {
  public:
    virtual ~GpuCollectives() = default;
    // The settings of calls with this number (CallSettings): algorithms out of those of the communicator, a number of
    // channels (0: all), and limits of blocks.
    virtual void prefer(uint8_t preference, const CallPreference& wanted) = 0;
    virtual Status prepare(const DeviceCall& call) = 0;
    virtual const Operation& prepared() const = 0;  // including its choice
    // Registers the buffers of a captured call behind the switch.
    virtual void register_captured(const DeviceCall& call) = 0;
    // Whether launch() should wait for that: a second at most, while other ranks register theirs.
    virtual bool awaits_switch() = 0;
    virtual Status launch(const DeviceCall& call) = 0;
    // Whether adjacent all-reduces of a group may share one kernel. The kernel executes each as if alone, so ranks need
    // not agree on it. If one is refused, all are, and the caller can make them one by one. All have the same stream,
    // type, reduction and settings, and no call uses a buffer that another one writes.
    virtual bool joins() const = 0;
    virtual Status prepare_coalesced(std::span<const DeviceCall> calls) = 0;
    virtual const Operation& prepared_coalesced(size_t place) const = 0;
    virtual Status launch_coalesced(std::span<const DeviceCall> calls) = 0;
};

// All messages of a group on device memory, in one kernel, with the same two steps.
class GpuMessages {
  public:
    virtual ~GpuMessages() = default;
    virtual Status prepare(std::span<const DeviceMessage> messages, void* stream) = 0;
    virtual Status prepare(const CountedMessages& messages, void* stream) = 0;
    virtual Status launch(void* stream, const CallSettings& settings) = 0;
};

// Windows of device memory, by their numbers, which are equal on all ranks (docs/design/rma.md), and one-sided calls on
// them, with the same two steps.
class GpuWindows {
  public:
    virtual ~GpuWindows() = default;
    // Whether device memory can be part of a window. `mapped`: see BufferPlacement.
    virtual Status fits(const void* address, size_t bytes, bool mapped) const = 0;
    // open() exports our part, if it has bytes. reach() is called when all parts are known: true if our kernels can
    // address them. A failure is this rank's own. missing(): the ranks that reach() or closed() waits for.
    virtual Status open(uint32_t number, void* address, size_t bytes, WindowPart& part) = 0;
    virtual Result<bool> reach(uint32_t number, std::span<const WindowPart> parts) = 0;
    virtual std::vector<int> missing(uint32_t number) const = 0;
    // When all ranks reach all parts: whether they try to put the window behind the switch (cuda::SwitchedWindows), equal
    // on all ranks. They exchange an entry each after every step; the first step has default entries. False: all
    // ranks know the outcome. A step may wait for the device.
    virtual bool switches(uint32_t number, std::span<const WindowPart> parts) = 0;
    virtual bool advance_switch(uint32_t number, std::vector<cuda::SwitchEntry>& entries) = 0;
    // Called when no kernel uses the window any more. When closed() is true, no rank maps our part.
    virtual void begin_to_close(uint32_t number) = 0;
    virtual bool closed(uint32_t number) = 0;
    virtual Status prepare(const DeviceAccess& access) = 0;
    virtual Status launch(const DeviceAccess& access) = 0;
};

// Staging of calls through host memory, if kernels cannot run for all ranks.
class GpuStaging {
  public:
    virtual ~GpuStaging() = default;
    // copy_in() copies the data that a call reads to the host. It runs after the stream's work so far. at() maps a
    // device address to the host copy. copy_out() copies the results back. Both wait for their copies. There are two at
    // a time: for a call, and for the messages beside it. After a refusal nothing has begun.
    enum class Copied { call, messages };
    virtual Status copy_in(Copied which, std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes,
                           void* stream) = 0;
    virtual void* at(Copied which, const void* on_device) const = 0;
    virtual Status copy_out(Copied which) = 0;
    virtual uint64_t bytes() const = 0;  // of host memory, kept for the next calls
};

// Collectives without kernels: streams copy by copy engines (docs/design/gpu-copies.md). The caller exchanges the ranks'
// offers, and prepares the call as one of kernels, which serve it if some rank refuses.
class GpuCopies {
  public:
    virtual ~GpuCopies() = default;
    // Whether ranks exchange offers for this call. Equal on all ranks.
    virtual bool wanted(const Operation& operation, const CallSettings& settings) = 0;
    virtual CopyOffer offer(const DeviceCall& call) = 0;
    // offers: by rank. Equal on all ranks.
    virtual bool agreed(const DeviceCall& call, std::span<const CopyOffer> offers) = 0;
    // fingerprint: of the prepared operation.
    virtual Status launch(const DeviceCall& call, std::span<const CopyOffer> offers, uint32_t fingerprint) = 0;
};

// The buffers of calls, and those that the user registers.
class GpuBuffers {
  public:
    virtual ~GpuBuffers() = default;
    // The memory of a call's buffers, and whether it is supported. A call with one buffer passes it twice. Without
    // bytes and buffers a stream means device memory. It asks the driver each time, because freed memory may have been
    // allocated again.
    virtual Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive,
                                                 const void* stream) = 0;
    // The bytes from the argument to the end of its allocation on this rank's device, or UINT64_MAX if unknown. Fails
    // for other memory, and if the argument is longer.
    virtual Result<uint64_t> room(const DeviceArgument& argument) = 0;
    // Registers a buffer that the user will use often: other processes map it, so that it need not be staged. Empty: it
    // is host memory. no_entry: it is staged anyway, and the log has the reason.
    static constexpr int no_entry = -1;
    virtual std::optional<int> add(const void* address, size_t bytes) = 0;
    // Waits for this rank's kernels, and up to two seconds until no rank maps the buffer. After weftTimeout it may be
    // called again.
    virtual Status remove(int entry) = 0;
};

}  // namespace weft::internal
