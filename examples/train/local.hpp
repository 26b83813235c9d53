// local.hpp: ranks that train alone, and exchange parameters every so many steps: Local SGD and DiLoCo.
#pragma once

#include "model.hpp"

#include <deque>
#include <string>
#include <utility>

namespace train {

// Float32 only: the optimizer's main values of bfloat16 would not follow. Thread-bound.
class Local final : public Alone<float> {
  public:
    Local(const Shape& shape, std::uint64_t seed, weft::Communicator& comm, const weftTrainLocalConfig_t& config)
        : Alone<float>(shape, seed, 1), comm_(comm), local_(comm, tensors(), config) {}

    void stepped() override { local_.step(); }
    void resume_at(int steps) override { local_.restore(std::uint64_t(steps)); }
    // Between exchanges the ranks' values differ: each rank has tensors of its own. DiLoCo's state is common to all.
    std::vector<weftTrainBox_t> boxes() override {
        std::vector<weftTrainBox_t> all = Alone<float>::boxes();
        names_.clear();
        for (weftTrainBox_t& box : all) {
            names_.push_back("rank" + std::to_string(comm_.rank()) + "/" + box.name);
            box.name = names_.back().c_str();
        }
        for (int i = 0; i < int(this->parameters().size()); ++i) {
            const weftTrainLocalState_t state = local_.state(i);
            const std::pair<const char*, void*> parts[] = {
                {"anchor/", state.anchor}, {"outer_momentum/", state.momentum}, {"reduced/", state.reduced}};
            for (const auto& part : parts) {
                if (!part.second) continue;
                names_.push_back(part.first + this->parameters()[std::size_t(i)].name);
                weftTrainBox_t box = all[std::size_t(i)];
                box.name = names_.back().c_str();
                box.data = part.second;
                all.push_back(box);
            }
        }
        return all;
    }
    double mean(double loss) override {
        comm_.all_reduce(&loss, 1, weftAvg);
        return loss;
    }

  private:
    weft::Communicator& comm_;
    weft::train::Local local_;
    std::deque<std::string> names_;  // of the boxes
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
