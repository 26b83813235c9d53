// shard_groups.hpp: the communicators of a sharded model.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "src/train/peers.hpp"

namespace weft::internal::train {

// Bytes of messages with other ranks, and of those with ranks of other hosts. Values.
struct Traffic {
    uint64_t bytes = 0, remote_bytes = 0;
    Traffic& operator+=(const Traffic& other) {
        bytes += other.bytes;
        remote_bytes += other.remote_bytes;
        return *this;
    }
};

// Each is used by the thread of its launch queue. Thread-bound, except abort(), which is thread-safe.
class ShardGroups {
  public:
    // All ranks of `comm`, of which `all` is a copy, call it. `shard_ranks` consecutive ranks share one copy of the
    // model, and consecutive ranks of those are a reshard group, for each of its sizes. If a rank fails, all do.
    // `hosts`: of each rank; empty: one host. `hop_ranks`: ranks of a host that have a communicator of their own; 0: none.
    static Result<ShardGroups> make(std::unique_ptr<Peers> all, weftComm_t comm, int shard_ranks,
                                    const std::vector<int>& reshard_sizes, std::vector<int> hosts = {},
                                    int hop_ranks = 0);

    // All ranks of the model.
    Peers& all() const { return *all_; }
    Peers& shard() const { return shard_ ? *shard_ : *all_; }
    // The ranks with the same shard in other copies of the model.
    Peers& replicas() const { return *replicas_; }
    Peers& reshard(int ranks) const { return *reshard_.at(ranks); }
    // The ranks of the shard group on this host, and those with this rank's place on each host.
    Peers& host() const { return *host_; }
    Peers& across() const { return *across_; }
    bool has_hops() const { return host_ != nullptr; }
    // With `bytes_each` for each other rank of this rank's group of `size` consecutive ranks.
    Traffic traffic(int size, size_t bytes_each) const;
    bool has_replicas() const { return replicas_ != nullptr; }
    void abort();
    // The first error that has hit one of them. Does not wait.
    Status state() const;

  private:
    template <class Body>
    void each(Body&& body) const;

    std::unique_ptr<Peers> all_, shard_, replicas_;  // the last two only if there are replicas
    std::unique_ptr<Peers> host_, across_;
    std::vector<int> hosts_;
    std::map<int, std::unique_ptr<Peers>> reshard_;
};

}  // namespace weft::internal::train
