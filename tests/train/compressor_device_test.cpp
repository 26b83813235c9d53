// Compressing hooks on devices, on the fake driver: bit for bit as in host memory, without a wait in a step.
#include <cuda.h>
#include <weft/train.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/train/both_memories.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

namespace {

using Bytes = std::vector<std::byte>;

struct TensorOfTest {
    weftDataType_t type;
    size_t count, rows;
};
// One is longer than a chunk of the kernels. Matrices are worth a rank, and one of them has more columns than rows.
constexpr TensorOfTest hooked_tensors[] = {{weftFloat32, 120, 12},  {weftFloat32, 5, 0},   {weftFloat16, 96, 8},
                                           {weftBfloat16, 300, 0},  {weftFloat64, 129, 0}, {weftFloat32, 0, 0},
                                           {weftFloat32, 4200, 60}, {weftFloat32, 300, 0}, {weftFloat16, 64, 4}};

weftTrainCompressorConfig_t config_of(weftTrainCompression_t method) {
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    config.method = method;
    config.startIteration = 0;
    config.momentum = 0;
    config.density = 0.1;
    config.blockCount = 32;
    config.leastRate = 0.5;
    config.rank = 3;
    return config;
}
struct Case {
    std::string name;
    weftTrainCompressorConfig_t config;
};
std::vector<Case> cases() {
    std::vector<Case> all;
    for (const int feedback : {1, 0}) {
        const char* const names[] = {"PowerSGD", "top-k", "1-bit", "int8", "float8"};
        for (int method = 0; method < 5; ++method) {
            weftTrainCompressorConfig_t config = config_of(weftTrainCompression_t(method));
            config.errorFeedback = feedback;
            all.push_back({names[method] + std::string(feedback ? "" : " without feedback"), config});
        }
    }
    Case adam{"1-bit Adam", config_of(weftTrainOneBit)};
    adam.config.momentum = 0.5;
    adam.config.startIteration = 1;
    all.push_back(adam);
    adam.name = "1-bit LAMB";
    adam.config.layerScales = 1;
    all.push_back(adam);
    Case wide{"float8 e5m2", config_of(weftTrainFloat8)};
    wide.config.float8 = weftFloat8e5m2;
    all.push_back(wide);
    Case cold{"PowerSGD without a warm start", config_of(weftTrainPowerSgd)};
    cold.config.warmStart = 0;
    all.push_back(cold);
    Case whole{"top-k of all elements", config_of(weftTrainTopK)};
    whole.config.density = 1;
    all.push_back(whole);
    return all;
}

class OwnCompressor {
  public:
    explicit OwnCompressor(const weftTrainCompressorConfig_t& config) {
        need(weftTrainCompressorCreate(&handle_, &config));
    }
    OwnCompressor(const OwnCompressor&) = delete;
    ~OwnCompressor() { (void)weftTrainCompressorDestroy(handle_); }
    weftTrainCompressor_t get() const { return handle_; }
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

// A rank's model in one kind of memory. The caller's stream is that of a space of its own.
class HookedModel {
  public:
    HookedModel(weftComm_t comm, int rank, bool on_device, const OwnCompressor& compressor, size_t cap = 2000)
        : rank_(rank), space_(space_of_rank(rank, on_device)) {
        std::vector<weftTrainTensor_t> all;
        for (const TensorOfTest& each : hooked_tensors) {
            names_.push_back("layer" + std::to_string(all.size()));
            memory_.push_back(each.count > 0 ? need(space_->allocate(each.count * size_of(each.type))) : nullptr);
            need(space_->zero(memory_.back().get(), each.count * size_of(each.type)));
            weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
            tensor.data = memory_.back().get();
            tensor.count = each.count;
            tensor.rows = each.rows;
            tensor.datatype = each.type;
            all.push_back(tensor);
        }
        for (size_t p = 0; p < all.size(); ++p) all[p].name = names_[p].c_str();
        need(space_->synchronize());
        weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
        config.bucketCapBytes = cap;
        config.hook = weftTrainHookCompress;
        config.hookContext = compressor.get();
        need(weftTrainDdpCreate(&ddp_, comm, all.data(), all.size(), nullptr, 0, &config));
        need(weftBarrier(comm, nullptr));
    }
    HookedModel(const HookedModel&) = delete;
    ~HookedModel() { (void)weftTrainDdpDestroy(ddp_); }

