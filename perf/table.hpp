// table.hpp: the output of rank 0: nccl-tests' header, lines and footer, with the same characters where both have a
// field.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "collective.hpp"
#include "timing.hpp"

namespace perf {

struct RankPlace {
    int pid = 0;
    std::string host;
    int device = -1;    // index of the GPU; -1: there is none
    std::string cpus;   // the CPUs on which the rank may run, as "0-3,8"
    std::string model;  // of the GPU or the processor
};
// The place of this process and thread, and its GPU if there is one. text_of() and place_from() exchange it.
RankPlace this_place(const Gpu* gpu);
std::string text_of(const RankPlace& place);
RankPlace place_from(const std::string& text);

struct Result {
    Measurement measurement;
    double algorithm_bandwidth = 0;  // GB/s
    double bus_bandwidth = 0;
    std::optional<int64_t> wrong;  // elements; empty if not checked
};
struct Row {
    size_t bytes = 0;
    size_t count = 0;
    const Element* element = nullptr;
    const Reduction* reduction = nullptr;
    int root = -1;  // -1: the collective has none
    Result out_of_place;
    std::optional<Result> in_place;    // empty: the collective has no in-place form, or the user excluded it
    std::string algorithm, transport;  // with --show algo
};
// The bytes that Weft holds on the rank that holds most.
struct Memory {
    uint64_t board = 0, connection = 0, heap = 0, total = 0;
};

// The run and its ranks, then the heads of row_text()'s columns.
std::string preamble_text(const Collective& collective, const Arguments& arguments,
                          const std::vector<RankPlace>& places);
std::string header_text(const Collective& collective, const Arguments& arguments, const std::vector<RankPlace>& places);
std::string row_text(const Arguments& arguments, const Row& row);
std::string footer_text(const Collective& collective, int64_t wrong, std::optional<double> average_bus_bandwidth,
                        const std::optional<Memory>& memory);
// Date and time as in -S and in JSON.
std::string timestamp();

// Shows "64 MiB in place ..." on standard error, if it is a terminal, so that the user sees progress.
// The line is erased before other output. Thread-bound to rank 0's thread.
class Progress {
  public:
    explicit Progress(bool wanted);
    ~Progress() { wipe(); }
    void show(const std::string& text);
    void wipe();

  private:
    bool on_;
    size_t shown_ = 0;  // characters on the line
};

}  // namespace perf
