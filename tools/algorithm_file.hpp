// algorithm_file.hpp: an algorithm that a command line gives as a file, MSCCL's XML or schedules as text, in the place of
// a name.
#pragma once
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"
#include "src/msccl/msccl.hpp"

namespace weft::internal::tools {

// The command line's other options, which must select one algorithm of a file that has several.
struct FileChoice {
    std::optional<std::string> collective;
    std::optional<int> root, channels;
    int ranks = 0;           // 0: not said
    bool any_order = false;  // ranks may sum in different orders
};

// A row like the registry's. Immutable; the row points into it.
struct FileAlgorithm {
    UserAlgorithm user;
    Algorithm row;
    ScheduleFile file;  // but for its schedules
    bool any_order = false;
};

// Whether the word is a file's name, and no algorithm's: one with a / or a dot in it, or of a file that there is.
bool is_algorithm_file(const std::string& word);
// weftInvalidUsage: it cannot be read, or is none; weftInvalidArgument: what is said does not fit it.
Result<ScheduleFile> read_schedule_file(const std::string& name, bool any_order = false);
Result<std::shared_ptr<const FileAlgorithm>> algorithm_of_file(const std::string& name, const FileChoice& choice);
// weftInvalidUsage: it is not right (checker.hpp), or cannot be proved.
Status prove(const FileAlgorithm& algorithm);
// --any-order.
void add_any_order_flag(CLI::App& command, FileChoice& choice);
// Says on standard error what the file does not state and Weft assumes.
void print_assumption(const std::string& name, const ScheduleFile& file);

}  // namespace weft::internal::tools