    weftTrainDdp_t ddp() const { return ddp_; }
    MemorySpace& space() const { return *space_; }
    // The values of a parameter of float32.
    float* values(int p) const { return static_cast<float*>(memory_[size_t(p)].get()); }
    void* gradient(int p) const {
        void* memory = nullptr;
        need(weftTrainDdpGetGradient(ddp_, p, &memory));
        return memory;
    }
    weftStream_t stream() const { return space_->stream(); }
    // One iteration, of which the work on a device may go on. `bad` replaces an element.
    void iterate(int iteration, const float* bad = nullptr) {
        need(weftTrainDdpBegin(ddp_, weftTrainSynchronize, stream()));
        for (int p = int(std::size(hooked_tensors)); p-- > 0;) {
            const auto [type, count, rows] = hooked_tensors[p];
            Bytes& numbers = sent_.emplace_back(count * size_of(type));
            for (size_t i = 0; i < count; ++i)
                set_number(numbers.data(), type, i,
                           gradient_element(rank_, iteration, p, i) * (i % 7 == 0 ? 3.1 : 0.7));
            if (bad && p == 6) set_number(numbers.data(), type, 77, double(*bad));
            need(space_->copy(gradient(p), numbers.data(), numbers.size()));
            need(weftTrainDdpGradientReady(ddp_, p, stream()));
        }
        need(weftTrainDdpFinish(ddp_, stream()));
    }
    // The bytes of all gradients.
    Bytes result() {
        Bytes all;
        for (size_t p = 0; p < std::size(hooked_tensors); ++p) {
            const size_t bytes = hooked_tensors[p].count * size_of(hooked_tensors[p].type), begin = all.size();
            all.resize(begin + bytes);
            need(space_->copy(all.data() + begin, gradient(int(p)), bytes));
        }
        need(space_->synchronize());
        sent_.clear();
        return all;
    }

