// unique_numbers.hpp: numbers that name one device each: indices of GPUs and ports on their host, and ranks of all
// hosts. Checks and merges of graphs claim them here.
#pragma once
#include <set>
#include <tuple>

#include "topology/model/node.hpp"

namespace weft::internal::topology {

class UniqueNumbers {
  public:
    // False: another device has the number. `unknown` is always free.
    bool dev(NodeKind kind, int host, int dev) { return dev == unknown || devs_.insert({kind, host, dev}).second; }
    bool rank(int rank) { return rank == unknown || ranks_.insert(rank).second; }

  private:
    std::set<std::tuple<NodeKind, int, int>> devs_;
    std::set<int> ranks_;
};

}  // namespace weft::internal::topology
