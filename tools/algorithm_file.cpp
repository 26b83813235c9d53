#include "tools/algorithm_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/file.hpp"
#include "src/base/printing.hpp"
#include "src/registry.hpp"
#include "tools/algorithm_named.hpp"

namespace weft::internal::tools {

namespace {

constexpr size_t file_bytes_most = size_t(256) << 20;

}  // namespace

std::string text_of(const Schedule& first) {
    std::string text = fmt::format("{} {} on {} rank{}", first.algorithm, name_of(first.collective), first.ranks,
                                   first.ranks == 1 ? "" : "s");
    if (first.root >= 0) text += fmt::format(", root {}", first.root);
    if (first.most_bytes < INT64_MAX)
        text += fmt::format(", {} to {} bytes", first.least_bytes, first.most_bytes);
    else if (first.least_bytes > 0)
        text += fmt::format(", {} bytes and more", first.least_bytes);
    return text;
}

bool is_algorithm_file(const std::string& word) {
    const auto rows = registry::algorithms();
    if (std::any_of(rows.begin(), rows.end(), [&](const Algorithm& row) { return word == row.name; })) return false;
    return word.find_first_of("/.") != word.npos || access(word.c_str(), F_OK) == 0;
}

Result<ScheduleFile> read_schedule_file(const std::string& name, bool any_order) {
    const auto text = read_file(name, file_bytes_most, Pipes::read);
    if (!text) return fail(error::command_input, "{}", text.status().sentence());
    auto file = read_schedules(*text, any_order);
    if (!file) return fail(error::algorithm_file, "{}: {}", name, file.status().sentence());
    return file;
}

Result<std::shared_ptr<const FileAlgorithm>> algorithm_of_file(const std::string& name, const FileChoice& choice) {
    std::optional<Collective> collective;
    if (choice.collective) {
        const auto meant = collective_meant(*choice.collective);
        if (!meant) return meant.status().copy();
        collective = *meant;
    }
    auto file = read_schedule_file(name, choice.any_order);
    if (!file) return file.take_status();
    std::vector<std::vector<Schedule>> sets = file->take_sets();
    std::vector<std::vector<Schedule>*> meant;
    std::string held;
    for (std::vector<Schedule>& set : sets) {
        const Schedule& first = set[0];
        held += fmt::format("{}{}", held.empty() ? "" : "; ", text_of(first));
        const bool fits = (!collective || *collective == first.collective) &&
                          (choice.ranks == 0 || choice.ranks == first.ranks) &&
                          (!choice.root || first.root < 0 || *choice.root == first.root);
        if (fits) meant.push_back(&set);
    }
    if (meant.size() > 1 && choice.bytes)
        std::erase_if(meant, [&](const std::vector<Schedule>* set) {
            const Schedule& first = set->front();
            return *choice.bytes < uint64_t(first.least_bytes) || *choice.bytes > uint64_t(first.most_bytes);
        });
    if (meant.size() != 1)
        return fail(error::command_option, "{} contains {}; {}", name, held,
                    meant.empty() ? "--ranks, --collective, --root or --bytes does not fit it"
                                  : "choose one by --ranks, --collective, --root or --bytes");
    std::vector<Schedule>& set = *meant[0];
    std::sort(set.begin(), set.end(), [](const Schedule& a, const Schedule& b) { return a.rank < b.rank; });
    const Schedule& first = set[0];
    for (size_t rank = 0; rank < set.size(); ++rank)
        if (set[rank].rank != int(rank) || int(set.size()) != first.ranks)
            return fail(error::algorithm_file, "{}: {} needs one schedule for each rank, but there are {}", name,
                        text_of(first), set.size());
    if (choice.channels && *choice.channels != first.channels)
        return fail(error::command_option, "--channels is {}, but {} has {} channels", *choice.channels, name,
                    first.channels);
    auto algorithm = std::make_shared<FileAlgorithm>();
    algorithm->user = {first.algorithm, name, std::move(set)};
    algorithm->row = {algorithm->user.name.c_str(), algorithm->user.schedules[0].collective, nullptr, nullptr,
                      algorithm->user.file.c_str()};
    algorithm->row.of_user = &algorithm->user;
    algorithm->file = std::move(*file);
    algorithm->any_order = choice.any_order;
    return std::shared_ptr<const FileAlgorithm>(std::move(algorithm));
}

Status prove(const FileAlgorithm& algorithm) {
    Proved proved;
    const Status status =
        algorithm.file.check(algorithm.user.schedules, {}, {.any_order = algorithm.any_order}, &proved);
    return status ? ok()
                  : fail(error::algorithm_file, "{}: {}{}", algorithm.user.file, status.sentence(),
                         proved.orders_differ ? "; --any-order lets that pass" : "");
}

void add_any_order_flag(CLI::App& command, FileChoice& choice) {
    command.add_flag("--any-order", choice.any_order,
                     "Ranks may sum in different orders, as with WEFT_ALGO_FILES_ORDER=any");
}

void print_assumption(const std::string& name, const ScheduleFile& file) {
    if (!file.assumed.empty()) print_error("weft schedule: {}: {}\n", name, file.assumed);
}

}  // namespace weft::internal::tools
