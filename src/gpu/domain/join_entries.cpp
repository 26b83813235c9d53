#include "src/gpu/domain/join_entries.hpp"

#include <numeric>
#include <utility>

#include "src/segment/oob_store.hpp"

namespace weft::internal::cuda {

namespace {

constexpr uint64_t domain_oob_key = 0x6465766963650000u;

const JoinReport& report_at(const std::byte* entry) { return *reinterpret_cast<const JoinReport*>(entry); }

}  // namespace

JoinEntries::JoinEntries(const DomainRanks& ranks, Readers readers)
    : ranks_(ranks), readers_(readers), posting_(ranks.members) {
    if (readers == Readers::own_host) return;
    posting_.resize(size_t(ranks.count));
    std::iota(posting_.begin(), posting_.end(), 0);
}

uint64_t JoinEntries::key(int stage) const {
    return domain_oob_key + uint64_t(stage) + uint64_t(stage >= agreed ? 0 : of_each_method * int(method_));
}

Status JoinEntries::post(int stage, const void* value, size_t bytes) {
    const OobStore store(*ranks_.segment);
    if (readers_ == Readers::own_host || ranks_.other_hosts.empty())
        return store.put(ranks_.rank, ranks_.rank, key(stage), value, bytes);
    for (const int other : ranks_.other_hosts) WEFT_TRY(store.put(ranks_.rank, other, key(stage), value, bytes));
    return ok();
}

Status JoinEntries::post_report(int stage, const Status& status, bool root, const RankBits& unreached) {
    return put_in_parts(status, root, unreached, [&](int part, const JoinReport& join_report) {
        return post(stage + part, &join_report, sizeof join_report);
    });
}

const std::byte* JoinEntries::find(int peer, int stage) const {
    return OobStore(*ranks_.segment).get(peer, key(stage));
}

bool JoinEntries::all_have_put(int stage) const {
    for (const int peer : posting_)
        if (!find(peer, stage)) return false;
    return true;
}

JoinEntries::Obstacle JoinEntries::first_obstacle(int stage) const {
    for (const bool root : {true, false})
        for (const int peer : posting_) {
            const JoinReport& report = report_at(find(peer, stage));
            if (report.good || report.root != root) continue;
            const std::string text = text_of([&](int part) { return find(peer, stage + part); });
            return {fmt::format("rank {}: {}", peer, text), root};
        }
    return {};
}

RankBits JoinEntries::unreached_in(int stage) const {
    RankBits ranks;
    for (const int peer : ranks_.members) {
        const JoinReport& report = report_at(find(peer, stage));
        if (!report.good && report.unreached().none()) return ranks_.all_members();
        ranks |= report.unreached();
    }
    return ranks;
}

Status JoinEntries::report_to_hosts(const std::string& obstacle) {
    if (!ranks_.leads()) return ok();
    const Status end = obstacle.empty() ? ok() : Status(error::gpu_peer_access, obstacle);
    for (const int other : ranks_.other_hosts)
        WEFT_TRY(put_in_parts(end, false, {}, [&](int part, const JoinReport& join_report) {
            return OobStore(*ranks_.segment)
                .put(ranks_.rank, other, key(agreed + part), &join_report, sizeof join_report);
        }));
    return ok();
}

bool JoinEntries::hosts_agree(std::string& obstacle) const {
    for (const int other : ranks_.other_hosts)
        if (!find(other, agreed)) return false;
    std::pair<int, std::string> first{ranks_.count, {}};
    if (!obstacle.empty()) first = {ranks_.members[0], obstacle};
    for (const int other : ranks_.other_hosts)
        if (!report_at(find(other, agreed)).good && other < first.first)
            first = {other, text_of([&](int part) { return find(other, agreed + part); })};
    obstacle = first.second;
    return true;
}

}  // namespace weft::internal::cuda
