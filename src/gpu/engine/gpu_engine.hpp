// gpu_engine.hpp: the GPU of a rank: found when the communicator is made, joined with the GPUs of the other ranks, then
// used for calls on device memory. It hides CUDA from the communicator. A build without CUDA's headers has
// gpu_engine_without_cuda.cpp. Thread-bound to the rank unless stated otherwise.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/base/result.hpp"
#include "src/p2p/message_mark.hpp"
#include "src/p2p/peer_buffers.hpp"
#include "src/planning/call_settings.hpp"
#include "src/planning/machines.hpp"
#include "src/rma/one_sided.hpp"
#include "src/segment/segment.hpp"
#include "src/selector/catalog.hpp"

namespace weft::internal {

namespace net {
struct Identity;
}

// Whether a plan exists for the collective on device memory: users can choose its algorithms.
constexpr bool has_device_form(Collective collective) {
    return collective >= Collective::all_reduce && collective <= Collective::scatter;
}

// A point-to-point message, or one of a collective with uneven parts.
struct DeviceMessage {
    int peer;
    bool outgoing;
    void* data;  // read only if outgoing
    uint64_t count;
    weftDataType_t type;
    MessageCaller by;
    bool mapped;  // see BufferPlacement
};

// A weftAlltoAllv with counts in device memory.
struct CountedMessages {
    const CountsOnDevice* counts;
    const void* send;
    void* receive;
    weftDataType_t type;
    bool mapped;  // see BufferPlacement
};

struct DeviceCall {
    Operation operation;  // without its choice
    const void* send;
    void* receive;
    const void* scalar;  // of a pre-multiplied sum
    void* stream;
    bool mapped;            // see BufferPlacement
    bool scalar_on_device;  // the kernel reads it; otherwise it is read at once
    CallSettings settings;
};

// A one-sided call. Its data and its window are device memory.
struct DeviceAccess {
    OneSidedCall call;
    void* stream;
    CallSettings settings;
};

// A buffer of a call, as far as the rank has data in it.
struct DeviceSpan {
    const void* address;
    size_t bytes;
};

// The same with the name of the argument.
struct DeviceArgument {
    const char* name;
    DeviceSpan span;
};

struct BufferPlacement {
    Space space;
    bool mapped;  // both are cuMemAlloc or weftMemAlloc memory: all devices with peer access can access it
};

class GpuEngine {
  public:
    // The device: a number, the one of the calling thread's current context, or none.
    static constexpr int current = -1, no_device = -2;
    // Null: the process has not initialised CUDA, and Weft does not do it either. An engine may have no usable device:
    // a call that needs it reports the reason. Fails for a number without a device.
    static Result<std::unique_ptr<GpuEngine>> find(int which);
    // Why find() usually finds none: "this communicator has no device, for ...".
    static const char* why_none();
    ~GpuEngine();

    // For the other ranks, before they meet.
    DeviceFacts facts() const;
    // The ranks have met, and advance() makes the shared resources. identity: of the communicator; null if its ranks
    // are on one host. timeout_ms: for joining; 0: none.
    void meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
              std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines);
    // One step of joining, without blocking. True when the support of device memory is decided. The caller must report
    // a failure to the other ranks.
    Result<bool> advance();
    // Called before the first call. timeout_ms: for operations.
    Status begin(int64_t timeout_ms);

    // Whether calls on device memory are staged through host memory, because kernels cannot run for all ranks. Equal on
    // all ranks once they have met.
    bool copies() const;
    // copy_in() copies the data that a call reads to the host. It runs after the stream's work so far. copied() maps a
    // device address to the host copy. copy_out() copies the results back. Both wait for their copies. There are two at a
    // time: for a call, and for the messages beside it. After a refusal (weftInvalidUsage or weftInvalidArgument)
    // nothing has begun.
    enum class Copied { call, messages };
    Status copy_in(Copied which, std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes, void* stream);
    void* copied(Copied which, const void* on_device) const;
    Status copy_out(Copied which);
    uint64_t copied_bytes() const;  // of host memory, kept for the next calls

    // Waits for the kernels of this rank's calls, at most two seconds after an abort.
    void finish() const;

    // The memory of a call's buffers, and whether it is supported. A call with one buffer passes it twice. Without
    // bytes and buffers a stream means device memory. It asks the driver each time, because freed memory may have been
    // allocated again.
    Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive, const void* stream);
    // The bytes from the argument to the end of its allocation on this rank's device, or UINT64_MAX if unknown. Fails
    // for other memory, and if the argument is longer.
    Result<uint64_t> room(const DeviceArgument& argument);
    // The settings of calls with this number (CallSettings): algorithms, as in WEFT_ALGO, out of those of the
    // communicator, and a number of channels; 0: all.
    void prefer(uint8_t preference, const std::string& algo, int channels);
    // A call has two steps. prepare() may refuse it, and a refused call does not count. launch() enqueues it.
    Status prepare(const DeviceCall& call);
    const Operation& prepared() const;  // including its choice
    Status launch(const DeviceCall& call);
    // Whether adjacent all-reduces of a group may share one kernel. The kernel executes each as if alone, so ranks need
    // not agree on it. If one is refused, all are, and the caller can make them one by one. All have the same stream,
    // type, reduction and settings, and no call uses a buffer that another one writes.
    bool joins() const;
    Status prepare_coalesced(std::span<const DeviceCall> calls);
    const Operation& prepared_coalesced(size_t place) const;
    Status launch_coalesced(std::span<const DeviceCall> calls);
    // All messages of a group, in one kernel, with the same two steps.
    Status prepare_messages(std::span<const DeviceMessage> messages, void* stream);
    Status prepare_messages(const CountedMessages& messages, void* stream);
    Status launch_messages(void* stream, const CallSettings& settings);

    // ---- Windows of device memory, by their numbers, which are equal on all ranks (docs/design/rma.md).
    // Whether device memory can be part of a window. `mapped`: see BufferPlacement.
    Status fits_window(const void* address, size_t bytes, bool mapped) const;
    // open_window() exports our part, if it has bytes. reach_window() is called when all parts are known: true if our
    // kernels can address them. A failure is this rank's own.
    Status open_window(uint32_t number, void* address, size_t bytes, WindowPart& part);
    Result<bool> reach_window(uint32_t number, std::span<const WindowPart> parts);
    std::vector<int> window_missing(uint32_t number) const;  // see DeviceWindows
    // Called when no kernel uses the window any more. When window_closed() is true, no rank maps our part.
    void begin_to_close_window(uint32_t number);
    bool window_closed(uint32_t number);
    // Whether no directly launched kernel runs.
    bool idle() const;
    // A one-sided call, with the same two steps.
    Status prepare_access(const DeviceAccess& access);
    Status launch_access(const DeviceAccess& access);

    // Registers a buffer that the user will use often: other processes map it, so that it need not be staged. Empty: it
    // is host memory. no_entry: it is staged anyway, and the log has the reason.
    static constexpr int no_entry = -1;
    std::optional<int> register_buffer(const void* address, size_t bytes);
    // Waits for this rank's kernels, and up to two seconds until no rank maps the buffer. After weftTimeout it may be
    // called again.
    Status deregister_buffer(int entry);

    // Reports the failure of a kernel to all ranks. One load if there is none. Thread-safe.
    void look(bool may_wait) const;

    // Lines for users.
    std::string explain(const Operation& operation, uint8_t preference) const;
    uint64_t device_bytes() const;

  private:
    struct State;
    explicit GpuEngine(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace weft::internal
