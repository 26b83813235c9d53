// hooks.hpp: how a data-parallel rank sends gradients, by name.
#pragma once

#include <weft/train.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace train {

// Learns nothing: the tests must notice.
inline weftResult_t zeros(const weftTrainBucket_t* bucket, void*) {
    std::memset(bucket->data, 0, bucket->count * (bucket->datatype == weftFloat32 ? 4 : 2));
    return weftSuccess;
}

// A hook and its state. It outlives the Ddp.
class Hook {
  public:
    // steps  of the training: some hooks average exactly in the first ones
    Hook(const std::string& name, int steps) {
        static const std::map<std::string, weftTrainHook_t> functions = {{"average", weftTrainHookAverage},
                                                                         {"fp16", weftTrainHookFloat16},
                                                                         {"bf16", weftTrainHookBfloat16},
                                                                         {"zeros", zeros}};
        static const std::map<std::string, weftTrainCompression_t> methods = {
            {"powersgd", weftTrainPowerSgd},  {"topk", weftTrainTopK}, {"onebit", weftTrainOneBit},
            {"onebit-lamb", weftTrainOneBit}, {"int8", weftTrainInt8}, {"fp8", weftTrainFloat8}};
        if (const auto function = functions.find(name); function != functions.end()) {
            function_ = function->second;
            return;
        }
        const auto method = methods.find(name);
        if (method == methods.end()) throw std::runtime_error("--hook " + name + " is unknown");
        weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
        config.method = method->second;
        config.rank = 8;
        config.density = 0.2;
        if (name == "powersgd") config.startIteration = steps / 10;
        if (name == "onebit") config.startIteration = momentum_from_ = std::max(1, steps / 5);
        if (name == "onebit-lamb") {
            config.startIteration = std::max(1, steps / 5);
            config.layerScales = 1;
            is_lamb_ = true;
        }
        compressor_ = std::make_unique<weft::train::Compressor>(config);
    }

    void into(weftTrainDdpConfig_t& config) const {
        if (compressor_)
            compressor_->hook_into(config);
        else
            config.hook = function_;
    }
    // From this step on gradients are replaced by AdamW's momentum (1-bit Adam).
    int momentum_from() const { return momentum_from_; }
    // The rest that this rank has not sent yet, and the like, between iterations.
    std::vector<unsigned char> state() const {
        return compressor_ ? compressor_->save() : std::vector<unsigned char>();
    }
    void set_state(const std::vector<unsigned char>& state) {
        if (compressor_) compressor_->load(state);
    }
    // For an optimizer of 1-bit LAMB; otherwise NULL.
    weftTrainCompressor_t of_lamb() const { return is_lamb_ ? compressor_->get() : nullptr; }

  private:
    weftTrainHook_t function_ = nullptr;
    std::unique_ptr<weft::train::Compressor> compressor_;
    int momentum_from_ = 1 << 30;
    bool is_lamb_ = false;
};

}  // namespace train
