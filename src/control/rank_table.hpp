// rank_table.hpp: who the ranks of a communicator are and on which host each is, and the messages in which hosts tell the
// root of themselves and the root tells all of all. Values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/control/agreed_texts.hpp"
#include "src/net/bytes.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct RankEntry {
    int32_t rank = 0;
    int32_t pid = 0;
    int32_t cpu = -1;      // RankInfo::cpu
    DeviceFacts device{};  // takes no room in messages where there is none

    void write(ByteWriter& to) const;
    static RankEntry read(ByteReader& from);
};

// What the leader of a host says when it checks in. Ranks that join later follow in messages of their own.
struct HostEntry {
    uint64_t identity = 0;  // of the host
    std::string name;
    int32_t pid = 0;        // of the leader
    uint32_t process = 0;   // net::process_mark() of the leader
    int32_t ranks = 0;      // of the communicator, as the host's ranks were told
    uint64_t boot = 0;      // boot_identity()
    CpuShare share{};       // of its ranks
    int64_t link_mbps = 0;  // 0: unknown
    MachineText machine;
    std::optional<Failure> refusal;       // as in AgreedTexts
    std::vector<net::Address> addresses;  // of the leader's process
    std::vector<RankEntry> members;       // so far

    // `node7 (10.0.0.3:4711)`
    std::string text() const;
    void write(ByteWriter& to) const;
    static HostEntry read(ByteReader& from);
};

void put_share(ByteWriter& to, const CpuShare& share);
CpuShare get_share(ByteReader& from);

struct RankTable {
    std::vector<HostEntry> hosts;  // by their lowest rank
    AgreedOptions agreed{};
    AgreedFacts facts{};
    AgreedTexts texts{};

    // Addresses are for everybody: when ranks have died the others meet where any that is left may be.
    void write(ByteWriter& to) const;
    static RankTable read(ByteReader& from);
    // `host node7 (10.0.0.3:4711) with ranks 4 to 7`
    std::string text(int host) const;
};

// What these hosts are together: those of one machine share its processors, and if there is no other machine their
// messages go through its memory, whatever network it has.
AgreedFacts facts_of(const std::vector<HostEntry>& hosts);

// The tree of the hosts' leaders: host 0 is its root.
struct HostTree {
    static constexpr int arity = 8;
    static int parent(int host) { return (host - 1) / arity; }
    // The neighbour of `host` on the way to `target`.
    static int next(int host, int target) {
        for (int child = target; child > 0; child = parent(child))
            if (parent(child) == host) return child;
        return parent(host);
    }
};

}  // namespace weft::internal
