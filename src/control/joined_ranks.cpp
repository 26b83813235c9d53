#include "src/control/joined_ranks.hpp"

namespace weft::internal {

std::vector<RankEntry> JoinedRanks::take() {
    std::vector<RankEntry> members;
    const size_t joined = segment_->header().joined.load(std::memory_order_acquire);
    for (int rank = 0; rank < segment_->ranks() && members_.size() < joined; ++rank) {
        const int pid = segment_->rank_info(rank).pid.load(std::memory_order_acquire);
        if (pid != 0 && members_.insert(rank).second) {
            const RankRow& row = segment_->row(rank);
            members.push_back(
                {rank, pid, segment_->rank_info(rank).cpu, segment_->rank_info(rank).networks, row.gpu.facts});
            share_.add(row.cpus, row.quota);
        }
    }
    return members;
}

void JoinedRanks::put_options(ByteWriter& to, const std::vector<RankEntry>& members) const {
    for (const RankEntry& member : members)
        if (member.rank == 0) {
            to.put(segment_->header().agreed);
            const AgreedTexts texts = AgreedTexts::of(*segment_);
            to.put_bytes(texts.tuning);
            to.put_failure(texts.refusal);
        }
}

bool JoinedRanks::complete() const {
    return int(segment_->header().joined.load(std::memory_order_acquire)) == segment_->ranks();
}

}  // namespace weft::internal
