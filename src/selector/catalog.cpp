#include "src/selector/catalog.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>

#include "src/base/file.hpp"
#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/checker/checker.hpp"
#include "src/schedule/validate.hpp"
#include "src/selector/algo_rules.hpp"

namespace weft::internal {

static constexpr size_t file_bytes_most = size_t(256) << 20;

Catalog Catalog::load(std::string_view files, int ranks, std::span<const Algorithm> own, bool any_order) {
    Catalog catalog;
    catalog.rows_.assign(own.begin(), own.end());
    catalog.any_order_ = any_order;
    while (!files.empty()) {
        const std::string name(files.substr(0, files.find(':')));
        files.remove_prefix(std::min(files.size(), name.size() + 1));
        if (!name.empty()) catalog.add_file(name, ranks);
    }
    return catalog;
}

// Communicators of several sizes read the same files, so a fault is reported once.
static void warn_once(const std::string& sentence) {
    struct Reported {
        std::mutex mutex;
        std::set<std::string> sentences;
    };
    static PerProcess<Reported> reported;
    Reported& all = reported.get();
    const std::lock_guard lock(all.mutex);
    if (all.sentences.insert(sentence).second) WEFT_LOG(warn, algo, "WEFT_ALGO_FILES: {}", sentence);
}

Result<std::shared_ptr<const Catalog>> Catalog::shared(std::string_view files, int ranks,
                                                       std::span<const Algorithm> own, bool any_order) {
    const std::tuple<std::string, int, bool> key{files, files.empty() ? 0 : ranks, any_order};
    return shared_by_process<const Catalog>(key, [&]() -> Result<std::shared_ptr<const Catalog>> {
        auto catalog = std::make_shared<const Catalog>(load(files, ranks, own, any_order));
        const LeftOut* other = nullptr;
        for (const LeftOut& one : catalog->left_out()) {
            if (one.faulty) {
                warn_once(one.message);
                continue;
            }
            WEFT_LOG(info, algo, "{}", one.message);
            if (!other) other = &one;
        }
        if (other && catalog->of_users().empty())
            WEFT_LOG(warn, algo, "WEFT_ALGO_FILES has nothing for {} ranks: {}", ranks, other->message);
        for (const std::string& one : catalog->assumptions()) WEFT_LOG(info, algo, "WEFT_ALGO_FILES: {}", one);
        for (const std::string& one : catalog->differing())
            WEFT_LOG(info, algo,
                     "WEFT_ALGO_FILES: {} sums in another order on each rank, as WEFT_ALGO_FILES_ORDER=any allows: the "
                     "bits of a result may differ between ranks",
                     one);
        return catalog;
    });
}

bool Catalog::has_name(std::string_view name) const {
    const std::vector<std::string_view> all = names();
    return std::find(all.begin(), all.end(), name) != all.end();
}

std::vector<std::string_view> Catalog::names() const {
    std::vector<std::string_view> names;
    const auto add = [&](std::string_view name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const Algorithm& row : rows_) add(row.name);
    for (const LeftOut& one : left_out_)
        if (!one.faulty) add(one.name);
    return names;
}

Status Catalog::check(const char* variable, std::string_view text) const {
    std::vector<std::string_view> known = names();
    for (const LeftOut& one : left_out_)
        if (one.faulty && !one.name.empty()) known.push_back(one.name);
    if (Status status = AlgoRules::check(variable, text, known); !status) {
        const std::string left_out = faults();
        if (left_out.empty()) return status;
        return fail(status, "{}; WEFT_ALGO_FILES: {}", status.sentence(), left_out);
    }
    for (const LeftOut& one : left_out_)
        if (one.faulty && !one.name.empty() && !has_name(one.name) && AlgoRules::wants(text, one.name))
            return fail(error::algorithm_none, "{} names `{}`, which cannot be used: WEFT_ALGO_FILES: {}", variable,
                        one.name, one.message);
    return ok();
}

std::string Catalog::faults() const {
    std::string all;
    for (const LeftOut& one : left_out_)
        if (one.faulty) all += fmt::format("{}{}", all.empty() ? "" : "; ", one.message);
    return all;
}

void Catalog::add_file(const std::string& name, int ranks) {
    const auto leave_out = [&](std::string algorithm, const std::string& why) {
        left_out_.push_back({std::move(algorithm), why + ": left out", true});
    };
    auto text = read_file(name, file_bytes_most);
    if (!text) return leave_out({}, text.status().sentence());
    auto read = read_schedules(*text, any_order_);
    if (!read) return leave_out({}, fmt::format("{}: {}", name, read.status().sentence()));
    if (!read->assumed.empty()) assumptions_.push_back(fmt::format("{}: {}", name, read->assumed));
    for (const char letter : *text) digest_ = (digest_ ^ uint8_t(letter)) * 0x100000001b3u + 1;
    // Each set is one algorithm: one schedule for each rank, in any order.
    for (std::vector<Schedule>& schedules : read->take_sets()) {
        const Schedule& first = schedules[0];
        const std::string algorithm = first.algorithm,
                          title = fmt::format("{} for {}", algorithm, name_of(first.collective));
        if (Status added = add_set(name, std::move(schedules), ranks, *read); !added)
            leave_out(algorithm, fmt::format("{}: {} {}", name, title, added.sentence()));
    }
}

// The failure's sentence continues after the algorithm's name.
Status Catalog::add_set(const std::string& file, std::vector<Schedule> schedules, int ranks, const ScheduleFile& read) {
    const Schedule& first = schedules[0];
    const auto taken = std::find_if(rows_.begin(), rows_.end(), [&](const Algorithm& row) {
        return !row.of_user && row.name == first.algorithm && row.collective == first.collective;
    });
    if (taken != rows_.end())
        return fail(error::algorithm_file, "has the name of a built-in algorithm; choose another name");
    if (ranks > 0 && first.ranks != ranks) {
        left_out_.push_back(
            {first.algorithm, fmt::format("{}: {} for {} is for {} ranks, this communicator has {}: left out", file,
                                          first.algorithm, name_of(first.collective), first.ranks, ranks)});
        return ok();
    }
    for (const Schedule& schedule : schedules)
        if (Status can = check_runnable(schedule); !can)
            return fail(error::algorithm_file, "cannot run: {}", can.sentence());
    Proved proved;
    if (Status right = ranks > 0 ? read.check(schedules, {}, {.any_order = any_order_}, &proved) : ok(); !right)
        return fail(error::algorithm_file, "is wrong: {}{}", right.sentence(),
                    proved.orders_differ ? "; WEFT_ALGO_FILES_ORDER=any allows that" : "");
    if (proved.orders_differ) differing_.push_back(fmt::format("{} of {}", first.algorithm, file));
    std::sort(schedules.begin(), schedules.end(),
              [](const Schedule& one, const Schedule& other) { return one.rank < other.rank; });
    auto user = std::make_unique<UserAlgorithm>(UserAlgorithm{first.algorithm, file, std::move(schedules)});
    rows_.push_back({user->name.c_str(), user->schedules[0].collective, nullptr, nullptr, user->file.c_str(), nullptr,
                     nullptr, user.get(),
                     ranks > 0 && proved.in_rank_order ? Sums::in_rank_order : Sums::as_they_come});
    users_.push_back(std::move(user));
    return ok();
}

}  // namespace weft::internal
