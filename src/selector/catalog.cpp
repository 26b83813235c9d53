#include "src/selector/catalog.hpp"

#include <algorithm>
#include <map>

#include "src/base/file.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/schedule/checker.hpp"
#include "src/schedule/msccl.hpp"
#include "src/schedule/validate.hpp"

namespace weft {

static constexpr size_t file_bytes_most = size_t(256) << 20;

Result<Catalog> Catalog::load(std::string_view files, int ranks, std::span<const Algorithm> own) {
    Catalog catalog;
    catalog.rows_.assign(own.begin(), own.end());
    while (!files.empty()) {
        const std::string name(files.substr(0, files.find(':')));
        files.remove_prefix(std::min(files.size(), name.size() + 1));
        if (!name.empty())
            if (Status added = catalog.add_file(name, ranks); !added)
                return fail(weftInvalidUsage, "WEFT_ALGO_FILES: {}", added.sentence());
    }
    return catalog;
}

Result<std::shared_ptr<const Catalog>> Catalog::shared(std::string_view files, int ranks,
                                                       std::span<const Algorithm> own) {
    const std::pair<std::string, int> key{files, files.empty() ? 0 : ranks};
    return shared_by_process<const Catalog>(key, [&]() -> Result<std::shared_ptr<const Catalog>> {
        auto catalog = load(files, ranks, own);
        if (!catalog) return catalog.take_status();
        for (const LeftOut& one : catalog->left_out()) WEFT_LOG(info, algo, "{}", one.told);
        if (!catalog->left_out().empty() && catalog->of_users().empty())
            WEFT_LOG(warn, algo, "WEFT_ALGO_FILES has nothing for {} ranks: {}", ranks, catalog->left_out()[0].told);
        return std::make_shared<const Catalog>(std::move(*catalog));
    });
}

std::vector<std::string_view> Catalog::names() const {
    std::vector<std::string_view> names;
    const auto add = [&](std::string_view name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const Algorithm& row : rows_) add(row.name);
    for (const LeftOut& one : left_out_) add(one.name);
    return names;
}

Status Catalog::add_file(const std::string& name, int ranks) {
    auto text = read_file(name, file_bytes_most);
    if (!text) return text.take_status();
    for (const char letter : *text) digest_ = (digest_ ^ uint8_t(letter)) * 0x100000001b3u + 1;
    auto read = read_schedules(*text);
    if (!read) return fail(weftInvalidUsage, "{}: {}", name, read.status().sentence());
    // One algorithm after the other: one schedule a rank of each, in any order.
    std::map<std::tuple<std::string, Collective, int, int, int64_t, int64_t>, std::vector<Schedule>> sets;
    for (Schedule& schedule : *read)
        sets[{schedule.algorithm, schedule.collective, schedule.ranks, schedule.root, schedule.least_bytes,
              schedule.most_bytes}]
            .push_back(std::move(schedule));
    for (auto& [key, schedules] : sets) {
        const Schedule& first = schedules[0];
        const auto taken = std::find_if(rows_.begin(), rows_.end(), [&](const Algorithm& row) {
            return !row.of_user && row.name == first.algorithm && row.collective == first.collective;
        });
        if (taken != rows_.end())
            return fail(weftInvalidUsage,
                        "{}: {} is the name of an algorithm of Weft's own for {}: give yours another one", name,
                        first.algorithm, name_of(first.collective));
        if (ranks > 0 && first.ranks != ranks) {
            left_out_.push_back(
                {first.algorithm, fmt::format("{}: {} for {} is for {} ranks, this communicator has {}: left out", name,
                                              first.algorithm, name_of(first.collective), first.ranks, ranks)});
            continue;
        }
        for (const Schedule& schedule : schedules)
            if (Status can = check_runnable(schedule); !can)
                return fail(weftInvalidUsage, "{}: {} for {} cannot run: {}", name, first.algorithm,
                            name_of(first.collective), can.sentence());
        Proved proved;
        if (Status right = ranks > 0 ? check_set(schedules, {}, {}, &proved) : ok(); !right)
            return fail(weftInvalidUsage, "{}: {} for {} is not right: {}", name, first.algorithm,
                        name_of(first.collective), right.sentence());
        std::sort(schedules.begin(), schedules.end(),
                  [](const Schedule& one, const Schedule& other) { return one.rank < other.rank; });
        auto user = std::make_unique<UserAlgorithm>(UserAlgorithm{first.algorithm, name, std::move(schedules)});
        rows_.push_back({user->name.c_str(), user->schedules[0].collective, nullptr, nullptr, user->file.c_str(),
                         nullptr, nullptr, user.get(),
                         ranks > 0 && proved.in_rank_order ? Sums::in_rank_order : Sums::as_they_come});
        users_.push_back(std::move(user));
    }
    return ok();
}

}  // namespace weft
