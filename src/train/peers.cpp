#include "src/train/peers.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/base/arithmetic.hpp"

namespace weft::internal::train {

Status called(weftResult_t result) { return called(result, nullptr); }

Status called(weftResult_t result, weftComm_t comm) {
    if (result == weftSuccess) [[likely]]
        return ok();
    std::string sentence = weftGetLastError(comm);
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(comm, &info);
    const auto id = error_named(info.id);
    if (!id || info.code != result)
        return fail(error::internal_exception, "a call returned {} without an error: {}", int(result), sentence);
    // Status::text() appends the id again.
    const std::string ending = fmt::format(" [{}]", info.id);
    if (sentence.ends_with(ending)) sentence.resize(sentence.size() - ending.size());
    return Status(*id, std::move(sentence))
        .about({.rank = info.failedRank, .peer = info.peer, .sequence = info.sequence});
}

Status finished(weftResult_t result, weftComm_t comm) {
    if (result != weftInProgress) [[likely]]
        return called(result);
    while (result == weftInProgress) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        WEFT_TRY(called(weftCommGetAsyncError(comm, &result)));
    }
    return called(result, comm);
}

Result<std::unique_ptr<Peers>> Peers::make(weftComm_t parent, int color) {
    std::unique_ptr<Peers> peers(new Peers);
    WEFT_TRY(called(weftCommUserRank(parent, &peers->rank_)));
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = "training";
    const weftResult_t result = weftCommSplit(parent, color, peers->rank_, &peers->comm_, &config);
    // A parent with config.blocking 0 makes it in the background, and initTimeoutMs bounds that.
    WEFT_TRY(train::finished(result, peers->comm_));
    if (Status learned = peers->learn_members(parent); !learned) {
        peers->abort();  // the others wait for this rank's number
        return learned;
    }
    return peers;
}

Status Peers::learn_members(weftComm_t parent) {
    WEFT_TRY(called(weftCommUserRank(comm_, &rank_)));
    WEFT_TRY(called(weftCommCount(comm_, &ranks_)));
    int ranks = 0, rank = 0;
    WEFT_TRY(called(weftCommCount(parent, &ranks)));
    if (ranks_ == ranks) return ok();
    WEFT_TRY(called(weftCommUserRank(parent, &rank)));
    std::vector<int> members;
    members.resize(size_t(ranks_));
    WEFT_TRY(all_gather(&rank, members.data(), sizeof rank));
    members_ = std::move(members);
    return ok();
}

Result<std::unique_ptr<Peers>> Peers::over(weftComm_t comm) {
    std::unique_ptr<Peers> peers(new Peers);
    peers->owns_ = false;
    WEFT_TRY(called(weftCommUserRank(comm, &peers->rank_)));
    WEFT_TRY(called(weftCommCount(comm, &peers->ranks_)));
    peers->comm_ = comm;
    return peers;
}

Status Peers::named(Status status) const {
    if (status || members_.empty()) return status;
    FailureFacts facts = status.facts();
    if (facts.rank >= 0 && facts.rank < ranks_) facts.rank = member(facts.rank);
    if (facts.peer >= 0 && facts.peer < ranks_) facts.peer = member(facts.peer);
    std::string ranks;
    for (const int each : members_) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", each);
    return fail(status, "in the group of ranks {}: {}", ranks, status.sentence()).about(facts);
}

Status Peers::finished(weftResult_t result) const { return named(train::finished(result, comm_)); }

Peers::~Peers() {
    if (owns_ && comm_ && !aborted_.exchange(true)) (void)weftCommDestroy(comm_);
}

void Peers::abort() {
    if (!aborted_.exchange(true)) (void)weftCommAbort(comm_);
}

Status Peers::state() const {
    weftResult_t result = weftSuccess;
    WEFT_TRY(called(weftCommGetAsyncError(comm_, &result)));
    return named(called(result, comm_));
}

Status Peers::all_gather(const void* own, void* all, size_t bytes, weftStream_t stream) const {
    return finished(weftAllGather(own, all, bytes, weftUint8, comm_, stream));
}

Status Peers::all_to_all(const void* from, void* to, size_t bytes, weftStream_t stream) const {
    return finished(weftAlltoAll(from, to, bytes, weftUint8, comm_, stream));
}

Status Peers::all_reduce(void* data, size_t count, weftDataType_t type, weftRedOp_t op) const {
    return finished(weftAllReduce(data, data, count, type, op, comm_, nullptr));
}

Status Peers::all_reduce(const void* from, void* to, size_t count, weftDataType_t type, weftRedOp_t op,
                         weftStream_t stream) const {
    return finished(weftAllReduce(from, to, count, type, op, comm_, stream));
}

Status Peers::reduce_scatter(const void* from, void* to, std::span<const size_t> counts, weftDataType_t type,
                             weftRedOp_t op, weftStream_t stream) const {
    if (std::all_of(counts.begin(), counts.end(), [&](size_t count) { return count == counts[0]; }))
        return finished(weftReduceScatter(from, to, counts[0], type, op, comm_, stream));
    return finished(weftReduceScatterv(from, to, counts.data(), type, op, comm_, stream));
}

Status Peers::scatter(const void* from, void* to, size_t bytes, int root, weftStream_t stream) const {
    return finished(weftScatter(from, to, bytes, weftUint8, root, comm_, stream));
}

Status Peers::broadcast(void* data, size_t count, weftDataType_t type, int root, weftStream_t stream) const {
    return finished(weftBcast(data, count, type, root, comm_, stream));
}

Result<weftRedOp_t> Peers::average(weftDataType_t type, double divisor) {
    if (divisor == ranks_) return weftAvg;
    const auto known = averages_.find({type, divisor});
    if (known != averages_.end()) return known->second;
    weftRedOp_t op = weftSum;
    WEFT_TRY(with_datatype(type, [&](auto constant) {
        using Numbers = Arithmetic<decltype(constant)::value>;
        auto factor = Numbers::round(typename Numbers::Accumulator(1 / divisor));
        return named(called(weftRedOpCreatePreMulSum(&op, &factor, type, weftScalarHostImmediate, comm_)));
    }));
    averages_[{type, divisor}] = op;
    return op;
}

}  // namespace weft::internal::train
