// arguments.hpp: the command line of every benchmark: nccl-tests' flags, and Weft's own for comparisons.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "element.hpp"

namespace perf {

enum class Statistic : uint8_t {
    mean,        // nccl-tests': calls back to back between two readings of the clock
    median_max,  // that of perf/peers/bench.h: batches after barriers, the slowest rank's time, the median over batches
};
enum class Average : uint8_t { rank_0, mean, least, most };  // over ranks; numbers as in -a

struct Arguments {
    // Of this process, unless a launcher's processes are the ranks.
    int ranks() const { return threads * std::max(1, gpus) * ranks_per_gpu; }

    std::vector<std::string> command_line;
    int threads = 1;
    int gpus = 0;  // a thread; 0: buffers are in host memory
    int ranks_per_gpu = 1;
    int graph_launches = 0;  // above 0: the iterations are a CUDA graph, launched so often
    bool null_stream = false;
    size_t min_bytes = 32 << 20;  // or of --sizes the least and the most
    size_t max_bytes = 32 << 20;
    size_t step_bytes = 1 << 20;
    int step_factor = 1;        // above 1 it replaces step_bytes
    std::vector<size_t> sizes;  // bytes, in the order to run; from the four above or --sizes
    int iterations = 20;
    int calls_per_group = 1;
    int warmups = 1;
    int cycles = 1;  // 0: without end
    bool parallel_init = false;
    int checks = 1;
    std::vector<const Element*> elements;
    std::vector<const Reduction*> reductions;
    int root = 0;  // -1: each rank in turn
    int blocking = 0;
    int timeout_s = 0;  // 0: Weft's default
    bool timestamps = false;
    std::string json_file;
    Average average = Average::mean;
    bool registered = false;
    bool plain_memory = false;  // registered all the same; of GPUs
    bool memory_report = false;
    int unalign_elements = 0;
    bool per_iteration = false;
    int skipped_iterations = 0;
    Statistic statistic = Statistic::mean;
    double seconds = 0.3;         // measured a size, median-max only
    std::string json_lines_peer;  // not empty: print bench.h's lines under this name and nothing else
    bool show_algorithm = false;
    bool regret = false;
};

// Nothing to run: the help text (status 0) or a sentence about what to change (status 2).
struct Refusal {
    int status;
    std::string text;
};
std::variant<Arguments, Refusal> parse_arguments(const std::string& program, int argc, const char* const* argv);

}  // namespace perf
