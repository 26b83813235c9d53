#include "src/gpu/domain/domain_join.hpp"

#include <utility>

#include "src/base/log.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal::cuda {

// Makes the resources that every method needs.
Status DomainJoin::begin() {
    if (!obstacle_.empty()) return {error::gpu_peer_access, obstacle_};
    WEFT_TRY(memory_.begin());
    WEFT_TRY(order_.begin(memory_.shared_abort_flag(), memory_.reports().ended));
    return test_.begin();
}

// A failure leaves the communicator without a domain, but keeps its host ranks: the reason is reported to all. A
// failure of the descriptor method only rules out that method.
Status DomainJoin::export_memory() {
    Status made = entries_.method() == ShareMethod::ipc ? begin() : ok();
    Status posted = exports_.post(ranks_.listed(host_backed_), made);
    if (!made) (entries_.method() == ShareMethod::descriptors ? not_exported_ : obstacle_) = made.sentence();
    return posted;
}

std::vector<int> DomainJoin::missing() const {
    std::vector<int> ranks;
    if (stage_ == Stage::known) return ranks;
    if (stage_ == Stage::multicast) return multicast_.missing();
    if (stage_ == Stage::fabric) return fabric_.missing();
    if (late_ >= 0) return {late_};
    const bool exporting = stage_ == Stage::exporting || stage_ == Stage::reaching, remote = stage_ == Stage::agreeing;
    const int stage = exporting                                           ? JoinEntries::exports
                      : remote                                            ? JoinEntries::agreed
                      : entries_.find(ranks_.rank, JoinEntries::verified) ? JoinEntries::verified
                                                                          : JoinEntries::reached;
    for (const int peer : remote ? ranks_.other_hosts : ranks_.members)
        if (!entries_.find(peer, stage)) ranks.push_back(peer);
    return ranks;
}

std::string DomainJoin::fallback_text() const {
    if (fallback_reason_.empty()) return {};
    return host_backed_ == ranks_.all_members()
               ? ", through host memory"
               : ", through host memory to and from " + ranks_text(ranks_.listed(host_backed_));
}

Result<bool> DomainJoin::advance() {
    if (stage_ == Stage::known) return true;
    const ContextScope scope(memory_.kernels().context());
    const RelaxedCapture relaxed(memory_.kernels().driver());
    if (stage_ == Stage::exporting && (entries_.method() < ShareMethod::some_host || ranks_.leads() ||
                                       entries_.find(ranks_.members[0], JoinEntries::exports))) {
        WEFT_TRY(export_memory());
        stage_ = Stage::reaching;
    }
    if (stage_ == Stage::reaching && entries_.all_have_put(JoinEntries::exports)) {
        auto reached = reach();
        if (!reached) return reached;
        if (*reached) stage_ = Stage::verifying;
    }
    if (stage_ == Stage::verifying && entries_.all_have_put(JoinEntries::reached)) {
        if (!entries_.first_obstacle(JoinEntries::reached).text.empty()) {
            conclude(JoinEntries::reached);
        } else {
            if (!entries_.find(ranks_.rank, JoinEntries::verified)) WEFT_TRY(verify());
            if (entries_.all_have_put(JoinEntries::verified)) conclude(JoinEntries::verified);
        }
    }
    if (stage_ == Stage::multicast) {
        auto known = multicast_.advance();
        if (!known) return known;
        if (*known) stage_ = Stage::known;
    }
    if (stage_ == Stage::reporting) {
        WEFT_TRY(entries_.report_to_hosts(obstacle_));
        stage_ = Stage::agreeing;
    }
    if (stage_ == Stage::agreeing && entries_.hosts_agree(obstacle_))
        stage_ = obstacle_.empty() && fabric_.wanted() ? Stage::fabric : Stage::known;
    if (stage_ == Stage::fabric) {
        auto known = fabric_.advance();
        if (!known) return known;
        if (*known) stage_ = Stage::known;
    }
    return stage_ == Stage::known;
}

