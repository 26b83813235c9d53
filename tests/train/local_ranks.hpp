// local_ranks.hpp: the parameters of one rank in tests of rare communication: all types, odd counts, in host memory, or
// on a device with a copy in host memory.
#pragma once
#include <weft/train.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/amount.hpp"
#include "tests/train/hooked_model.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

// The memory that a rank's arrays are copied to and from, in tests that run in both kinds of memory.
class PlacedArrays {
  public:
    // Host memory: the arrays themselves.
    PlacedArrays() = default;
    explicit PlacedArrays(int rank) : space_(space_of_rank(rank, true)) {}
    // The address to register for an array.
    void* place(std::vector<std::byte>& bytes) {
        if (!space_) return bytes.data();
        bytes_.push_back(&bytes);
        memory_.push_back(need(space_->allocate(bytes.size() + 1)));
        return memory_.back().get();
    }
    weftStream_t stream() const { return space_ ? space_->stream() : nullptr; }
    void copy(void* to, const void* from, size_t bytes) const {
        if (!space_) return void(memcpy(to, from, bytes));
        need(space_->copy(to, from, bytes));
        need(space_->synchronize());
    }
    // By work of the stream.
    void send() const {
        for (size_t i = 0; i < memory_.size(); ++i)
            need(space_->copy(memory_[i].get(), bytes_[i]->data(), bytes_[i]->size()));
    }
    void receive() const {
        for (size_t i = 0; i < memory_.size(); ++i)
            need(space_->copy(bytes_[i]->data(), memory_[i].get(), bytes_[i]->size()));
        if (space_) need(space_->synchronize());
    }

  private:
    std::shared_ptr<train::MemorySpace> space_;  // null: host memory
    std::vector<std::vector<std::byte>*> bytes_;
    std::vector<std::shared_ptr<void>> memory_;
};

// Thread-bound, to a rank's thread.
struct LocalRank {
    std::vector<std::pair<weftDataType_t, size_t>> model;
    std::vector<std::vector<std::byte>> values;
    std::vector<std::string> names;
    std::vector<weftTrainTensor_t> tensors;
    PlacedArrays placed;

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
    // Registers memory of the rank's device. A copy of the object shares it.
    void place(int rank) {
        placed = PlacedArrays(rank);
        for (size_t p = 0; p < model.size(); ++p) tensors[p].data = placed.place(values[p]);
        send();
        receive();
    }
    // The values, to the registered memory and back.
    void send() const { placed.send(); }
    void receive() const { placed.receive(); }
    double at(size_t p, size_t i) const { return number_at(values[p].data(), model[p].first, i); }
    void set(size_t p, size_t i, double number) { set_number(values[p].data(), model[p].first, i, number); }
    weftResult_t step(weftTrainLocal_t local, int* changed = nullptr) const {
        send();
        const weftResult_t result = weftTrainLocalStep(local, changed, placed.stream());
        receive();
        return result;
    }
    template <class Body>
    void each(Body&& body) const {
        for (size_t p = 0; p < model.size(); ++p)
            for (size_t i = 0; i < model[p].second; ++i) body(p, i);
    }
};

// Ranks that are threads, in the memory of the program.
template <class Body>
std::vector<std::string> in_program_memory(int ranks, Body&& body) {
    return on_ranks(ranks, program_has_devices, body);
}

// Numbers of ranks that the small form leaves out on devices, where threads play the kernels.
inline bool is_left_out(int ranks) { return program_has_devices && small() && ranks != 3; }

inline std::vector<std::string> no_error(int ranks) { return std::vector<std::string>(size_t(ranks)); }

// How far two orders of the same few operations may be apart.
inline double tolerance(weftDataType_t type, double number) {
    const double digits[] = {0, 0, 0, 0, 0, 0, 0x1p-10, 0x1p-22, 0x1p-50, 0x1p-7};
    return 4 * digits[type] * std::max(1.0, std::fabs(number));
}

}  // namespace weft::internal::test
