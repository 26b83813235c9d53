// random_uneven.hpp: one collective of uneven parts, drawn from a seed alike by all ranks, with this rank's buffers and
// tables, and judged. Clients' interface only.
#pragma once
#include <weft/weft.h>

#include <string>

#include "tests/comm/random_data.hpp"

namespace weft::internal::test {

// Rank p's part for rank q is piece p * ranks + q of the model.
class RandomUneven {
  public:
    // Number `index` of a sequence.
    RandomUneven(uint32_t seed, int index, int rank, int ranks, size_t most_bytes);

    // Calls; with a stream, or in a group, fault() is for when it is done.
    weftResult_t issue(weftComm_t comm, weftStream_t stream);
    // The error in this rank's results, or nothing.
    std::string fault();
    const char* name() const;

  private:
    enum class Kind { all_to_all, gather, scatter, all_gather, reduce_scatter };
    // Parts in the order of ranks or against it, with gaps between.
    struct Table {
        std::vector<size_t> counts, displacements;
        size_t elements = 0;
        void set(std::vector<size_t> of, std::mt19937& random, bool closely);
    };

    size_t& count(int from, int to) { return counts_[size_t(from * ranks_ + to)]; }
    RandomBytes data(int from, int to);
    void put(std::byte* at, int from, int to);
    std::byte* place(Guarded& buffer, const Table& table, size_t part) const;
    RandomBytes sum();

    uint32_t seed_ = 0;
    Kind kind_;
    int rank_, ranks_, root_;
    weftDataType_t type_;
    std::vector<size_t> counts_;  // by giver and taker
    bool gives_all_, takes_all_;
    Table sends_, takes_;
    Guarded out_, in_;
    std::byte *send_, *take_;  // where the call's buffers begin
};

}  // namespace weft::internal::test
