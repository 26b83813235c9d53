#include "tests/train/trained_rank.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "src/base/arithmetic.hpp"

namespace weft::internal::test {

std::vector<std::pair<weftDataType_t, size_t>> model_of_all_types() {
    return {{weftFloat32, 33},  {weftFloat32, 1000}, {weftFloat16, 7},  {weftFloat64, 1},    {weftFloat32, 0},
            {weftBfloat16, 65}, {weftFloat64, 129},  {weftFloat32, 17}, {weftBfloat16, 300}, {weftFloat16, 511}};
}

double gradient_element(int rank, int iteration, int parameter, size_t i) {
    const uint64_t mixed = (uint64_t(rank + 1) * 7919 + uint64_t(iteration) * 104729 + uint64_t(parameter) * 1299709 +
                            uint64_t(i) * 15485863) *
                           0x9e3779b97f4a7c15u;
    return double(mixed >> 40) - double(mixed >> 40 >> 4 << 4) - 8;
}

double number_at(const void* memory, weftDataType_t type, size_t i) {
    return with_datatype(type, [&](auto constant) {
        using Numbers = Arithmetic<decltype(constant)::value>;
        return double(Numbers::widen(static_cast<const typename Numbers::Element*>(memory)[i]));
    });
}

void set_number(void* memory, weftDataType_t type, size_t i, double number) {
    with_datatype(type, [&](auto constant) {
        using Numbers = Arithmetic<decltype(constant)::value>;
        static_cast<typename Numbers::Element*>(memory)[i] =
            Numbers::round(static_cast<typename Numbers::Accumulator>(number));
    });
}

TrainedRank::TrainedRank(weftComm_t comm, const weftTrainDdpConfig_t& config,
                         const std::vector<std::pair<weftDataType_t, size_t>>& model)
    : model_(model), values_(model.size()), gradients_(model.size()) {
    check(weftCommUserRank(comm, &rank_));
    check(weftCommCount(comm, &ranks_));
    std::vector<weftTrainTensor_t> tensors;
    for (size_t p = 0; p < model_.size(); ++p) names_.push_back("layer" + std::to_string(p));
    for (size_t p = 0; p < model_.size(); ++p) {
        const auto [type, count] = model_[p];
        values_[p].resize(count * size_of(type));
        for (size_t i = 0; i < count; ++i) set_number(values_[p].data(), type, i, 100 * rank_ + int(p));
        gradients_[p].resize(p % 2 == 1 ? count * size_of(type) : 0);
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = names_[p].c_str();
        tensor.data = values_[p].data();
        tensor.gradient = gradients_[p].empty() ? nullptr : gradients_[p].data();
        tensor.count = count;
        tensor.datatype = type;
        tensors.push_back(tensor);
    }
    buffer_ = 1000 + rank_;
    weftTrainTensor_t buffer = WEFT_TRAIN_TENSOR_INITIALIZER;
    buffer.name = "running mean";
    buffer.data = &buffer_;
    buffer.count = 1;
    buffer.datatype = weftFloat64;
    check(weftTrainDdpCreate(&ddp_, comm, tensors.data(), tensors.size(), &buffer, 1, &config));
    // A rank that ends its object while others still make theirs would end those, too.
    check(weftBarrier(comm, nullptr));
}

void TrainedRank::check(weftResult_t result) {
    if (result != weftSuccess) complain(weftGetLastError(nullptr));
}

void TrainedRank::complain(const std::string& text) {
    if (wrong_.empty()) wrong_ = "rank " + std::to_string(rank_) + ": " + text;
}

double TrainedRank::parameter_value(int parameter) const {
    return number_at(values_[size_t(parameter)].data(), model_[size_t(parameter)].first, 0);
}

double TrainedRank::gradient_at(int parameter, size_t i) const {
    void* memory = nullptr;
    if (weftTrainDdpGetGradient(ddp_, parameter, &memory) != weftSuccess) return NAN;
    return number_at(memory, model_[size_t(parameter)].first, i);
}

void TrainedRank::compute(int parameter, int iteration, bool adds) {
    void* memory = nullptr;
    check(weftTrainDdpGetGradient(ddp_, parameter, &memory));
    const auto [type, count] = model_[size_t(parameter)];
    for (size_t i = 0; i < count; ++i)
        set_number(memory, type, i,
                   gradient_element(rank_, iteration, parameter, i) + (adds ? number_at(memory, type, i) : 0));
}

void TrainedRank::backward(int iteration, bool adds) {
    std::vector<int> order;
    for (int p = 0; p < parameters(); ++p) order.push_back(p);
    std::mt19937 random(uint32_t(rank_ * 1000 + iteration));
    std::shuffle(order.begin(), order.end(), random);
    for (const int p : order) {
        compute(p, iteration, adds);
        ready(p);
    }
}

void TrainedRank::compare(int parameter, size_t i, double expected, const char* when, double roundings, double lossy) {
    constexpr double largest = 64;
    const double digits[] = {0, 0, 0, 0, 0, 0, 0x1p-11, 0x1p-24, 0x1p-53, 0x1p-8};
    const double seen = gradient_at(parameter, i);
    const double allowed =
        roundings * digits[model_[size_t(parameter)].first] * std::max(1.0, std::fabs(expected)) + lossy * largest;
    if (std::fabs(seen - expected) <= allowed) return;
    complain(std::string(when) + ": element " + std::to_string(i) + " of parameter " + std::to_string(parameter) +
             " is " + std::to_string(seen) + ", not " + std::to_string(expected));
}

}  // namespace weft::internal::test
