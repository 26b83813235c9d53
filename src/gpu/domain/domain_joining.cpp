// domain_joining.cpp: the ranks make a domain (domain.hpp) together: the entries that they exchange, and their trials.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/log.hpp"
#include "src/gpu/domain/domain_memory.hpp"
#include "src/gpu/kernels/join_report.hpp"

namespace weft::internal::cuda {

namespace {

constexpr uint64_t domain_oob_key = 0x6465766963650000u;

uint32_t own_number(int rank) { return 0x77656674u + uint32_t(rank); }
uint32_t number_between(int from, int to) { return 0x9e3779b9u * uint32_t(from * Domain::ranks_max + to + 1) | 1; }

}  // namespace

// Makes the resources that every method needs.
Status Domain::begin() {
    const Context& context = kernels_->context();
    if (!obstacle_.empty()) return {error::gpu_peer_access, obstacle_};
    auto words = SharedAbortFlag::of(segment_, context);
    if (!words) return words.take_status();
    shared_abort_flag_ = std::move(*words);
    auto abort = shared_abort_flag_->abort();
    if (!abort) return abort.take_status();
    abort_ = *abort;
    WEFT_TRY(take_host_reports());
    if (remote_.data()) memset(remote_.data(), 0, connections_.remote_words_bytes());
    for (size_t i = 0; i < remote_ranks_.size(); ++i)
        memset(static_cast<std::byte*>(remote_.data()) + connections_.remote_bytes() + i * sizeof(RemoteMessageArea), 0,
               offsetof(RemoteMessageArea, sent_slots));
    memset(host_reports_.data(), 0, sizeof(HostReports));
    report_ = &static_cast<HostReports*>(host_reports_.data())->report;
    for (Event* event : {&done_, &captured_done_}) {
        auto made = Event::create(context);
        if (!made) return made.take_status();
        *event = std::move(*made);
    }
    auto stream = Stream::create(context);
    if (!stream) return stream.take_status();
    stream_ = std::move(*stream);
    return ok();
}

uint64_t Domain::key(int stage) const {
    return domain_oob_key + uint64_t(stage) + uint64_t(stage >= agreed ? 0 : of_each_way * int(method_));
}
// The entry stays in the writer's own heap, where all ranks of the host read it.
Status Domain::post(int stage, const void* value, size_t bytes) {
    return segment_->oob_put(rank_, rank_, key(stage), value, bytes);
}
const std::byte* Domain::find(int peer, int stage) const { return segment_->oob_get(peer, key(stage)); }

DomainLayout Domain::layout() const { return {ranks_, !other_hosts_.empty(), connections_}; }

bool Domain::all_have_put(int stage) const {
    for (const int peer : members_)
        if (!find(peer, stage)) return false;
    return true;
}

std::vector<int> Domain::missing() const {
    std::vector<int> ranks;
    if (stage_ == Stage::known) return ranks;
    if (late_ >= 0) return {late_};
    const bool exporting = stage_ == Stage::exporting || stage_ == Stage::reaching, remote = stage_ == Stage::agreeing;
    const int stage = exporting ? exports : remote ? agreed : find(rank_, verified) ? verified : reached;
    for (const int peer : remote ? other_hosts_ : members_)
        if (!find(peer, stage)) ranks.push_back(peer);
    return ranks;
}

Status Domain::post_join_report(int stage, const Status& status, bool root, uint64_t unreached) {
    return put_in_parts(status, root, unreached, [&](int part, const JoinReport& join_report) {
        return post(stage + part, &join_report, sizeof join_report);
    });
}

Domain::Obstacle Domain::first_obstacle(int stage) const {
    for (const bool root : {true, false})
        for (const int peer : members_) {
            const auto* join_report = reinterpret_cast<const JoinReport*>(find(peer, stage));
            if (join_report->good || join_report->root != root) continue;
            const std::string text = text_of([&](int part) { return find(peer, stage + part); });
            return {fmt::format("rank {}: {}", peer, text), root};
        }
    return {};
}

uint64_t Domain::all_members() const {
    uint64_t all = 0;
    for (const int member : members_) all |= bit(member);
    return all;
}

std::vector<int> Domain::host_backed() const {
    std::vector<int> ranks;
    for (const int member : members_)
        if ((host_backed_ & bit(member)) != 0) ranks.push_back(member);
    return ranks;
}

std::string Domain::fallback_text() const {
    if (fallback_reason_.empty()) return {};
    return host_backed_ == all_members() ? ", through host memory"
                                         : ", through host memory to and from " + ranks_text(host_backed());
}

uint64_t Domain::unreached_in(int stage) const {
    uint64_t ranks = 0;
    for (const int peer : members_) {
        const auto* join_report = reinterpret_cast<const JoinReport*>(find(peer, stage));
        if (!join_report->good && join_report->unreached() == 0) return all_members();
        ranks |= join_report->unreached();
    }
    return ranks;
}

// The host's first rank reports the result, which is equal on all ranks of the host.
Status Domain::tell_hosts() {
    if (!leads()) return ok();
    const Status end = obstacle_.empty() ? ok() : Status(error::gpu_peer_access, obstacle_);
    for (const int other : other_hosts_)
        WEFT_TRY(put_in_parts(end, false, 0, [&](int part, const JoinReport& join_report) {
            return segment_->oob_put(rank_, other, key(agreed + part), &join_report, sizeof join_report);
        }));
    return ok();
}

// Whether all hosts have reported. Then the obstacle is that of the first host that has one.
bool Domain::hosts_agree() {
    for (const int other : other_hosts_)
        if (!find(other, agreed)) return false;
    std::pair<int, std::string> first{ranks_, {}};
    if (!obstacle_.empty()) first = {members_[0], obstacle_};
    for (const int other : other_hosts_)
        if (!reinterpret_cast<const JoinReport*>(find(other, agreed))->good && other < first.first)
            first = {other, text_of([&](int part) { return find(other, agreed + part); })};
    obstacle_ = first.second;
    return true;
}

Result<bool> Domain::advance() {
    if (stage_ == Stage::known) return true;
    const ContextScope scope(kernels_->context());
    const RelaxedCapture relaxed(kernels_->driver());
    if (stage_ == Stage::exporting && (method_ < ShareMethod::some_host || leads() || find(members_[0], exports))) {
        WEFT_TRY(export_memory());
        stage_ = Stage::reaching;
    }
    if (stage_ == Stage::reaching && all_have_put(exports)) {
        auto reached = reach();
        if (!reached) return reached;
        if (*reached) stage_ = Stage::verifying;
    }
    if (stage_ == Stage::verifying && all_have_put(reached)) {
        if (!first_obstacle(reached).text.empty()) {
            conclude(reached);
        } else {
            if (!find(rank_, verified)) WEFT_TRY(verify());
            if (all_have_put(verified)) conclude(verified);
        }
    }
    if (stage_ == Stage::agreeing) {
        if (!told_) WEFT_TRY(tell_hosts());
        told_ = true;
        if (hosts_agree()) stage_ = Stage::known;
    }
    return stage_ == Stage::known;
}

// All ranks get the same result here, because they have read the same entries.
void Domain::conclude(int stage) {
    withdraw_fds();  // all ranks have fetched it, or never will
    Obstacle obstacle = first_obstacle(stage);
    if (!tried_.empty() && !obstacle.text.empty())
        obstacle.text = fmt::format("{}; and {}: {}", tried_,
                                    method_ >= ShareMethod::some_host ? "through host memory" : "by file descriptors",
                                    obstacle.text);
    // A device that fails at one step is not used at all.
    if (obstacle.text.empty() || obstacle.root || method_ == ShareMethod::host) {
        if (method_ == ShareMethod::descriptors && obstacle.text.empty() && leads())
            WEFT_LOG_RANK(rank_, info, init, "device memory is mapped by file descriptors: {}", tried_);
        obstacle_ = std::move(obstacle.text);
        stage_ = other_hosts_.empty() ? Stage::known : Stage::agreeing;
        return;
    }
    tried_ = std::move(obstacle.text);
    // If memory can be mapped but does not work, another mapping of it will not work either.
    const bool asked_for_host = segment_->header().agreed.gpu_path == GpuPath::host;
    if (method_ == ShareMethod::ipc && stage == reached && !one_process() && !asked_for_host) {
        method_ = ShareMethod::descriptors;
        std::fill(bases_.begin(), bases_.end(), 0);
    } else {
        host_backed_ = method_ < ShareMethod::some_host ? unreached_in(stage) : all_members();
        method_ = host_backed_ == all_members() ? ShareMethod::host : ShareMethod::some_host;
        if (leads())
            WEFT_LOG_RANK(rank_, warn, init, "device memory{} goes through the host's, which is slow: {}",
                          method_ == ShareMethod::host ? "" : " of " + ranks_text(host_backed()), tried_);
        fallback_reason_ = tried_;
        for (const int rank : host_backed()) bases_[size_t(rank)] = 0;
    }
    obstacle_.clear();
    not_exported_.clear();
    stage_ = Stage::exporting;
}

void Domain::withdraw_fds() {
    if (fd_server_) fd_server_->withdraw(fds_id_);
    fd_server_ = nullptr;
}

// The values that peers will read here, and the values that this rank will write to them.
Status Domain::write_probe() {
    ReachProbe& probe = static_cast<HostReports*>(host_reports_.data())->probe;
    probe = {};
    probe.own = own_number(rank_);
    for (const int peer : members_) probe.given[peer] = number_between(rank_, peer);
    WEFT_TRY(copy_async(kernels_->driver(), bases_[size_t(rank_)] + layout().probe,
                        host_reports_.address() + offsetof(HostReports, probe), sizeof probe, stream_.handle()));
    return stream_.synchronize();
}

// Programs are copied now: a first call may be captured, and the copy would be captured with it.
Status Domain::write_programs() {
    if (connections_.program_bytes() == 0) return ok();
    std::vector<std::byte*> areas;
    for (const CUdeviceptr base : bases_)
        areas.push_back(base ? reinterpret_cast<std::byte*>(base + layout().connections) : nullptr);
    const std::vector<std::byte> programs =
        connections_.programs(rank_, areas, reinterpret_cast<std::byte*>(remote_.address()));
    WEFT_TRY(copy_async(kernels_->driver(), memory_.address() + layout().programs,
                        reinterpret_cast<CUdeviceptr>(programs.data()), programs.size(), stream_.handle()));
    return stream_.synchronize();
}

// Uses a kernel, as messages do: copy engines may take another path.
Status Domain::copy_by_kernel(CUdeviceptr to, CUdeviceptr from) {
    KernelArguments arguments{};
    arguments.ranks = 1;
    arguments.op = weftSum;
    arguments.bytes = sizeof(uint32_t);
    arguments.inputs[0] = reinterpret_cast<const std::byte*>(from);
    arguments.receive = reinterpret_cast<std::byte*>(to);
    void* parameters[] = {&arguments};
    return kernels_->copier().launch({.blocks = 1, .threads = 32}, stream_.handle(), parameters);
}

Status Domain::probe(int peer) {
    const CUdeviceptr own = bases_[size_t(rank_)] + layout().probe, theirs = bases_[size_t(peer)] + layout().probe;
    const size_t word = sizeof(uint32_t);
    WEFT_TRY(
        copy_by_kernel(own + offsetof(ReachProbe, seen) + word * size_t(peer), theirs + offsetof(ReachProbe, own)));
    return copy_by_kernel(theirs + offsetof(ReachProbe, from) + word * size_t(rank_),
                          own + offsetof(ReachProbe, given) + word * size_t(peer));
}

// Maps the exports of the others, reads them and writes to them. False: some process has not passed its descriptor yet.
Result<bool> Domain::reach() {
    late_ = -1;
    uint64_t unreached = 0;
    Status first;  // the first failure
    Status done = [&]() -> Status {
        if (!obstacle_.empty()) return {error::gpu_peer_access, obstacle_};
        if (!not_exported_.empty()) return {error::gpu_peer_access, not_exported_};
        for (const int peer : members_) {
            if (bases_[size_t(peer)] != 0) continue;  // mapped by an earlier trial, our own, or in host memory
            Status status = map(peer);
            if (status) continue;
            if (status.code() == weftTimeout && segment_->alive(peer)) return late_ = peer, ok();
            if (first) first = fail(status, "cannot reach rank {}'s memory: {}", peer, status.sentence());
            unreached |= bit(peer);
        }
        for (const int peer : members_)
            if (peer != rank_ && bases_[size_t(peer)] != 0) WEFT_TRY(probe(peer));
        if (unreached == 0) WEFT_TRY(write_programs());
        return stream_.synchronize();
    }();
    if (late_ >= 0) return false;
    if (done)
        done = std::move(first);
    else
        unreached = 0;
    if (!done) WEFT_LOG_RANK(rank_, info, init, "no device memory in common: {}", done.sentence());
    WEFT_TRY(post_join_report(reached, done, !obstacle_.empty(), unreached));
    return true;
}

// Checks that the values read were right, and that the values of peers have arrived.
Status Domain::verify() {
    uint64_t unreached = 0;
    Status first;  // the first fault
    Status done = [&]() -> Status {
        ReachProbe& probe = static_cast<HostReports*>(host_reports_.data())->probe;
        WEFT_TRY(copy_async(kernels_->driver(), host_reports_.address() + offsetof(HostReports, probe),
                            bases_[size_t(rank_)] + layout().probe, sizeof probe, stream_.handle()));
        WEFT_TRY(stream_.synchronize());
        for (const int peer : members_) {
            if (peer == rank_) continue;
            const bool reads = probe.seen[peer] == own_number(peer),
                       is_written = probe.from[peer] == number_between(peer, rank_);
            if (!reads) unreached |= bit(peer);
            if (!is_written) unreached |= bit(rank_);
            if (!first || (reads && is_written)) continue;
            first =
                reads
                    ? fail(error::gpu_peer_access, "what rank {} wrote into its device memory did not arrive", peer)
                    : fail(error::gpu_peer_access, "reads wrong values where rank {}'s device memory is mapped", peer);
        }
        return ok();
    }();
    if (done)
        done = std::move(first);
    else
        unreached = 0;
    if (!done) WEFT_LOG_RANK(rank_, warn, init, "peer access between GPUs does not work: {}", done.sentence());
    return post_join_report(verified, done, false, unreached);
}

}  // namespace weft::internal::cuda
