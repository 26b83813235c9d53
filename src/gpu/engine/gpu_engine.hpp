// gpu_engine.hpp: the GPU of a rank: found when the communicator is made, joined with those of the other ranks, given calls
// on device memory. The communicator knows no more of CUDA than this; a build without CUDA's headers has
// gpu_engine_without_cuda.cpp instead. Thread-bound to the rank, but for what says otherwise.
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

// Whether device memory is served by a plan: those for which users choose algorithms.
constexpr bool has_device_form(Collective collective) {
    return collective >= Collective::all_reduce && collective <= Collective::scatter;
}

// A message, by itself or of a collective of uneven parts.
struct DeviceMessage {
    int peer;
    bool outgoing;
    void* data;  // of what is sent only read
    uint64_t count;
    weftDataType_t type;
    MessageCaller by;
    bool mapped;  // see BufferPlacement
};

// A weftAlltoAllv whose counts are device memory.
struct CountedMessages {
    const CountsOnDevice* counts;
    const void* send;
    void* receive;
    weftDataType_t type;
    bool mapped;  // see BufferPlacement
};

struct DeviceCall {
    Operation operation;  // without choice
    const void* send;
    void* receive;
    const void* scalar;  // of a pre-multiplied sum
    void* stream;
    bool mapped;            // see BufferPlacement
    bool scalar_on_device;  // the kernel reads it; else it is read at once
    CallSettings settings;
};

// A one-sided call; its data is device memory, and so is its window.
struct DeviceAccess {
    OneSidedCall call;
    void* stream;
    CallSettings settings;
};

// A buffer of a call: what the rank has of it.
struct DeviceSpan {
    const void* address;
    size_t bytes;
};

// The same with what the user calls it.
struct DeviceArgument {
    const char* name;
    DeviceSpan span;
};

struct BufferPlacement {
    Space space;
    bool mapped;  // both buffers are of cuMemAlloc or Weft: kernels of every device with peer access reach them
};

class GpuEngine {
  public:
    // Which device: a number, the one whose context is current in the calling thread, or none.
    static constexpr int current = -1, no_device = -2;
    // Null: the process has not initialised CUDA, and it is not done here. Else there may be a device or not: what
    // stands in the way is told when a call would need it. Fails for a number that is no device's.
    static Result<std::unique_ptr<GpuEngine>> find(int which);
    // Why find() usually finds none: "this communicator has no device, for ...".
    static const char* why_none();
    ~GpuEngine();

    // For the other ranks, before they meet.
    DeviceFacts facts() const;
    // The ranks have met: from here on advance() makes what they have in common. identity: of the communicator, null
    // if its ranks are on one host. timeout_ms: of joining; 0: never.
    void meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
              std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines);
    // One step; true when it is known whether device memory is served. Waits for nobody. A failure is to be told to
    // the others.
    Result<bool> advance();
    // Calls may come. timeout_ms: of an operation.
    Status begin(int64_t timeout_ms);

    // Whether kernels cannot run for all ranks, and calls on device memory are the host's, on copies. Alike on all ranks,
    // once they have met.
    bool copies() const;
    // Behind the stream's work so far, what a call reads is copied to the host, where copied() finds what lay at an
    // address; then what it has written is copied back. Both wait for the copies. Two at a time: of a call, and of the
    // messages beside it. What is refused, weftInvalidUsage or weftInvalidArgument, leaves nothing begun.
    enum class Copied { call, messages };
    Status copy_in(Copied which, std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes, void* stream);
    void* copied(Copied which, const void* on_device) const;
    Status copy_out(Copied which);
    uint64_t copied_bytes() const;  // of the host's memory, that stay for the next calls

    // Waits for the kernels of this rank's calls; after an abort, two seconds at most.
    void finish() const;

    // Where a call's buffers lie, and whether that can be served; who has one alone passes it twice. With no bytes and
    // no buffers a stream says that it is device memory. Asks the driver each time: device memory may have been freed
    // and be another's by now.
    Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive, const void* stream);
    // How many bytes there are of the memory of this rank's device that the argument lies in, from its begin on, as far
    // as that is known. Fails if it is other memory, or ends earlier.
    Result<uint64_t> room(const DeviceArgument& argument);
    // What calls with this number ask for (CallSettings): algorithms, as WEFT_ALGO, of those that the communicator has, and
    // so many channels; 0: as many as it has.
    void prefer(uint8_t preference, const std::string& algo, int channels);
    // Two steps of a call: what may be refused, which does not count as a call; then the launch.
    Status prepare(const DeviceCall& call);
    const Operation& prepared() const;  // with its choice
    Status launch(const DeviceCall& call);
    // Whether neighbouring all-reduces of a group may go in one kernel. Each is carried out there as by a kernel of its
    // own, so that ranks need not agree on it; what is refused is refused for all, and they can be called by themselves.
    // All are of one stream, type, reduction and settings, and none uses what another one writes.
    bool joins() const;
    Status prepare_coalesced(std::span<const DeviceCall> calls);
    const Operation& prepared_coalesced(size_t place) const;
    Status launch_coalesced(std::span<const DeviceCall> calls);
    // Messages of one group, any number to and from any ranks, in one kernel. Two steps likewise.
    Status prepare_messages(std::span<const DeviceMessage> messages, void* stream);
    Status prepare_messages(const CountedMessages& messages, void* stream);
    Status launch_messages(void* stream, const CallSettings& settings);

    // ---- Windows of device memory, by the numbers that they have on all ranks (docs/design/rma.md).
    // Why device memory cannot be in one; ok if it can. `mapped`: see BufferPlacement.
    Status fits_window(const void* address, size_t bytes, bool mapped) const;
    // Our part, if it has bytes, for the others to be told where they find it. A failure is this rank's own, as of
    // reach_window(): whether it is known where our kernels find the others' parts, all of which have been told.
    Status open_window(uint32_t number, void* address, size_t bytes, WindowPart& part);
    Result<bool> reach_window(uint32_t number, std::span<const WindowPart> parts);
    std::vector<int> window_missing(uint32_t number) const;  // see DeviceWindows
    // Nobody's kernels use it any more; when it is closed nobody maps our part.
    void begin_to_close_window(uint32_t number);
    bool window_closed(uint32_t number);
    // No kernel that was launched directly runs.
    bool idle() const;
    // A one-sided call, in two steps as others: its arguments, which may be refused, then the launch.
    Status prepare_access(const DeviceAccess& access);
    Status launch_access(const DeviceAccess& access);

    // The user will call with this buffer often: other processes map it, so that it need not be staged. Nothing: it is
    // host memory; no_entry: it is staged all the same, as the log says.
    static constexpr int no_entry = -1;
    std::optional<int> register_buffer(const void* address, size_t bytes);
    // Waits for this rank's kernels, and two seconds until nobody maps the buffer any more; weftTimeout: some do, and
    // it may be called again.
    Status deregister_buffer(int entry);

    // Tells all ranks if a kernel has failed. A load if none has; thread-safe.
    void look(bool may_wait) const;

    // Lines for people.
    std::string explain(const Operation& operation, uint8_t preference) const;
    uint64_t device_bytes() const;

  private:
    struct State;
    explicit GpuEngine(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace weft::internal
