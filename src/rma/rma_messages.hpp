// rma_messages.hpp: what ranks ask each other to do with memory that they cannot reach themselves, as messages over their
// link: the target carries them out, in their order, whenever it is in one of its calls (docs/design/rma.md).
// Nothing blocks. Thread-bound to the rank.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/rank_set.hpp"
#include "src/p2p/exchange.hpp"

namespace weft::internal {

class RmaMessages {
  public:
    struct Hooks {
        std::function<Status(int peer, PeerLink& link)> connect;  // one step
        std::function<bool(int peer)> called_by;                  // whether that one has taken its first step
        // This rank's memory in a window; null: it has no such.
        std::function<std::byte*(uint32_t window, uint64_t offset, uint64_t bytes)> memory;
        std::function<void(int peer, int signal)> signalled;
    };
    RmaMessages(Segment& group, int rank, Hooks hooks);

    static constexpr int no_signal = -1;
    struct WindowAddress {
        uint32_t window = 0;
        uint64_t offset = 0;
    };
    // Asks `peer`; buffers are ours until locally_complete(). No bytes: of a put its signal alone, of a get the answer that
    // everything that was asked of it before is done.
    void put(int peer, const WindowAddress& place, const std::byte* data, uint64_t bytes, int signal);
    void get(int peer, const WindowAddress& place, std::byte* data, uint64_t bytes);
    // Whether the buffers of what was asked of `peer` are free, and the answers there.
    bool locally_complete(int peer) const;
    // Whether anything was ever asked of it: then what comes behind must not overtake that.
    bool used(int peer) const { return !peers_.empty() && peers_[size_t(peer)] && peers_[size_t(peer)]->used; }

    // Moves what can be moved, others' requests as well as our own. True: something moved.
    bool serve();
    // Why nothing more comes from or goes to the peer; empty: it does.
    Status trouble(int peer) const;
    bool connecting(int peer) const;
    void add_descriptors(std::vector<pollfd>& list) const;
    bool networked() const { return networked_; }  // some link's peer is remote
    // TargetProcess something has been asked of since the last answer that all of it is done.
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
    // What begins every message; what it has for the target comes along if there is room.
    struct Frame {
        Header header;
        std::byte inline_data[512];
    };
    struct Request {
        Header header;
        std::byte* data;
        uint64_t done = 0;
        bool begun = false;
        bool own = true;  // else an answer
    };
    struct Peer {
        PeerLink link;
        std::deque<Request> requests;
        int own = 0;  // of these
        bool pushing = false;
        bool used = false;
        bool unanswered = false;
        Status trouble;
        // What we get.
        std::byte* wanted = nullptr;
        uint64_t wanted_bytes = 0;
        bool waiting = false;
        // What comes: a frame, or the rest of what one announced.
        Frame frame;
        std::byte* target = nullptr;
        uint64_t left = 0;
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
    std::vector<int> linked_;                   // who has one, or is getting it
    bool networked_ = false;
    uint32_t oob_received_ = 0;          // connections from other hosts when we last looked for callers
    std::vector<int> neighbours_;        // ranks of other processes of this host
    std::vector<uint32_t> oob_entries_;  // of those, likewise
};

}  // namespace weft::internal
