// sharded.hpp: a model of which each rank holds a part: ZeRO, FSDP and HSDP.
#pragma once

#include "model.hpp"

namespace train {

// Each unit is gathered before it is used, and its gradients are reduced to the ranks' parts. Thread-bound.
template <class Stored>
class Sharded final : public Model<Stored> {
  public:
    // host_ranks  of the groups that keep units after the forward pass; 0: all ranks
    Sharded(const Shape& shape, std::uint64_t seed, weft::Communicator& comm, const weftTrainShardConfig_t& config,
            int host_ranks)
        : Model<Stored>(shape),
          comm_(comm),
          host_ranks_(host_ranks),
          shard_(made(seed, config)),
          gradients_(std::size_t(this->units())) {}

    void before(int unit, Pass pass) override {
        shard_.gather(unit);
        unit_ = unit;
        if (this->expands) {
            values_.resize(size_of(unit));
            for (int i = first_of_unit(unit); i < this->end_of(unit); ++i) {
                const Stored* from = shard_.template parameter<Stored>(i);
                std::transform(from, from + this->parameters()[i].count(), values_.data() + place(i),
                               [](Stored value) { return float(value); });
            }
            if (pass == Pass::backward) gradients_[std::size_t(unit)].resize(size_of(unit));
        }
    }
    const float* values(int parameter) const override {
        return this->expands ? values_.data() + place(parameter) : shard_.template parameter<float>(parameter);
    }
    float* gradient(int parameter) override {
        return this->expands ? gradients_[std::size_t(unit_)].data() + place(parameter)
                             : shard_.template gradient<float>(parameter);
    }
    void after(int unit, Pass pass) override {
        const bool reduces = pass == Pass::backward && last_;
        if (reduces && this->expands) {
            for (int i = first_of_unit(unit); i < this->end_of(unit); ++i)
                std::transform(gradient(i), gradient(i) + this->parameters()[i].count(),
                               shard_.template gradient<Stored>(i), [](float value) { return Stored(value); });
            gradients_[std::size_t(unit)] = {};
        }
        shard_.release(unit, reduces || evaluates_ ? weftTrainBackward : weftTrainForward);
        if (reduces) shard_.reduce_scatter(unit);
    }

    // Micro-batches add up whole gradients, so that they are sent once.
    void begin(MicroBatch micro) override {
        last_ = micro.last;
        if (micro.first) shard_.zero_gradients();
    }
    void finish(MicroBatch micro) override {
        if (micro.last) shard_.finish();
    }
    void begin_evaluation() override { evaluates_ = true; }
    void finish_evaluation() override {
        shard_.finish();
        evaluates_ = false;
    }

    std::vector<Piece<Stored>> pieces() override {
        std::vector<Piece<Stored>> all;
        for (int i = 0; i < int(this->parameters().size()); ++i) {
            const weftTrainPiece_t piece = shard_.piece(i);
            all.push_back({this->parameters()[i].name.c_str(), static_cast<Stored*>(piece.values),
                           static_cast<Stored*>(piece.gradient), piece.count, this->decays(i)});
        }
        return all;
    }
    std::vector<weftTrainBox_t> boxes() override {
        std::vector<weftTrainBox_t> all;
        for (int i = 0; i < int(this->parameters().size()); ++i) all.push_back(shard_.box(i));
        return all;
    }
    double mean(double loss) override {
        comm_.all_reduce(&loss, 1, weftAvg);
        return loss;
    }
    std::string memory() const override {
        const weftTrainShardStats_t stats = shard_.stats();
        return std::to_string(stats.shardBytes / 1024) + " KiB of this rank's values and gradients, " +
               std::to_string(stats.wholeBytes / 1024) +
               " KiB of whole ones\nmoved: " + std::to_string(stats.gatheredBytes) + " bytes gathered, " +
               std::to_string(stats.gatheredRemoteBytes) + " of them between hosts; " +
               std::to_string(stats.reducedBytes) + " bytes reduced, " + std::to_string(stats.reducedRemoteBytes) +
               " of them between hosts";
    }

  private:
    weft::train::Shard made(std::uint64_t seed, const weftTrainShardConfig_t& config) {
        std::vector<std::vector<Stored>> values;
        std::vector<std::vector<weftTrainTensor_t>> tensors;
        std::vector<std::string> names;
        for (int unit = 0; unit < this->units(); ++unit) {
            const int first = first_of_unit(unit);
            values.push_back(this->first_values(seed, first, this->end_of(unit)));
            names.push_back("unit" + std::to_string(unit));
            tensors.emplace_back();
            for (int i = first; i < this->end_of(unit); ++i)
                tensors.back().push_back(this->tensor(i, values.back().data() + this->offset(i) - this->offset(first)));
        }
        std::vector<weftTrainUnit_t> units;
        for (std::size_t i = 0; i < tensors.size(); ++i)  // the backward pass begins with the last one, so that is kept
            units.push_back(weft::train::unit(names[i].c_str(), tensors[i], i + 1 == tensors.size() ? 1 : host_ranks_));
        return weft::train::Shard(comm_, units, config);
    }

    std::size_t size_of(int unit) const { return this->offset(this->end_of(unit)) - this->offset(first_of_unit(unit)); }
    std::size_t place(int parameter) const { return this->offset(parameter) - this->offset(first_of_unit(unit_)); }

    weft::Communicator& comm_;
    int host_ranks_;
    weft::train::Shard shard_;
    int unit_ = 0;  // is gathered
    bool last_ = false, evaluates_ = false;
    std::vector<float> values_;                  // of the gathered unit, if bfloat16 is expanded
    std::vector<std::vector<float>> gradients_;  // of each unit, until they are reduced; likewise
};

}  // namespace train
