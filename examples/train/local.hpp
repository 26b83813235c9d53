// local.hpp: ranks that train alone, and exchange parameters every so many steps: Local SGD and DiLoCo.
#pragma once

#include "model.hpp"

namespace train {

// Float32 only: the optimizer's main values of bfloat16 would not follow. Thread-bound.
class Local final : public Alone<float> {
  public:
    Local(const Shape& shape, std::uint64_t seed, weft::Communicator& comm, const weftTrainLocalConfig_t& config)
        : Alone<float>(shape, seed, 1), comm_(comm), local_(comm, tensors(), config) {}

    void stepped() override { local_.step(); }
    double mean(double loss) override {
        comm_.all_reduce(&loss, 1, weftAvg);
        return loss;
    }

  private:
    weft::Communicator& comm_;
    weft::train::Local local_;
};

// With `outer` the mean change of the parameters is the gradient of an outer optimizer (DiLoCo).
inline weftTrainLocalConfig_t local_config(bool outer, int period) {
    weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
    config.period = std::uint64_t(period);
    if (outer)
        config.method = weftTrainDiloco;
    else
        config.warmup = config.period - 1;  // the last step of each period averages
    return config;
}

}  // namespace train
