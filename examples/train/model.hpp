// model.hpp: how a rank holds the model: alone, or as one of many (DDP). The training loop knows these functions only.
#pragma once

#include "gpt.hpp"
#include "storage.hpp"

#include <weft/train.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace train {

// A step consists of micro-batches; the gradients of all of them are added up.
struct MicroBatch {
    bool first, last;
};

// As weftAvg in deterministic mode: the ranks' numbers in rank order, scaled by powers of two as far as possible.
template <class Sum>
class Average {
  public:
    explicit Average(int count) : count_(count) {
        while (power_ < count) power_ *= 2;
    }
    Sum part(Sum value) const { return value * (1 / Sum(power_)); }
    Sum whole(Sum sum) const { return sum / (Sum(count_) / Sum(power_)); }

  private:
    int count_, power_ = 1;
};

// The parameters of a rank. Thread-bound.
template <class Stored>
class Model : public Parameters<float> {
  public:
    explicit Model(const Shape& shape) : parameters_(parameters_of(shape)), units_(unit_count(shape)) {
        for (const Parameter& parameter : parameters_) offsets_.push_back(offsets_.back() + parameter.count());
    }

    // Between these calls is one forward and one backward pass.
    virtual void begin(MicroBatch micro) = 0;
    virtual void finish(MicroBatch micro) = 0;
    // Between these calls are forward passes only.
    virtual void begin_evaluation() {}
    virtual void finish_evaluation() {}
    // After the step's last finish(): values for this rank's optimizer, with their gradients.
    virtual std::vector<Piece<Stored>> pieces() = 0;
    // The same values for a checkpoint, with the memory of this object. After pieces().
    virtual std::vector<weftTrainBox_t> boxes() = 0;
    // The training continues after so many steps of an earlier run: before boxes() are loaded.
    virtual void resume_at(int) {}
    // The optimizer has changed them.
    virtual void stepped() {}
    // The mean over all ranks.
    virtual double mean(double loss) = 0;
    // A sentence about the memory of this rank, or nothing.
    virtual std::string memory() const { return ""; }

    const std::vector<Parameter>& parameters() const { return parameters_; }
    int units() const { return units_; }
    // One behind the number of a unit's last parameter.
    int end_of(int unit) const { return unit + 1 == units_ ? int(parameters_.size()) : first_of_unit(unit + 1); }

  protected:
    static constexpr bool expands = !std::is_same<Stored, float>::value;

    // The first values of the parameters from `begin` to `end`, one behind the other.
    std::vector<Stored> first_values(std::uint64_t seed, int begin, int end) const {
        std::vector<Stored> all;
        for (int number = begin; number < end; ++number)
            for (std::size_t i = 0; i < parameters_[number].count(); ++i)
                all.push_back(Stored(float(first_value(parameters_[number], seed, number, i))));
        return all;
    }
    // How a parameter is registered, with its values.
    weftTrainTensor_t tensor(int number, Stored* values) const {
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        tensor.name = parameters_[number].name.c_str();
        tensor.data = values;
        tensor.count = parameters_[number].count();
        tensor.datatype = type_of<Stored>();
        tensor.rows =
            std::size_t(parameters_[number].rows == 1 ? parameters_[number].columns : parameters_[number].rows);
        return tensor;
    }
    // Where a parameter lies, if all of them lie one behind the other.
    std::size_t offset(int number) const { return offsets_[number]; }
    bool decays(int number) const { return parameters_[number].rows > 1; }

  private:
    std::vector<Parameter> parameters_;
    int units_;
    std::vector<std::size_t> offsets_{0};
};

// The whole model is on this rank. Bfloat16 values are expanded for each unit, and their gradients rounded.
template <class Stored>
class Replica : public Model<Stored> {
  public:
    Replica(const Shape& shape, std::uint64_t seed)
        : Model<Stored>(shape), stored_(this->first_values(seed, 0, int(this->parameters().size()))) {
        if (this->expands) values_.resize(stored_.size());
    }

    void before(int unit, Pass pass) override {
        if (!this->expands || pass == Pass::backward) return;
        for (std::size_t i = this->offset(first_of_unit(unit)); i < this->offset(this->end_of(unit)); ++i)
            values_[i] = float(stored_[i]);
    }
    const float* values(int parameter) const override {
        if constexpr (Replica::expands)
            return values_.data() + this->offset(parameter);
        else
            return stored_.data() + this->offset(parameter);
    }
    std::vector<weftTrainBox_t> boxes() override {
        std::vector<weftTrainBox_t> all;
        counts_.clear();
        for (const Parameter& parameter : this->parameters()) counts_.push_back(parameter.count());
        for (int i = 0; i < int(counts_.size()); ++i) {
            weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
            box.name = this->parameters()[i].name.c_str();
            box.data = stored_.data() + this->offset(i);
            box.datatype = type_of<Stored>();
            box.dims = 1;
            box.shape = &counts_[std::size_t(i)];
            all.push_back(box);
        }
        return all;
    }

