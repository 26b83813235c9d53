// arguments.hpp: the command line of every benchmark: the flags of nccl-tests and Weft's own.
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
    mean,        // nccl-tests' method: calls back to back between two clock readings
    median_max,  // bench.h's method: batches after barriers, the slowest rank's time, the median over batches
};
enum class Average : uint8_t { rank_0, mean, least, most };  // over ranks; numbers as in -a

// How buffers are registered before the calls (-R).
enum class Registered : uint8_t {
    no,
    buffers,  // weftCommRegister
    windows,  // weftCommWindowRegister, at equal places on all ranks
};

struct Arguments {
    // The ranks of this process, unless a launcher's processes are the ranks.
    int ranks() const { return threads * std::max(1, gpus) * ranks_per_gpu; }

    std::vector<std::string> command_line;
    int threads = 1;
    int gpus = 0;  // of each thread; 0: the buffers are in host memory
    int ranks_per_gpu = 1;
    int graph_launches = 0;  // above 0: the iterations are one CUDA graph, launched this many times
    bool null_stream = false;
    size_t min_bytes = 32 << 20;  // with --sizes, the least and the largest of them
    size_t max_bytes = 32 << 20;
    size_t step_bytes = 1 << 20;
    int step_factor = 1;        // above 1: replaces step_bytes
    std::vector<size_t> sizes;  // bytes, in the order of the run; from the four fields above or --sizes
    int iterations = 20;
    int calls_per_group = 1;
    int warmups = 1;
    int cycles = 1;  // 0: endless
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
    Registered registered = Registered::no;
    bool plain_memory = false;  // GPU memory from the plain allocator, registered all the same
    bool memory_report = false;
    int unalign_elements = 0;
    bool per_iteration = false;
    int skipped_iterations = 0;
    Statistic statistic = Statistic::mean;
    double seconds = 0.3;         // measured for each size, median-max only
    std::string json_lines_peer;  // not empty: print only bench.h's JSON lines, under this name
    bool show_algorithm = false;
    bool regret = false;
};

// The reason why nothing runs: the help text (status 0) or a message about wrong arguments (status 2).
struct Refusal {
    int status;
    std::string text;
};
std::variant<Arguments, Refusal> parse_arguments(const std::string& program, int argc, const char* const* argv);

}  // namespace perf
