#include "src/train/sharding/shard_groups.hpp"

#include "src/train/agreement.hpp"

namespace weft::internal::train {

Result<ShardGroups> ShardGroups::make(std::unique_ptr<Peers> all, weftComm_t comm, int shard_ranks,
                                      const std::vector<int>& reshard_sizes, std::vector<int> hosts, int hop_ranks) {
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
    groups.hosts_ = std::move(hosts);
    const int rank = groups.all_->rank();
    if (shard_ranks < groups.all_->ranks()) {
        split(groups.shard_, rank / shard_ranks);
        split(groups.replicas_, rank % shard_ranks);
    }
    if (hop_ranks > 0) {
        split(groups.host_, rank / hop_ranks);
        split(groups.across_, rank / shard_ranks * hop_ranks + rank % hop_ranks);
    }
    for (const int size : reshard_sizes) split(groups.reshard_[size], rank / size);
    WEFT_TRY(check_agreement(groups.all(), "", std::move(first_failure)));
    return groups;
}

Traffic ShardGroups::traffic(int size, size_t bytes_each) const {
    Traffic sum;
    const int own = all_->rank(), first = own / size * size;
    for (int rank = first; rank < first + size; ++rank)
        if (rank != own) {
            const bool remote = !hosts_.empty() && hosts_[size_t(rank)] != hosts_[size_t(own)];
            sum += {bytes_each, remote ? bytes_each : 0};
        }
    return sum;
}

template <class Body>
void ShardGroups::each(Body&& body) const {
    for (Peers* peers : {all_.get(), shard_.get(), replicas_.get(), host_.get(), across_.get()})
        if (peers) body(*peers);
    for (const auto& [size, peers] : reshard_)
        if (peers) body(*peers);
}

void ShardGroups::abort() {
    each([](Peers& peers) { peers.abort(); });
}

Status ShardGroups::state() const {
    Status first;
    each([&](const Peers& peers) {
        if (first) first = peers.state();
    });
    return first;
}

}  // namespace weft::internal::train
