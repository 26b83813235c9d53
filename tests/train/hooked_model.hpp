// hooked_model.hpp: a model whose gradients a compressing hook averages, in host memory or on the fake driver's devices.
#pragma once
#include <weft/train.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/train/both_memories.hpp"
#include "tests/train/trained_rank.hpp"

namespace weft::internal::test {

using Bytes = std::vector<std::byte>;

// Whether the tests that know both kinds of memory use devices. Each program defines it.
extern const bool program_has_devices;

// The errors of body(comm, rank), which may throw, by rank: "" is none.
template <class Body>
std::vector<std::string> on_ranks(int ranks, bool with_devices, Body&& body) {
    const auto run = [&](weftComm_t comm, int rank) -> std::string {
        try {
            return body(comm, rank);
        } catch (const std::exception& exception) {
            return exception.what();
        }
    };
    return on_threads(ranks, nullptr, run, with_devices ? fake_devices : 0);
}

inline constexpr weftTrainCompression_t compressing_methods[] = {weftTrainPowerSgd, weftTrainTopK, weftTrainOneBit,
                                                                 weftTrainInt8, weftTrainFloat8};

// A compressor that starts at once.
inline weftTrainCompressorConfig_t config_of(weftTrainCompression_t method) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = method;
    config.startIteration = 0;
    config.momentum = 0;
    config.density = 0.1;
    config.blockCount = 32;
    config.leastRate = 0.5;
    config.rank = 2;
    return config;
}

class OwnCompressor {
  public:
    explicit OwnCompressor(const weftTrainCompressorConfig_t& config) {
        need(weftTrainCompressorCreate(&handle_, &config));
    }
    OwnCompressor(const OwnCompressor&) = delete;
    ~OwnCompressor() { (void)weftTrainCompressorDestroy(handle_); }
    weftTrainCompressor_t get() const { return handle_; }
    weftTrainDdpConfig_t hooked(size_t bucket_cap_bytes = 0) const {
        weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
        config.bucketCapBytes = bucket_cap_bytes;
        config.hook = weftTrainHookCompress;
        config.hookContext = handle_;
        return config;
    }
    Bytes saved() const {
        size_t bytes = 0;
        need(weftTrainCompressorSave(handle_, nullptr, &bytes));
        Bytes state(bytes);
        need(weftTrainCompressorSave(handle_, state.data(), &bytes));
        return state;
    }
    void load(const Bytes& state) const { need(weftTrainCompressorLoad(handle_, state.data(), state.size())); }

  private:
    weftTrainCompressor_t handle_ = nullptr;
};

struct TensorOfTest {
    weftDataType_t type;
    size_t count, rows = 0;
};

// A rank's model: zeros at first. Every second parameter has memory of its own for its gradient. The caller's stream is
// that of a space of its own. Thread-bound.
class HookedModel {
  public:
    HookedModel(weftComm_t comm, bool on_device, std::vector<TensorOfTest> tensors, const weftTrainDdpConfig_t& config)
        : tensors_(std::move(tensors)) {
        int rank = 0;
        need(weftCommUserRank(comm, &rank));
        space_ = space_of_rank(rank, on_device);
        std::vector<weftTrainTensor_t> all;
        for (size_t p = 0; p < tensors_.size(); ++p) {
            weftTrainTensor_t& tensor = all.emplace_back();
            tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensor.name = names_.emplace_back("layer" + std::to_string(p)).c_str();
            tensor.data = values_.emplace_back(zeros(p)).get();
            tensor.gradient = own_.emplace_back(p % 2 == 1 ? zeros(p) : nullptr).get();
            tensor.count = tensors_[p].count;
            tensor.rows = tensors_[p].rows;
            tensor.datatype = tensors_[p].type;
        }
        need(space_->synchronize());
        need(weftTrainDdpCreate(&ddp_, comm, all.data(), all.size(), nullptr, 0, &config));
        // A rank that ends its object while others still make theirs would end those, too.
        need(weftBarrier(comm, nullptr));
    }
    HookedModel(const HookedModel&) = delete;
    ~HookedModel() {
        (void)space_->synchronize();
        (void)weftTrainDdpDestroy(ddp_);
    }

    weftTrainDdp_t ddp() const { return ddp_; }
    train::MemorySpace& space() const { return *space_; }
    weftStream_t stream() const { return space_->stream(); }
    const std::vector<TensorOfTest>& tensors() const { return tensors_; }
    // Of a parameter of float32, in the model's memory.
    float* values(size_t p) const { return static_cast<float*>(values_[p].get()); }
    void* gradient(size_t p) const {
        void* memory = nullptr;
        need(weftTrainDdpGetGradient(ddp_, int(p), &memory));
        return memory;
    }
    // One iteration with gradients element(parameter, i). Work on a device may go on after it.
    template <class Element>
    void iterate(Element&& element, weftTrainMode_t mode = weftTrainSynchronize) {
        need(weftTrainDdpBegin(ddp_, mode, stream()));
        for (size_t p = 0; p < tensors_.size(); ++p) {
            const auto [type, count, rows] = tensors_[p];
            Bytes& numbers = sent_.emplace_back(bytes_of(p));
            for (size_t i = 0; i < count; ++i) set_number(numbers.data(), type, i, element(int(p), i));
            need(space_->copy(gradient(p), numbers.data(), numbers.size()));
            need(weftTrainDdpGradientReady(ddp_, int(p), stream()));
        }
        need(weftTrainDdpFinish(ddp_, stream()));
    }
    void join() { need(weftTrainDdpJoin(ddp_, stream())); }
    // The bytes of all gradients.
    Bytes result() {
        Bytes all;
        for (size_t p = 0; p < tensors_.size(); ++p) {
            const size_t begin = all.size();
            all.resize(begin + bytes_of(p));
            need(space_->copy(all.data() + begin, gradient(p), bytes_of(p)));
        }
        need(space_->synchronize());
        sent_.clear();
        return all;
    }
    // The elements of a gradient.
    std::vector<double> numbers(size_t p) {
        std::vector<uint64_t> memory(bytes_of(p) / sizeof(uint64_t) + 1);  // aligned
        need(space_->copy(memory.data(), gradient(p), bytes_of(p)));
        need(space_->synchronize());
        sent_.clear();
        std::vector<double> read;
        for (size_t i = 0; i < tensors_[p].count; ++i) read.push_back(number_at(memory.data(), tensors_[p].type, i));
        return read;
    }

  private:
    size_t bytes_of(size_t p) const { return tensors_[p].count * size_of(tensors_[p].type); }
    std::shared_ptr<void> zeros(size_t p) {
        if (tensors_[p].count == 0) return nullptr;
        auto memory = need(space_->allocate(bytes_of(p)));
        need(space_->zero(memory.get(), bytes_of(p)));
        return memory;
    }

    std::vector<TensorOfTest> tensors_;
    std::unique_ptr<train::MemorySpace> space_;
    std::deque<std::string> names_;
    std::vector<std::shared_ptr<void>> values_, own_;
    std::vector<Bytes> sent_;  // until the stream has read them
    weftTrainDdp_t ddp_ = nullptr;
};

}  // namespace weft::internal::test
