#include "tools/perf_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "src/base/printing.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {
namespace {

const char* const benchmark_names[] = {WEFT_PERF_NAMES};
constexpr const char* suffix = "_perf";

// The folders of the benchmarks: that of the command, if both are installed, or that of the build.
std::vector<std::filesystem::path> folders() {
    std::error_code unseen;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unseen);
    if (unseen) return {};
    const std::filesystem::path own = self.parent_path();
    return {own, own.parent_path() / "perf"};
}

// Empty: the program was not found.
std::string program_of(const std::string& name) {
    for (const std::filesystem::path& folder : folders())
        if (const std::string program = folder / (name + suffix); access(program.c_str(), F_OK) == 0) return program;
    return "";
}

std::string folders_text() {
    std::string text;
    for (const std::filesystem::path& folder : folders()) text += (text.empty() ? "" : " and ") + folder.string();
    return text.empty() ? "nowhere, for /proc is not mounted" : text;
}

int list_benchmarks() {
    for (const char* name : benchmark_names) {
        const std::string program = program_of(name);
        print_output("{:<16}{}\n", name, program.empty() ? "not installed" : program);
    }
    return 0;
}

int become(std::vector<std::string> words) {
    std::string name = words[0];
    if (name.ends_with(suffix)) name.resize(name.size() - std::string(suffix).size());
    if (std::find(std::begin(benchmark_names), std::end(benchmark_names), name) == std::end(benchmark_names)) {
        std::string known;
        for (const char* each : benchmark_names) known += (known.empty() ? "" : ", ") + std::string(each);
        print_error("weft perf: {} is not a benchmark; the benchmarks are {}\n", words[0], known);
        return 2;
    }
    const std::string program = program_of(name);
    if (program.empty()) {
        print_error("weft perf: {}{} was not found; it was looked for in {}\n", name, suffix, folders_text());
        return 127;
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(program.c_str(), arguments.data());
    print_error("weft perf: {} cannot be started: {}\n", program, errno_text(errno));
    return 126;
}

}  // namespace

void add_perf_command(CLI::App& app, int& exit_status) {
    CLI::App* command = app.add_subcommand(
        "perf", "Starts a benchmark, or lists them: weft perf all_reduce -t 4 -b 8 -e 64M -f 2 (-h for its options)");
    command->prefix_command();
    command->callback([command, &exit_status] {
        std::vector<std::string> words = command->remaining();
        exit_status = words.empty() ? list_benchmarks() : become(std::move(words));
    });
}

}  // namespace weft::internal::tools
