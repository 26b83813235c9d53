#include "src/gpu/domain/domain_ranks.hpp"

#include <algorithm>

namespace weft::internal::cuda {

DomainRanks::DomainRanks(std::shared_ptr<Segment> group, int own)
    : segment(std::move(group)), rank(own), count(segment->ranks()), members(segment->locals()) {
    std::vector<int> first_ranks(size_t(count), -1);  // by host
    for (int other = 0; other < count; ++other) {
        if (!segment->local(other)) remote.push_back(other);
        if (segment->one_host()) continue;
        if (int& first = first_ranks[size_t(segment->rank_info(other).host)]; first < 0) first = other;
    }
    for (const int first : first_ranks)
        if (first >= 0 && !segment->local(first)) other_hosts.push_back(first);
}

bool DomainRanks::one_process() const {
    return std::all_of(members.begin(), members.end(), [this](int one) { return segment->same_process(one, rank); });
}

RankBits DomainRanks::all_members() const {
    RankBits all;
    for (const int member : members) all.add(member);
    return all;
}

std::vector<int> DomainRanks::listed(const RankBits& set) const {
    std::vector<int> ranks;
    for (const int member : members)
        if (set.has(member)) ranks.push_back(member);
    return ranks;
}

}  // namespace weft::internal::cuda
