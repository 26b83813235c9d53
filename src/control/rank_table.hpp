// rank_table.hpp: the ranks and hosts of a communicator, and their form in frames between a host and the root. Values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/control/agreed_texts.hpp"
#include "src/net/bytes.hpp"
#include "src/net/secret.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct RankEntry {
    int32_t rank = 0;
    int32_t pid = 0;
    int32_t cpu = -1;      // RankInfo::cpu
    Networks networks{};   // RankInfo::networks
    DeviceFacts device{};  // absent in frames if the rank has no device

    void write(ByteWriter& to) const;
    static RankEntry read(ByteReader& from);
};

// Sent by the leader of a host when it checks in. Ranks that join later follow in frames of their own (JoinedReport).
struct HostEntry {
    uint64_t identity = 0;  // of the host
    std::string name;
    int32_t pid = 0;        // of the leader
    uint32_t process = 0;   // net::process_mark() of the leader
    int32_t ranks = 0;      // nranks, as the host's ranks were given
    uint64_t boot = 0;      // boot_identity()
    CpuShare share{};       // of its ranks
    int64_t link_mbps = 0;  // 0: unknown
    MachineText machine;
    // Secret::prove() of machine.text, which itself is sent only if the root asks for it; zero: there is no text.
    net::Digest machine_digest{};
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

    // With the addresses of all hosts: after deaths the other ranks may use any remaining host as a root.
    void write(ByteWriter& to) const;
    static RankTable read(ByteReader& from);
    // `host node7 (10.0.0.3:4711) with ranks 4 to 7`
    std::string text(int host) const;
};

// Facts of these hosts together. Hosts of one machine share its processors. If there is only one machine, messages go
// through its memory, so its network does not count.
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
