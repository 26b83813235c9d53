// algorithm_file.hpp: an algorithm that the command line names by a file: MSCCL's XML or schedules as text.
#pragma once
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/msccl/msccl.hpp"

namespace weft::internal::tools {

// The command line's other options, which must select one of the file's algorithms.
struct FileChoice {
    std::optional<std::string> collective;
    std::optional<int> root, channels;
    std::optional<uint64_t> bytes;  // of the message; it matters where algorithms differ in their range alone
    int ranks = 0;                  // 0: not given
    bool any_order = false;         // ranks may sum in different orders
};

// A row like the registry's. Immutable; the row points into this struct.
struct FileAlgorithm {
    UserAlgorithm user;
    Algorithm row;
    ScheduleFile file;  // without its schedules
    bool any_order = false;
};

// Whether the word names a file and not an algorithm: it contains a / or a dot, or the file exists.
bool is_algorithm_file(const std::string& word);
// An algorithm of a file: "ring all_reduce on 4 ranks, 0 to 1023 bytes".
std::string text_of(const Schedule& first);
// weftInvalidUsage: the file cannot be read or parsed. weftInvalidArgument: the options do not fit the file.
Result<ScheduleFile> read_schedule_file(const std::string& name, bool any_order = false);
Result<std::shared_ptr<const FileAlgorithm>> algorithm_of_file(const std::string& name, const FileChoice& choice);
// weftInvalidUsage: the algorithm is wrong (checker.hpp) or cannot be proved.
Status prove(const FileAlgorithm& algorithm);
// Adds --any-order.
void add_any_order_flag(CLI::App& command, FileChoice& choice);
// Prints on standard error the properties that the file does not state and Weft assumes.
void print_assumption(const std::string& name, const ScheduleFile& file);

}  // namespace weft::internal::tools
