// table.hpp: what rank 0 prints: nccl-tests' header, lines and footer, character for character where they say the same.
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
    int device = -1;    // of the GPU; -1: there is none
    std::string cpus;   // those it may run on, as in "0-3,8"
    std::string model;  // of the GPU or the processor
};
// This process and thread, and its GPU if there is one; text_of() and place_from() carry it between ranks.
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
    std::optional<Result> in_place;    // empty: the collective has none, or it was not asked for
    std::string algorithm, transport;  // with --show algo
};
// Bytes that Weft holds, of the rank that holds most.
struct Memory {
    uint64_t board = 0, connection = 0, heap = 0, total = 0;
};

// About the run and its ranks; then the heads of row_text()'s columns.
std::string preamble_text(const Collective& collective, const Arguments& arguments,
                          const std::vector<RankPlace>& places);
std::string header_text(const Collective& collective, const Arguments& arguments, const std::vector<RankPlace>& places);
std::string row_text(const Arguments& arguments, const Row& row);
std::string footer_text(const Collective& collective, int64_t wrong, std::optional<double> average_bus_bandwidth,
                        const std::optional<Memory>& memory);
// Date and time as in -S and in JSON.
std::string timestamp();

// "64 MiB in place ..." on standard error while it is a terminal: long runs show that they live. The line is wiped
// before anything else is printed. Thread-bound to rank 0's thread.
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