  protected:
    std::vector<weftTrainTensor_t> tensors() {
        std::vector<weftTrainTensor_t> all;
        for (int i = 0; i < int(this->parameters().size()); ++i)
            all.push_back(this->tensor(i, this->stored_.data() + this->offset(i)));
        return all;
    }

    std::vector<Piece<Stored>> pieces_with(const std::vector<Stored*>& gradients) {
        std::vector<Piece<Stored>> all;
        for (int i = 0; i < int(gradients.size()); ++i)
            all.push_back({this->parameters()[i].name.c_str(), stored_.data() + this->offset(i),
                           gradients[std::size_t(i)], this->parameters()[i].count(), this->decays(i)});
        return all;
    }

    std::vector<Stored> stored_;

  private:
    std::vector<float> values_;
    std::vector<std::size_t> counts_;  // shapes of the boxes
};

// Without communication. The step may be divided into the parts that `ranks` ranks would compute: then the result has
// the bits of these ranks in deterministic mode.
template <class Stored>
class Alone : public Replica<Stored> {
  public:
    Alone(const Shape& shape, std::uint64_t seed, int ranks)
        : Replica<Stored>(shape, seed),
          ranks_(ranks),
          average_(ranks),
          part_(this->stored_.size()),
          sum_(this->stored_.size()),
          gradient_(this->stored_.size()) {}

    void after(int, Pass) override {}
    float* gradient(int parameter) override { return part_.data() + this->offset(parameter); }

    void begin(MicroBatch micro) override {
        if (micro.first) part_.assign(part_.size(), 0);
    }
    void finish(MicroBatch micro) override {
        if (!micro.last) return;
        for (std::size_t i = 0; i < part_.size(); ++i) {
            const float part = average_.part(float(Stored(part_[i])));
            sum_[i] = done_ == 0 ? part : sum_[i] + part;
        }
        if (++done_ < ranks_) return;
        done_ = 0;
        for (std::size_t i = 0; i < sum_.size(); ++i) gradient_[i] = Stored(average_.whole(sum_[i]));
    }
    std::vector<Piece<Stored>> pieces() override {
        std::vector<Stored*> gradients;
        for (int i = 0; i < int(this->parameters().size()); ++i)
            gradients.push_back(gradient_.data() + this->offset(i));
        return this->pieces_with(gradients);
    }
    double mean(double loss) override { return loss; }

  private:
    int ranks_, done_ = 0;
    Average<float> average_;
    std::vector<float> part_, sum_;
    std::vector<Stored> gradient_;
};

// Data-parallel: the gradients of a unit are sent while those of the unit before it are computed.
template <class Stored>
class Replicated final : public Replica<Stored> {
  public:
    Replicated(const Shape& shape, std::uint64_t seed, weft::Communicator& comm, const weftTrainDdpConfig_t& config)
        : Replica<Stored>(shape, seed), comm_(comm), ddp_(comm, this->tensors(), {}, config) {
        if (this->expands) work_.resize(this->stored_.size());
    }

    void begin(MicroBatch micro) override {
        last_ = micro.last;
        if (last_)
            ddp_.begin();
        else
            ddp_.begin_accumulation();
        for (int i = 0; micro.first && i < int(this->parameters().size()); ++i)
            std::fill_n(gradient(i), this->parameters()[i].count(), 0.0f);
    }
    void after(int unit, Pass pass) override {
        if (pass == Pass::forward) return;
        for (int i = this->end_of(unit) - 1; i >= first_of_unit(unit); --i) {
            if (this->expands && last_)
                std::transform(gradient(i), gradient(i) + this->parameters()[i].count(),
                               ddp_.template gradient<Stored>(i), [](float value) { return Stored(value); });
            ddp_.ready(i);
        }
    }
    float* gradient(int parameter) override {
        if (this->expands) return work_.data() + this->offset(parameter);
        return ddp_.template gradient<float>(parameter);
    }
    void finish(MicroBatch) override { ddp_.finish(); }
    // The first iteration determines the buckets: two without gradients, so that the next sum has the order of the
    // earlier run's, and its hook the same buckets.
    void resume_at(int) override {
        for (int iteration = 0; iteration < 2; ++iteration) {
            begin({true, true});
            for (int unit = this->units() - 1; unit >= 0; --unit) after(unit, Pass::backward);
            finish({true, true});
        }
    }

    std::vector<Piece<Stored>> pieces() override {
        std::vector<Stored*> gradients;
        for (int i = 0; i < int(this->parameters().size()); ++i) gradients.push_back(ddp_.template gradient<Stored>(i));
        return this->pieces_with(gradients);
    }
    double mean(double loss) override {
        comm_.all_reduce(&loss, 1, weftAvg);
        return loss;
    }

  private:
    weft::Communicator& comm_;
    weft::train::Ddp ddp_;
    bool last_ = false;
    std::vector<float> work_;  // gradients of bfloat16 values are added up here
};

}  // namespace train
