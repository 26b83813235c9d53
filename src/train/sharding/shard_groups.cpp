#include "src/train/sharding/shard_groups.hpp"

namespace weft::internal::train {

Result<ShardGroups> ShardGroups::make(std::unique_ptr<Peers> all, weftComm_t comm, int shard_ranks,
                                      const std::vector<int>& reshard_sizes, bool has_self) {
    ShardGroups groups;
    const auto split = [&](std::unique_ptr<Peers>& peers, int color) -> Status {
        auto made = Peers::make(comm, color);
        if (!made) return made.take_status();
        peers = std::move(*made);
        return ok();
    };
    const int rank = all->rank();
    if (shard_ranks < all->ranks()) {
        WEFT_TRY(split(groups.shard_, rank / shard_ranks));
        WEFT_TRY(split(groups.replicas_, rank % shard_ranks));
    }
    if (has_self) WEFT_TRY(split(groups.self_, rank));
    groups.all_ = std::move(all);
    for (const int size : reshard_sizes) WEFT_TRY(split(groups.reshard_[size], rank / size));
    return groups;
}

void ShardGroups::abort() {
    for (Peers* peers : {all_.get(), shard_.get(), replicas_.get(), self_.get()})
        if (peers) peers->abort();
    for (const auto& [size, peers] : reshard_) peers->abort();
}

}  // namespace weft::internal::train
