// rma_messages.hpp: requests to ranks whose memory this rank cannot reach, as messages over their link. The target
// executes them in order, during its own calls (docs/design/rma.md).
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/base/wakeups.hpp"
#include "src/p2p/exchange.hpp"

namespace weft::internal {

// Owned by OneSided. Thread-bound to the rank. Nothing blocks.
class RmaMessages {
  public:
    struct Hooks {
        std::function<Status(int peer, PeerLink& link)> connect;  // one step
        std::function<bool(int peer)> called_by;                  // whether the peer has taken its first step
        // This rank's memory in a window; null: out of range, or there is no such window.
        std::function<std::byte*(uint32_t window, uint64_t offset, uint64_t bytes)> memory;
        std::function<void(int peer, int signal)> signalled;
    };
    RmaMessages(Segment& group, int rank, Hooks hooks);

    static constexpr int no_signal = -1;
    struct WindowAddress {
        uint32_t window = 0;
        uint64_t offset = 0;
    };
    // Sends a request to `peer`. Buffers must stay valid until locally_complete(). A put of 0 bytes carries a signal
    // alone. The answer to a get of 0 bytes means that all earlier requests are complete at the peer.
    void put(int peer, const WindowAddress& place, const std::byte* data, uint64_t bytes, int signal);
    void get(int peer, const WindowAddress& place, std::byte* data, uint64_t bytes);
    // Whether the buffers of all requests to `peer` are free, and all answers have arrived.
    bool locally_complete(int peer) const;
    // Whether any request was ever sent to the peer. Later signals must not overtake it.
    bool used(int peer) const { return !peers_.empty() && peers_[size_t(peer)] && peers_[size_t(peer)]->used; }

    // The link to a peer; it is made while serve() is called.
    const PeerLink& link(int peer) { return this->peer(peer).link; }
    // This rank puts into the peer's memory or gets from it beside messages. Later signals must not overtake a put, and
    // flushing asks the peer.
    void accesses(int peer);
    // The link to the peer has failed. Returns the failure.
    Status breaks(int peer, Status why);

    // Progresses our requests and those of other ranks. True: something moved.
    // For a call that waits for the ranks `awaited`, only requests to them count, and puts and answers of theirs. The
    // next serve() without `awaited` returns true if anything else moved.
    bool serve(const RankSet* awaited = nullptr);
    // The failure of the link to the peer, or ok.
    Status trouble(int peer) const;
    bool connecting(int peer) const;
    void add_wakeups(Wakeups& wakeups) const;
    bool networked() const { return networked_; }  // some peer is remote
    // Peers with requests that no answer has confirmed yet.
    std::vector<int> unanswered() const;
    void abandon();

  private:
    enum class RequestKind : uint32_t { put = 1, get, answer };
    struct Header {
        RequestKind kind;
        uint32_t window;
        uint64_t offset, bytes;
        int32_t signal, unused;
    };
    // The begin of every message. Short data follows inline.
    struct Frame {
        Header header;
        std::byte inline_data[512];
    };
    struct Request {
        Header header;
        std::byte* data;
        uint64_t done = 0;
        bool begun = false;
        bool own = true;  // false: an answer to a request of the peer
    };
    struct Peer {
        PeerLink link;
        std::deque<Request> requests;
        int own = 0;  // requests that are our own
        bool pushing = false;
        bool used = false;
        bool unanswered = false;
        Status trouble;
        // The get that waits for its answer.
        std::byte* wanted = nullptr;
        uint64_t wanted_bytes = 0;
        bool waiting = false;
        // The message that is being received: a frame, then the rest of its data.
        Frame frame;
        std::byte* target = nullptr;
        uint64_t left = 0;
        uint64_t steps = 0;  // of our requests, and of the peer's puts and answers
    };
    Peer& peer(int rank);
    void ask(int rank, Request request);
    void look_for_callers();
    bool serve(int rank, Peer& peer);
    bool breaks(Peer& peer, Status why);
    Result<bool> push(Peer& peer);
    Result<bool> pull(int rank, Peer& peer);
    Status take(int rank, Peer& peer);
    void finish(int rank, Peer& peer);

    Segment* segment_;
    int rank_;
    Hooks hooks_;
    std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: no link
    std::vector<int> linked_;                   // peers with a link, connected or not
    bool networked_ = false;
    bool moved_beside_ = false;          // for the next serve() of all
    uint32_t oob_received_ = 0;          // entries from other hosts at the last look_for_callers()
    std::vector<int> neighbours_;        // ranks of other processes of this host
    std::vector<uint32_t> oob_entries_;  // entries of each neighbour at the last look_for_callers()
};

}  // namespace weft::internal
