// Compressing hooks on devices, on the fake driver: bit for bit as in host memory, without a wait in a step.
#include <cuda.h>
#include <weft/train.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/amount.hpp"
#include "tests/train/hooked_model.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::train;

const bool weft::internal::test::program_has_devices = true;

namespace {

// One is longer than a chunk of the kernels. Matrices are worth a rank, and one of them has more columns than rows.
const std::vector<TensorOfTest> hooked_tensors = {
    {weftFloat32, 120, 12}, {weftFloat32, 5, 0},     {weftFloat16, 96, 8},
    {weftBfloat16, 300, 0}, {weftFloat64, 129, 0},   {weftFloat32, 0, 0},
    {weftFloat32, 300, 0},  {weftFloat32, 4200, 60}, {weftFloat16, 64, 4}};

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
            config.rank = 3;
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

// All, or a drawn half.
std::vector<Case> drawn_cases() {
    static std::mt19937 random(seed());
    std::vector<Case> all = cases();
    if (small()) std::erase_if(all, [&](const Case&) { return random() % 2 != 0; });
    return all;
}

// With small buckets.
class DeviceModel : public HookedModel {
  public:
    DeviceModel(weftComm_t comm, int rank, bool on_device, const OwnCompressor& compressor)
        : HookedModel(comm, on_device, hooked_tensors, compressor.hooked(2000)), rank_(rank) {}
    // `bad` replaces an element.
    void iterate(int iteration, const float* bad = nullptr) {
        HookedModel::iterate([&](int p, size_t i) {
            if (bad && p == 7 && i == 77) return double(*bad);
            return gradient_element(rank_, iteration, p, i) * (i % 7 == 0 ? 3.1 : 0.7);
        });
    }

  private:
    int rank_;
};

// The results of some iterations and the state after them. Gradients are not finite in two of them.
struct Seen {
    std::vector<Bytes> results;
    Bytes state;
};
Seen seen_of(weftComm_t comm, int rank, bool on_device, const weftTrainCompressorConfig_t& config) {
    const OwnCompressor compressor(config);
    DeviceModel model(comm, rank, on_device, compressor);
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
    for (size_t p = 0; p < hooked_tensors.size(); ++p)
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
    for (const std::string& wrong : on_ranks(ranks, true, body)) CHECK(wrong == "");
}

}  // namespace

TEST_CASE("compressing hooks on devices have the bits of the host, and keep its state") {
    for (const Case& each : drawn_cases())
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
                DeviceModel model(comm, rank, on_device, compressor);
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
    for (const Case& each : drawn_cases()) {
        if (!each.config.errorFeedback) continue;
        CAPTURE(each.name);
        on_devices(2, [&](weftComm_t comm, int rank) -> std::string {
            const OwnCompressor compressor(each.config);
            DeviceModel model(comm, rank, true, compressor);
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
    DeviceModel model(comm, rank, on_device, compressor);
    std::vector<weftTrainPart_t> parts;
    std::vector<int> numbers;
    for (int p = 0; p < int(hooked_tensors.size()); ++p) {
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
