// unique_numbers.hpp: numbers that name one device each: indices of GPUs and of ports on their host, ranks of all hosts. Who
// checks a graph, and who joins two, claims them here.
#pragma once
#include <set>
#include <tuple>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

class UniqueNumbers {
  public:
    // False: another device has it. What is unknown nobody has.
    bool dev(NodeKind kind, int host, int dev) { return dev == unknown || devs_.insert({kind, host, dev}).second; }
    bool rank(int rank) { return rank == unknown || ranks_.insert(rank).second; }

  private:
    std::set<std::tuple<NodeKind, int, int>> devs_;
    std::set<int> ranks_;
};

}  // namespace weft::internal::topology
