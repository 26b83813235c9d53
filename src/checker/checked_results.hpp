// checked_results.hpp: whether a chunk of an output is what its collective promises, by the same expression on all ranks.
#pragma once
#include <string>
#include <vector>

#include "src/checker/verdict.hpp"

namespace weft::internal {

class CheckedResults {
  public:
    CheckedResults(const CheckedSet& set, const Contributions& contributions, const Verdict& verdict);
    // The fault of a cell of the output of operation `number`; empty: none.
    std::string fault(int number, const Cell& cell, int rank, int tile, int chunk);
    bool in_rank_order() const { return in_rank_order_; }  // see Proved
    bool orders_differ() const { return orders_differ_; }

  private:
    uint64_t sum_in_rank_order(uint32_t tile, int chunk) const;

    const CheckedSet& set_;
    const Contributions& contributions_;
    const Verdict& verdict_;
    std::vector<std::vector<uint64_t>> expressions_;  // by operation, tile and chunk: the first rank's; 0: none yet
    bool in_rank_order_ = true;
    bool orders_differ_ = false;
};

}  // namespace weft::internal
