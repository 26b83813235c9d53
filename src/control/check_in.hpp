// check_in.hpp: the check-in of the hosts' leaders during a rendezvous: the tree in which they wait for the rank table,
// the frames, and the counters. Values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/control/rank_table.hpp"

namespace weft::internal {

// Place 0 is the root. Leaders have the places from 1 on, in the order of their check-in.
// The leaders below a leader wait for the rank table at that leader and not at the root.
struct CheckInTree {
    // Up to this number of hosts all wait at the root. A leader sends the rank table at most this often.
    static constexpr int arity = 16;
    static int parent(int place) { return (place - 1) / arity; }
};

enum class CheckInFrame : uint32_t {
    // Of a leader, to the root:
    host = 1,  // a HostEntry; with rank 0 among its members AgreedOptions, its tuning and its refusal follow
    machine,   // bytes: MachineText::text, as Placement::wants_machine asked
    attached,  // empty: the parent has taken this leader, so this connection ends
    detached,  // text: why the parent could not be reached; the leader waits at the root
    alone,     // empty: all ranks are on this leader's host, so the root is not needed
    // Of a leader, to its parent, which may be the root:
    attach,  // empty; not to the root
    joined,  // JoinedReports, one behind the other
    lost,    // place, text: the leader there ended
    failed,  // a failure: this host's ranks have given up
    // To a leader:
    placed,      // a Placement, of the root
    taken,       // empty, of another leader: the answer to `attach`
    waiting,     // text: the missing ranks
    refused,     // a failure; final
    rank_table,  // a RankTable; final
};

// Where a leader waits for the rank table.
struct Placement {
    int32_t place = 0;
    bool wants_machine = false;  // the root does not know the text of this machine yet
    // Of the parent; all but the first are empty if that is the root.
    int32_t parent = 0;
    uint32_t process = 0;                 // net::process_mark()
    int32_t rank = -1;                    // the lowest one there
    std::string leader;                   // leader_text()
    std::vector<net::Address> addresses;  // of its process

    void write(ByteWriter& to) const;
    static Placement read(ByteReader& from);
};

// Ranks of one host that joined after its check-in. With rank 0 among them its options follow, as behind HostEntry.
struct JoinedReport {
    int32_t place = 0;
    CpuShare share{};  // of all ranks of the host so far
    std::vector<RankEntry> members;

    void write(ByteWriter& to) const;
    static JoinedReport read(ByteReader& from);
};

// `process 4711, the leader of node7 (10.0.0.3:4711) with ranks 4 to 7`
std::string leader_text(const HostEntry& host);
int lowest_rank(const HostEntry& host);  // -1: it has none
// init.rank-died: a leader ended before all ranks had joined. `leader`: leader_text(); `rank`: of it; `why`: of its
// connection, ok if that was closed in order.
Status leader_lost(const std::string& leader, int rank, const std::string& why);
std::string end_text(const Status& why);

// Of one process's part in one rendezvous. Without handshakes, and without `waiting`, which depends on time.
struct CheckInTraffic {
    int32_t place = 0;
    uint64_t connections = 0;
    uint64_t frames_sent = 0, frames_received = 0;
    uint64_t bytes_sent = 0, bytes_received = 0;  // contents of frames

    void sent(CheckInFrame kind, size_t bytes);
    void received(CheckInFrame kind, size_t bytes);
    bool operator==(const CheckInTraffic&) const = default;
    // `3 connections; 2 frames and 310 bytes sent; 3 frames and 4711 bytes received`
    std::string text() const;
};

}  // namespace weft::internal
