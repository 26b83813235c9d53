// rank.cpp: barriers and exchanges, built on all-reduce.
#include "rank.hpp"

#include <fmt/format.h>

#include <cstring>

namespace perf {

Rank::Rank(weftComm_t comm, Gpu* gpu) : comm_(comm), gpu_(gpu) {
    expect(weftCommUserRank(comm, &index_), "weftCommUserRank");
    expect(weftCommCount(comm, &count_), "weftCommCount");
}

void Rank::fail(weftResult_t result, const char* call) const {
    std::string sentence = weftGetLastError(comm_);
    if (sentence.empty()) sentence = weftGetLastError(nullptr);
    throw Failure(fmt::format("{}: {}", call, sentence.empty() ? weftGetErrorString(result) : sentence));
}

void Rank::settle() const {
    if (!gpu_) return;
    gpu_->synchronize();
    weftResult_t result = weftSuccess;
    expect(weftCommGetAsyncError(comm_, &result), "weftCommGetAsyncError");
    expect(result, "a call on the GPU's stream");
}

void Rank::barrier() {
    expect(weftAllReduce(&token_[0], &token_[1], 1, weftFloat64, weftSum, comm_, nullptr), "weftAllReduce (barrier)");
}

void Rank::combine(std::span<double> values, weftRedOp_t op) {
    expect(weftAllReduce(values.data(), values.data(), values.size(), weftFloat64, op, comm_, nullptr),
           "weftAllReduce (exchange)");
}

double Rank::combine(double value, weftRedOp_t op) {
    combine(std::span(&value, 1), op);
    return value;
}

std::vector<std::string> Rank::gather(const std::string& text) {
    // A sum to which every rank adds zeros except at its own place.
    std::vector<char> all(text_bytes * size_t(count_));
    std::memcpy(&all[text_bytes * size_t(index_)], text.data(), std::min(text.size(), text_bytes - 1));
    expect(weftAllReduce(all.data(), all.data(), all.size(), weftUint8, weftSum, comm_, nullptr),
           "weftAllReduce (gather)");
    std::vector<std::string> texts;
    for (size_t i = 0; i < size_t(count_); ++i) texts.emplace_back(&all[text_bytes * i]);
    return texts;
}

}  // namespace perf
