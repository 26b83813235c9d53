// proxy_connections.hpp: what goes between the kernels of one rank and other hosts: each end of a remote connection, in pinned
// host memory, with the Sender or Receiver of a transport that leads on. The proxy (proxy.hpp) moves it; what pairs
// with what is in docs/design/gpu-domain.md, Between hosts. Never calls the driver.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/gpu/domain/connections.hpp"
#include "src/segment/segment.hpp"
#include "transports/transport.hpp"

namespace weft::internal::cuda {

// Made and filled by the rank's thread; from Proxy::attach() to detach() moved by one thread at a time, under the
// proxy's lock. Launches, waiting() and trouble() are thread-safe.
class ProxyConnections {
  public:
    // ended: by block of the rank's kernels (kernel_arguments.hpp).
    ProxyConnections(std::shared_ptr<Segment> group, int rank, const uint32_t* ended)
        : segment_(std::move(group)), rank_(rank), ended_(ended) {}
    // Either is null. They are the caller's, as is the memory, and must outlive this.
    void add(const RemoteEnd& remote, Sender* sender, Receiver* receiver) {
        channels_.push_back({remote.end, remote.wholes, sender, receiver});
    }

    // Before a launch: kernels will want to be served until so many blocks have ended it.
    void launching(uint32_t launch, uint32_t blocks) {
        launched_.store(uint64_t(launch) << 32 | blocks, std::memory_order_seq_cst);  // pairs with Proxy::Loop::sleep()
    }
    // Graphs may be launched at any time from here on.
    void captured() { captured_.store(true, std::memory_order_seq_cst); }

    // One step of all that can move; false: nothing could.
    bool progress();
    // How often there is to be looked: never; now and again, for graphs may be launched; often, for kernels run.
    enum class PollRate { idle, occasional, busy };
    PollRate poll_rate() const;
    // Whether all that kernels have handed over is on its way, or cannot go, but for what is for ranks that have left
    // in order, whose kernels may still want it.
    bool drained(bool but_for_departed = false) const;
    // And no kernel that was launched directly runs.
    bool settled() const { return segment_->aborted() || (!working() && drained()); }
    // What a sleeper waits for, besides kernels.
    void add_descriptors(std::vector<pollfd>& list) const;

    // Messages moved so far, and whether a kernel waits for one now.
    uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }
    bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
    // A connection is broken over which something should go.
    struct Trouble {
        int peer;
        weft::internal::Failure failure;
        int64_t since_us;
    };
    std::optional<Trouble> trouble() const;
    void give_up(std::string_view why) const { segment_->raise(weftSystemError, rank_, why); }

  private:
    struct ProxyChannel {
        ConnectionEnd end;
        uint64_t* wholes;
        Sender* sender;        // or
        Receiver* receiver;    // one of them
        uint32_t next = 0;     // messages that went through
        bool flowing = false;  // the sender still holds some of them
        bool broken = false;
        Status failure = {};

        std::byte* slot() const { return end.slots + size_t(next % end.depth) * end.slot_bytes; }
        bool handed_over() const;
        bool needed() const;
    };
    Result<bool> take(ProxyChannel& channel);
    Result<bool> give(ProxyChannel& channel);
    bool working() const;

    std::shared_ptr<Segment> segment_;
    int rank_;
    const uint32_t* ended_;
    std::vector<ProxyChannel> channels_;
    std::atomic<uint64_t> launched_{0};  // launch << 32 | blocks
    std::atomic<bool> captured_{false}, waiting_{false};
    std::atomic<uint64_t> moved_{0};
    mutable std::mutex mutex_;  // of what follows
    std::optional<Trouble> trouble_;
};

}  // namespace weft::internal::cuda