// All ranks get the same result here, because they have read the same entries.
void DomainJoin::conclude(int stage) {
    const ShareMethod method = entries_.method();
    withdraw();  // all ranks have fetched it, or never will
    JoinEntries::Obstacle obstacle = entries_.first_obstacle(stage);
    if (!tried_.empty() && !obstacle.text.empty())
        obstacle.text = fmt::format("{}; and {}: {}", tried_,
                                    method >= ShareMethod::some_host ? "through host memory" : "by file descriptors",
                                    obstacle.text);
    // A device that fails at one step is not used at all.
    if (obstacle.text.empty() || obstacle.root || method == ShareMethod::host) {
        if (method == ShareMethod::descriptors && obstacle.text.empty() && ranks_.leads())
            WEFT_LOG_RANK(ranks_.rank, info, init, "device memory is mapped by file descriptors: {}", tried_);
        obstacle_ = std::move(obstacle.text);
        const bool multicast = multicast_.wanted() && obstacle_.empty() && method < ShareMethod::some_host;
        stage_ = ranks_.several_hosts() ? Stage::reporting : multicast ? Stage::multicast : Stage::known;
        return;
    }
    tried_ = std::move(obstacle.text);
    // If memory can be mapped but does not work, another mapping of it will not work either.
    const bool asked_for_host = ranks_.segment->header().agreed.gpu.path == GpuPath::host;
    if (method == ShareMethod::ipc && stage == JoinEntries::reached && !ranks_.one_process() && !asked_for_host) {
        entries_.set_method(ShareMethod::descriptors);
        for (int rank = 0; rank < ranks_.count; ++rank) memory_.bases()[size_t(rank)] = 0;
    } else {
        host_backed_ = method < ShareMethod::some_host ? entries_.unreached_in(stage) : ranks_.all_members();
        const bool all = host_backed_ == ranks_.all_members();
        const std::vector<int> host_backed = ranks_.listed(host_backed_);
        entries_.set_method(all ? ShareMethod::host : ShareMethod::some_host);
        if (ranks_.leads())
            WEFT_LOG_RANK(ranks_.rank, warn, init, "device memory{} goes through the host's, which is slow: {}",
                          all ? "" : " of " + ranks_text(host_backed), tried_);
        fallback_reason_ = tried_;
        for (const int rank : host_backed) memory_.bases()[size_t(rank)] = 0;
    }
    obstacle_.clear();
    not_exported_.clear();
    stage_ = Stage::exporting;
}

// Maps the exports of the others, reads them and writes to them. False: some process has not passed its descriptor yet.
Result<bool> DomainJoin::reach() {
    late_ = -1;
    RankBits unreached;
    Status first;  // the first failure
    Status done = [&]() -> Status {
        if (!obstacle_.empty()) return {error::gpu_peer_access, obstacle_};
        if (!not_exported_.empty()) return {error::gpu_peer_access, not_exported_};
        for (const int peer : ranks_.members) {
            if (memory_.bases()[size_t(peer)] != 0) continue;  // mapped by an earlier trial, our own, or in host memory
            Status status = exports_.map(peer);
            if (status) continue;
            if (status.code() == weftTimeout && Liveness(*ranks_.segment).alive(peer)) return late_ = peer, ok();
            if (first) first = fail(status, "cannot reach rank {}'s memory: {}", peer, status.sentence());
            unreached.add(peer);
        }
        for (const int peer : ranks_.members)
            if (peer != ranks_.rank && memory_.bases()[size_t(peer)] != 0) WEFT_TRY(test_.access(peer));
        if (unreached.none()) WEFT_TRY(test_.write_programs());
        return test_.synchronize();
    }();
    if (late_ >= 0) return false;
    if (done)
        done = std::move(first);
    else
        unreached = {};
    if (!done) WEFT_LOG_RANK(ranks_.rank, info, init, "no device memory in common: {}", done.sentence());
    WEFT_TRY(entries_.post_report(JoinEntries::reached, done, !obstacle_.empty(), unreached));
    return true;
}

// Checks that the values read were right, and that the values of peers have arrived.
Status DomainJoin::verify() {
    RankBits unreached;
    Status fault;
    Status done = test_.check(unreached, fault);
    if (done)
        done = std::move(fault);
    else
        unreached = {};
    if (!done) WEFT_LOG_RANK(ranks_.rank, warn, init, "peer access between GPUs does not work: {}", done.sentence());
    return entries_.post_report(JoinEntries::verified, done, false, unreached);
}

}  // namespace weft::internal::cuda