  private:
    int rank_;
    std::unique_ptr<MemorySpace> space_;
    std::vector<std::string> names_;
    std::vector<std::shared_ptr<void>> memory_;
    std::vector<Bytes> sent_;  // until the stream has read them
    weftTrainDdp_t ddp_ = nullptr;
};

// The results of some iterations and the state after them. Gradients are not finite in two of them.
struct Seen {
    std::vector<Bytes> results;
    Bytes state;
};
Seen seen_of(weftComm_t comm, int rank, bool on_device, const weftTrainCompressorConfig_t& config) {
    const OwnCompressor compressor(config);
    HookedModel model(comm, rank, on_device, compressor);
    Seen seen;
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    for (int k = 0; k < 5; ++k) {
        model.iterate(k, k == 2 ? &nan : k == 3 && rank == 0 ? &infinity : nullptr);
        seen.results.push_back(model.result());
    }
    seen.state = compressor.saved();
    return seen;
}

// NaNs have no rule for their bits.
std::string different(const Bytes& host, const Bytes& device) {
    if (host.size() != device.size()) return "sizes differ";
    size_t begin = 0;
    for (size_t p = 0; p < std::size(hooked_tensors); ++p)
        for (size_t i = 0; i < hooked_tensors[p].count; ++i, begin += size_of(hooked_tensors[p].type)) {
            const size_t size = size_of(hooked_tensors[p].type);
            alignas(8) std::byte aligned[2][8];
            memcpy(aligned[0], host.data() + begin, size);
            memcpy(aligned[1], device.data() + begin, size);
            const double one = number_at(aligned[0], hooked_tensors[p].type, 0);
            const double other = number_at(aligned[1], hooked_tensors[p].type, 0);
            const bool same = memcmp(aligned[0], aligned[1], size) == 0;
            if (!same && (one == one || other == other))
                return "element " + std::to_string(i) + " of parameter " + std::to_string(p) + " is " +
                       std::to_string(other) + ", not " + std::to_string(one);
        }
    return "";
}

template <class Body>
void on_devices(int ranks, Body&& body) {
    const auto run = [&](weftComm_t comm, int rank) -> std::string {
        try {
            return body(comm, rank);
        } catch (const std::exception& exception) {
            return exception.what();
        }
    };
    for (const std::string& wrong : on_threads(ranks, nullptr, run, fake_devices)) CHECK(wrong == "");
}

}  // namespace

TEST_CASE("compressing hooks on devices have the bits of the host, and keep its state") {
    for (const Case& each : cases())
        for (const int ranks : each.config.errorFeedback ? std::vector<int>{3} : std::vector<int>{1}) {
            CAPTURE(each.name, ranks);
            on_devices(ranks, [&](weftComm_t comm, int rank) -> std::string {
                const Seen host = seen_of(comm, rank, false, each.config),
                           device = seen_of(comm, rank, true, each.config);
                for (size_t k = 0; k < host.results.size(); ++k)
                    if (const std::string wrong = different(host.results[k], device.results[k]); wrong != "")
                        return "iteration " + std::to_string(k) + ": " + wrong;
                if (host.results[0] == host.results[1]) return "all results are equal";
                return host.state == device.state ? "" : "the states differ";
            });
        }
}

TEST_CASE("a compressor takes its state from a device to the host and back") {
    for (const weftTrainCompression_t method :
         {weftTrainPowerSgd, weftTrainTopK, weftTrainOneBit, weftTrainInt8, weftTrainFloat8}) {
        CAPTURE(int(method));
        on_devices(2, [&](weftComm_t comm, int rank) -> std::string {
            const OwnCompressor straight(config_of(method)), moved(config_of(method)), loaded(config_of(method));
            // Two iterations of a new object: its buckets are rebuilt in the second one.
            const auto result_of = [&](int third, bool on_device, const OwnCompressor& compressor) {
                HookedModel model(comm, rank, on_device, compressor);
                for (int k = 2 * third; k < 2 * third + 2; ++k) model.iterate(k);
                return model.result();
            };
            for (const int third : {0, 1}) {
                const Bytes expected = result_of(third, false, straight);
                const std::string wrong = different(expected, result_of(third, third == 0, moved));
                if (wrong != "") return wrong;
            }
            loaded.load(moved.saved());
            return different(result_of(2, false, straight), result_of(2, true, loaded));
        });
    }
}

TEST_CASE("a warm step of a compressing hook on a device waits for no work") {
    for (const Case& each : cases()) {
        if (!each.config.errorFeedback) continue;
        CAPTURE(each.name);
        on_devices(2, [&](weftComm_t comm, int rank) -> std::string {
            const OwnCompressor compressor(each.config);
            HookedModel model(comm, rank, true, compressor);
            for (int k = 0; k < 3; ++k) {
                model.iterate(k);
                (void)model.result();
            }
            // The stream's work goes on after the step only. A step that waits for it would not end.
            std::atomic<bool> go = false;
            const auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
            if (cuLaunchHostFunc(static_cast<CUstream>(model.stream()), wait, &go) != CUDA_SUCCESS)
                return "no function in the stream";
            model.iterate(3);
            const bool ended = cuStreamQuery(static_cast<CUstream>(model.stream())) == CUDA_SUCCESS;
            go = true;
            go.notify_all();
            (void)model.result();
            return ended ? "the stream did not wait" : "";
        });
    }
}

namespace {

// The weights after some steps of 1-bit LAMB on the parameters of float32, compressed from the fourth one on.
std::vector<float> weights_of_lamb(weftComm_t comm, int rank, bool on_device, std::vector<double>& factors) {
    weftTrainCompressorConfig_t settings = config_of(weftTrainOneBit);
    settings.momentum = 0.9;
    settings.layerScales = 1;
    settings.startIteration = 3;
    const OwnCompressor compressor(settings);
    HookedModel model(comm, rank, on_device, compressor);
    std::vector<weftTrainPart_t> parts;
    std::vector<int> numbers;
    for (int p = 0; p < int(std::size(hooked_tensors)); ++p) {
        const auto [type, count, rows] = hooked_tensors[p];
        if (type != weftFloat32 || count == 0) continue;
        std::vector<float> values;
        for (size_t i = 0; i < count; ++i) values.push_back(float(gradient_element(0, 99, p, i)) / 8);
        need(model.space().copy(model.values(p), values.data(), count * sizeof(float)));
        need(model.space().synchronize());
        weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
        part.name = "part";
        part.values = model.values(p);
        part.count = count;
        parts.push_back(part);
        numbers.push_back(p);
    }
    weftTrainOptimizerConfig_t rule = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
    rule.algorithm = weftTrainOneBitLamb;
    rule.beta1 = settings.momentum;
    rule.weightDecay = 0.01;
    rule.biasCorrection = 0;
    rule.compressor = compressor.get();
    rule.ddp = model.ddp();
    weftTrainOptimizer_t optimizer = nullptr;
    // The communicator tells the device.
    need(weftTrainOptimizerCreate(&optimizer, parts.data(), parts.size(), &comm, 1, &rule));
    for (int k = 0; k < 8; ++k) {
        model.iterate(k);
        for (size_t i = 0; i < numbers.size(); ++i)
            need(weftTrainOptimizerSetGradient(optimizer, int(i), model.gradient(numbers[i])));
        need(weftTrainOptimizerStep(optimizer, 0.01, 1, 0, on_device ? model.stream() : nullptr));
    }
    std::vector<float> weights;
    for (size_t i = 0; i < numbers.size(); ++i) {
        const size_t begin = weights.size();
        weights.resize(begin + parts[i].count);
        need(model.space().copy(weights.data() + begin, parts[i].values, parts[i].count * sizeof(float)));
        double mean = 0;
        need(weftTrainOptimizerGetTrust(optimizer, int(i), &mean, &factors.emplace_back()));
    }
    need(model.space().synchronize());
    need(weftTrainOptimizerDestroy(optimizer));
    return weights;
}

}  // namespace

TEST_CASE("1-bit LAMB on a device follows the host in exact and in compressed steps") {
    on_devices(2, [&](weftComm_t comm, int rank) -> std::string {
        std::vector<double> host_factors, device_factors;
        const auto host = weights_of_lamb(comm, rank, false, host_factors);
        const auto device = weights_of_lamb(comm, rank, true, device_factors);
        // The sums of a layer are added up in another order than on the host.
        for (size_t i = 0; i < host.size(); ++i)
            if (!(std::fabs(host[i] - device[i]) <= 1e-5f * std::max(1.0f, std::fabs(host[i]))))
                return "weight " + std::to_string(i) + " is " + std::to_string(device[i]) + ", not " +
                       std::to_string(host[i]);
        for (size_t i = 0; i < host_factors.size(); ++i)
            if (!(std::fabs(host_factors[i] - device_factors[i]) <= 1e-5 * host_factors[i])) return "a factor";
        return host_factors[0] == 0 ? "no step was compressed" : "";
    });
}
