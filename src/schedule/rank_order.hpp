// rank_order.hpp: the host of each rank, and orders of ranks, as layouts hold them. Thousands of ranks each compute
// these, so an order that equals the rank order takes neither time nor memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace weft::internal {

// The ranks of each host, ascending. Copies share their content.
class RanksByHost {
  public:
    RanksByHost() = default;
    explicit RanksByHost(const std::vector<int32_t>& hosts) : known_(std::make_shared<Known>(hosts)) {}

    size_t size() const { return known_ ? known_->begins.size() - 1 : 0; }
    std::span<const int32_t> operator[](size_t host) const {
        return {known_->ranks.data() + known_->begins[host], known_->ranks.data() + known_->begins[host + 1]};
    }

    struct Iterator {
        const RanksByHost* all;
        size_t host;
        std::span<const int32_t> operator*() const { return (*all)[host]; }
        Iterator& operator++() { return ++host, *this; }
        bool operator==(const Iterator&) const = default;
    };
    Iterator begin() const { return {this, 0}; }
    Iterator end() const { return {this, size()}; }

  private:
    struct Known {
        explicit Known(const std::vector<int32_t>& hosts)
            : ranks(hosts.size()),
              begins(hosts.empty() ? 1 : size_t(*std::max_element(hosts.begin(), hosts.end())) + 2) {
            for (const int32_t host : hosts) ++begins[size_t(host) + 1];
            std::partial_sum(begins.begin(), begins.end(), begins.begin());
            std::vector<int32_t> next = begins;
            for (size_t rank = 0; rank < hosts.size(); ++rank)
                ranks[size_t(next[size_t(hosts[rank])]++)] = int32_t(rank);
        }
        std::vector<int32_t> ranks, begins;  // the ranks of all hosts one after the other, and where each host begins
    };
    std::shared_ptr<const Known> known_;
};

// By rank: its host. Knows whether the ranks of each host are consecutive. Copies share their content.
class HostsByRank {
  public:
    HostsByRank() = default;
    HostsByRank(std::initializer_list<int32_t> hosts) : HostsByRank(std::vector<int32_t>(hosts)) {}
    HostsByRank(std::vector<int32_t> hosts)
        : hosts_(std::make_shared<std::vector<int32_t>>(std::move(hosts))),
          by_host_(*hosts_),
          in_blocks_(std::is_sorted(hosts_->begin(), hosts_->end())) {}
    operator const std::vector<int32_t>&() const {
        static const std::vector<int32_t> none;
        return hosts_ ? *hosts_ : none;
    }

    bool empty() const { return size() == 0; }
    size_t size() const { return hosts_ ? hosts_->size() : 0; }
    int32_t operator[](size_t rank) const { return (*hosts_)[rank]; }
    const RanksByHost& by_host() const { return by_host_; }
    bool in_blocks() const { return in_blocks_; }
    bool operator==(const HostsByRank& other) const {
        const std::vector<int32_t>&one = *this, &another = other;
        return hosts_ == other.hosts_ || one == another;
    }

  private:
    std::shared_ptr<const std::vector<int32_t>> hosts_;
    RanksByHost by_host_;
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
    int position_of(int rank) const {
        return order_.empty() ? rank : int(std::find(order_.begin(), order_.end(), rank) - order_.begin());
    }
    bool operator==(const RankOrder&) const = default;

  private:
    int ranks_;
    std::vector<int32_t> order_;  // empty: by_rank()
};

}  // namespace weft::internal
