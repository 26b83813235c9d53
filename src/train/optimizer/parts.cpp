#include "src/train/optimizer/parts.hpp"

#include <cstring>

#include "src/kernels/cpu_kernels.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// All ranks of `comm` call it: the sentence of one that has failed becomes the others' failure.
Status tell_failure(weftComm_t comm, const Status& own) {
    int rank = 0;
    WEFT_TRY(called(weftCommUserRank(comm, &rank)));
    int32_t failed = own ? -1 : rank;
    WEFT_TRY(finished(weftAllReduce(&failed, &failed, 1, weftInt32, weftMax, comm, nullptr), comm));
    if (failed < 0) return ok();
    char sentence[1024] = {};
    if (failed == rank) own.sentence().copy(sentence, sizeof sentence - 1);
    WEFT_TRY(finished(weftBroadcast(sentence, sentence, sizeof sentence, weftUint8, failed, comm, nullptr), comm));
    return fail(error::train_offload_peer, "the offload of rank {} failed: {}", failed, sentence)
        .about({.rank = failed});
}

}  // namespace

const float* read_block(const void* memory, weftDataType_t type, size_t first, size_t count, float* block) {
    if (type == weftFloat32) return static_cast<const float*>(memory) + first;
    cpu_kernels().widen[type](block, static_cast<const uint16_t*>(memory) + first, count);
    return block;
}

void write_block(void* memory, weftDataType_t type, size_t first, size_t count, const float* block) {
    if (type == weftFloat32)
        memcpy(static_cast<float*>(memory) + first, block, count * sizeof(float));
    else
        cpu_kernels().narrow[type](static_cast<uint16_t*>(memory) + first, block, count);
}

Status Axes::reduce(std::span<double> numbers, std::span<const uint32_t> masks, weftRedOp_t op) const {
    std::vector<double> sent;
    for (int axis = 0; axis < count(); ++axis) {
        const auto is_sent = [&](size_t i) { return (masks[i] >> axis & 1u) != 0; };
        sent.clear();
        for (size_t i = 0; i < numbers.size(); ++i)
            if (is_sent(i)) sent.push_back(numbers[i]);
        if (sent.empty()) continue;
        const weftComm_t comm = comms_[size_t(axis)];
        WEFT_TRY(finished(weftAllReduce(sent.data(), sent.data(), sent.size(), weftFloat64, op, comm, nullptr), comm));
        size_t next = 0;
        for (size_t i = 0; i < numbers.size(); ++i)
            if (is_sent(i)) numbers[i] = sent[next++];
    }
    return ok();
}

Result<bool> Axes::any(bool own) const {
    int32_t found = own ? 1 : 0;
    for (const weftComm_t comm : comms_)
        WEFT_TRY(finished(weftAllReduce(&found, &found, 1, weftInt32, weftMax, comm, nullptr), comm));
    return found != 0;
}

Status Axes::agree(Status own) const {
    Status agreed = std::move(own);
    for (const weftComm_t comm : comms_) {
        const bool failed = !agreed;
        Status sent = tell_failure(comm, agreed);
        if (!failed) agreed = std::move(sent);  // its own failure comes first
    }
    return agreed;
}

}  // namespace weft::internal::train
