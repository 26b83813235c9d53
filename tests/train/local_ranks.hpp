// local_ranks.hpp: the parameters of one rank in tests of rare communication: all types, odd counts, and a plain
// copy in double precision.
#pragma once
#include <weft/train.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

// Thread-bound, to a rank's thread.
struct LocalRank {
    std::vector<std::pair<weftDataType_t, size_t>> model;
    std::vector<std::vector<std::byte>> values;
    std::vector<std::string> names;
    std::vector<weftTrainTensor_t> tensors;

    // value(parameter, i) is the first value of each element.
    template <class Value>
    LocalRank(std::vector<std::pair<weftDataType_t, size_t>> parameters, Value&& value)
        : model(std::move(parameters)), values(model.size()) {
        for (size_t p = 0; p < model.size(); ++p) names.push_back("layer" + std::to_string(p));
        for (size_t p = 0; p < model.size(); ++p) {
            const auto [type, count] = model[p];
            values[p].resize(count * 8);
            for (size_t i = 0; i < count; ++i) set_number(values[p].data(), type, i, value(int(p), i));
            weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensor.name = names[p].c_str();
            tensor.data = values[p].data();
            tensor.count = count;
            tensor.datatype = type;
            tensors.push_back(tensor);
        }
    }
    double at(size_t p, size_t i) const { return number_at(values[p].data(), model[p].first, i); }
    void set(size_t p, size_t i, double number) { set_number(values[p].data(), model[p].first, i, number); }
    template <class Body>
    void each(Body&& body) const {
        for (size_t p = 0; p < model.size(); ++p)
            for (size_t i = 0; i < model[p].second; ++i) body(p, i);
    }
};

// How far two orders of the same few operations may be apart.
inline double tolerance(weftDataType_t type, double number) {
    const double digits[] = {0, 0, 0, 0, 0, 0, 0x1p-10, 0x1p-22, 0x1p-50, 0x1p-7};
    return 4 * digits[type] * std::max(1.0, std::fabs(number));
}

}  // namespace weft::internal::test
