// flush.hpp: makes visible to a GPU's kernels what a device has written to its memory. A completion may reach the
// processor earlier than the data reach the GPU. A read by the same device pushes earlier writes ahead of it.
#pragma once
#include <memory>
#include <vector>

#include "src/drivers/verbs/queue_pair.hpp"
#include "transports/verbs/flows.hpp"

namespace weft::internal::verbs {

// A queue pair of a device that is connected to itself, with a completion queue of its own. Made on the service thread,
// connected on a thread that may block; then it belongs to the thread that drives the link.
class FlushPair {
  public:
    // verbs.call, verbs.memlock.
    static Result<std::unique_ptr<FlushPair>> make(const Device& device, int port, int pkey_index);
    // `own`: a path end of the port, with a GID. May block for seconds.
    Status connect(const PathEnd& own, const PathOptions& path);

    // Posts a read of one byte of registered device memory. Only one is on its way at a time.
    Status begin(uint64_t address, uint32_t key);
    // True: the read is complete.
    Result<bool> ended();

  private:
    FlushPair() = default;
    alignas(64) std::byte target_[64] = {};
    std::unique_ptr<MemoryRegion> region_;  // of target_
    std::unique_ptr<CompletionQueue> queue_;
    std::unique_ptr<QueuePair> pair_;  // ends first
    PathEnd own_;
    PathOptions path_;
};

// The flushes of a link, by all its devices at once. A flush covers all messages that arrived before it began, of all
// connections. Thread-bound to the thread that drives the link.
class Flushes {
  public:
    // `device`: in Devices::all(). `own`: the port, with a GID.
    void add(std::unique_ptr<FlushPair> pair, size_t device, const PathEnd& own) {
        pairs_.push_back({std::move(pair), device, own});
    }
    // As FlushPair::connect().
    Status connect(const PathOptions& path);
    // The message is complete.
    void arrived(Arrival& arrival) { arrival.order = ++arrivals_; }
    // Whether kernels see a message that has arrived. If not, a flush is on its way, or this call begins one. verbs.call,
    // verbs.completion; verbs.broken: a device does not answer.
    Result<bool> shows(Incoming& incoming, uint64_t message);
    // Waits up to a second until no read is on its way: the memory that it reads may end then.
    void settle();

  private:
    struct OfDevice {
        std::unique_ptr<FlushPair> pair;
        size_t device;
        PathEnd own;
    };
    Status collect();
    Status advance(uint64_t wanted, const Registered& memory);

    std::vector<OfDevice> pairs_;
    uint64_t arrivals_ = 0;    // messages of all connections
    uint64_t covered_ = 0;     // of these, from the first, the messages that kernels see
    uint64_t covers_ = 0;      // those that the flush on its way will cover
    size_t on_their_way_ = 0;  // reads: those of the last pairs
    int64_t begun_us_ = 0;
};

}  // namespace weft::internal::verbs
