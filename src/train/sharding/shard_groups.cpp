#include "src/train/sharding/shard_groups.hpp"

#include "src/train/agreement.hpp"

namespace weft::internal::train {

Result<ShardGroups> ShardGroups::make(std::unique_ptr<Peers> all, weftComm_t comm, int shard_ranks,
                                      const std::vector<int>& reshard_sizes, bool has_self) {
    ShardGroups groups;
    Status first_failure;
    // After a failure this rank goes on, because the others wait for it in the next split.
    const auto split = [&](std::unique_ptr<Peers>& peers, int color) {
        auto made = Peers::make(comm, color);
        if (made)
            peers = std::move(*made);
        else if (first_failure)
            first_failure = made.take_status();
    };
    groups.all_ = std::move(all);
    const int rank = groups.all_->rank();
    if (shard_ranks < groups.all_->ranks()) {
        split(groups.shard_, rank / shard_ranks);
        split(groups.replicas_, rank % shard_ranks);
    }
    if (has_self) split(groups.self_, rank);
    for (const int size : reshard_sizes) split(groups.reshard_[size], rank / size);
    WEFT_TRY(check_agreement(groups.all(), "", std::move(first_failure)));
    return groups;
}

void ShardGroups::abort() {
    for (Peers* peers : {all_.get(), shard_.get(), replicas_.get(), self_.get()})
        if (peers) peers->abort();
    for (const auto& [size, peers] : reshard_)
        if (peers) peers->abort();
}

}  // namespace weft::internal::train
