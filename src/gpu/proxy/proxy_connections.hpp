// proxy_connections.hpp: the data path between the kernels of one rank and other hosts. Each end of a remote connection
// has words in pinned host memory, and the Sender or Receiver of a transport. The proxy (proxy.hpp) copies data between
// slots and transport. If the transport uses the slots itself, the proxy only says which of them are full or free.
// docs/design/gpu-domain.md (Between hosts) says which accesses pair. Never calls the driver.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/base/wakeups.hpp"
#include "src/gpu/domain/connections.hpp"
#include "src/gpu/kernels/kernel_end.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/segment.hpp"
#include "transports/transport.hpp"

namespace weft::internal::cuda {

// The rank's thread makes and fills it. From Proxy::attach() to detach() one thread at a time moves it, under the
// proxy's lock. launching(), captured(), waiting() and trouble() are thread-safe.
class ProxyConnections {
  public:
    // ended: by block of the rank's kernels (kernel_arguments.hpp).
    ProxyConnections(std::shared_ptr<Segment> group, int rank, const uint32_t* ended)
        : segment_(std::move(group)), rank_(rank), ended_(ended) {}
    // One of both is null. The caller owns them and the memory, and both must outlive this object. given_slots: the
    // transport uses the slots of the end (ConnectionOptions::slots).
    void add(const RemoteEnd& remote, Sender* sender, Receiver* receiver, bool given_slots = false) {
        channels_.push_back({remote.end, remote.wholes, sender, receiver, given_slots});
    }

    // Call it before a launch: kernels must be served until this many blocks have ended the launch.
    void launching(uint32_t launch, uint32_t blocks) {
        // pairs with Proxy::Loop::sleep()
        launched_.store(cuda::reporting_launch(launch, blocks), std::memory_order_seq_cst);
    }
    // Call it before a captured launch: its graph may be launched at any time from then on.
    void captured() { captured_.store(true, std::memory_order_seq_cst); }

    // Moves everything that can move once; false: nothing could.
    bool progress();
    // How often to poll: never; now and then, because graphs may be launched; often, because kernels run.
    enum class PollRate { idle, occasional, busy };
    PollRate poll_rate() const;
    // Whether all data from kernels is sent or cannot be sent. `but_for_departed`: data for ranks that left in order,
    // whose kernels may still want it, does not count.
    bool drained(bool but_for_departed = false) const;
    // Whether it is drained and no directly launched kernel runs.
    bool settled() const { return segment_->aborted() || (!working() && drained()); }
    // The descriptors that a sleeping proxy polls.
    void add_wakeups(Wakeups& wakeups) const;

    // The number of messages moved so far, and whether a kernel waits for one now.
    uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }
    bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
    // A broken connection that a kernel still needs.
    struct Trouble {
        int peer;
        weft::internal::Failure failure;
        int64_t since_us;
    };
    std::optional<Trouble> trouble() const;
    void give_up(std::string_view why) const {
        FailureRecord(*segment_).raise(error::memory_exhausted, rank_, why, {.rank = rank_});
    }

  private:
    struct ProxyChannel {
        ConnectionEnd end;
        uint64_t* wholes;
        Sender* sender;        // exactly one of the two
        Receiver* receiver;    // one of them
        bool given_slots;      // of the transport
        uint64_t next = 0;     // the number of messages that have passed
        uint64_t freed = 0;    // given slots: those of them whose slots may be filled again
        bool flowing = false;  // the sender still holds some of them
        bool broken = false;
        Status failure = {};

        std::byte* slot() const { return end.slots + size_t(next % end.depth) * end.slot_bytes; }
        bool handed_over() const;
        bool needed() const;
        Result<bool> send(const SlotInfo& info) const;
        Result<bool> receive(SlotInfo& info) const;
    };
    static Result<bool> take(ProxyChannel& channel);
    static Result<bool> give(ProxyChannel& channel);
    bool working() const;

    std::shared_ptr<Segment> segment_;
    int rank_;
    const uint32_t* ended_;
    std::vector<ProxyChannel> channels_;
    std::atomic<uint64_t> launched_{0};  // as reporting_launch()
    std::atomic<bool> captured_{false}, waiting_{false};
    std::atomic<uint64_t> moved_{0};
    mutable std::mutex mutex_;  // guards the field below
    std::optional<Trouble> trouble_;
};

}  // namespace weft::internal::cuda
