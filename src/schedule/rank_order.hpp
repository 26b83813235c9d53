// rank_order.hpp: which host each rank is on, and ranks in an order, as layouts keep them. Thousands of ranks ask each
// for itself, so what is in rank order takes no time and no memory to tell.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace weft {

// By rank: its host. A vector that knows at once whether the hosts' ranks lie side by side.
class HostsByRank {
  public:
    HostsByRank() = default;
    HostsByRank(std::initializer_list<int32_t> hosts) : HostsByRank(std::vector<int32_t>(hosts)) {}
    HostsByRank(std::vector<int32_t> hosts)
        : hosts_(std::move(hosts)),
          last_(hosts_.empty() ? -1 : *std::max_element(hosts_.begin(), hosts_.end())),
          in_blocks_(std::is_sorted(hosts_.begin(), hosts_.end())) {}
    operator const std::vector<int32_t>&() const { return hosts_; }

    void push_back(int32_t host) {
        in_blocks_ = in_blocks_ && host >= last_;
        last_ = std::max(last_, host);
        hosts_.push_back(host);
    }
    bool empty() const { return hosts_.empty(); }
    size_t size() const { return hosts_.size(); }
    int32_t operator[](size_t rank) const { return hosts_[rank]; }
    auto begin() const { return hosts_.begin(); }
    auto end() const { return hosts_.end(); }

    int32_t last() const { return last_; }  // the largest number; -1: none
    bool in_blocks() const { return in_blocks_; }
    bool operator==(const HostsByRank& other) const { return hosts_ == other.hosts_; }

  private:
    std::vector<int32_t> hosts_;
    int32_t last_ = -1;
    bool in_blocks_ = true;
};

// All ranks in some order.
class RankOrder {
  public:
    explicit RankOrder(int ranks) : ranks_(ranks) {}  // rank order
    explicit RankOrder(std::vector<int32_t> order) : ranks_(int(order.size())), order_(std::move(order)) {
        if (std::is_sorted(order_.begin(), order_.end())) order_.clear();
    }
    operator std::vector<int32_t>() const {
        std::vector<int32_t> all(size());
        for (size_t place = 0; place < all.size(); ++place) all[place] = (*this)[place];
        return all;
    }
    size_t size() const { return size_t(ranks_); }
    bool by_rank() const { return order_.empty(); }
    int32_t operator[](size_t place) const { return order_.empty() ? int32_t(place) : order_[place]; }
    int place_of(int rank) const {
        return order_.empty() ? rank : int(std::find(order_.begin(), order_.end(), rank) - order_.begin());
    }
    bool operator==(const RankOrder&) const = default;

  private:
    int ranks_;
    std::vector<int32_t> order_;  // empty: by_rank()
};

}  // namespace weft
