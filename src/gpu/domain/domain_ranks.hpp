// domain_ranks.hpp: the ranks of a communicator as a domain sees them: those of this host, which share memory, and
// those of other hosts. A value.
#pragma once
#include <memory>
#include <vector>

#include "src/gpu/kernels/rank_bits.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

struct DomainRanks {
    std::shared_ptr<Segment> segment;
    int rank, count;
    std::vector<int> members;      // ranks of this host, ascending
    std::vector<int> other_hosts;  // the first rank of each, in the order of hosts
    std::vector<int> remote;       // ranks of other hosts, ascending

    DomainRanks(std::shared_ptr<Segment> group, int own);
    bool leads() const { return rank == members[0]; }
    bool several_hosts() const { return !other_hosts.empty(); }
    bool one_process() const;
    RankBits all_members() const;
    std::vector<int> listed(const RankBits& set) const;  // the members in the set, ascending
};

}  // namespace weft::internal::cuda
