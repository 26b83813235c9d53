// storage.hpp: the types in which parameters and gradients are stored and sent, and AdamW for both.
#pragma once

#include <weft/train.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace train {

// The upper half of a float32, rounded to nearest even.
struct Bfloat16 {
    std::uint16_t bits = 0;

    Bfloat16() = default;
    explicit Bfloat16(float value) {
        std::uint32_t whole;
        std::memcpy(&whole, &value, sizeof whole);
        const bool nan = (whole & 0x7fffffff) > 0x7f800000;
        bits = static_cast<std::uint16_t>(nan ? whole >> 16 | 64 : (whole + 0x7fff + (whole >> 16 & 1)) >> 16);
    }
    explicit operator float() const {
        const std::uint32_t whole = std::uint32_t(bits) << 16;
        float value;
        std::memcpy(&value, &whole, sizeof value);
        return value;
    }
};

template <class Stored>
constexpr weftDataType_t type_of() {
    return std::is_same<Stored, float>::value ? weftFloat32 : weftBfloat16;
}

// The optimizer of a rank changes pieces: parameters, or parts of them.
template <class Stored>
struct Piece {
    const char* name;
    Stored* values;
    Stored* gradient;
    std::size_t count;
    bool decays;  // matrices only
};

// Where an optimizer keeps its moments, and main values: a folder on a disk, or, if it is empty, memory.
struct Offload {
    std::string folder;
    const weft::Communicator* comm = nullptr;  // over which the parts are sharded: all its ranks see a full disk
};

// weft::train::Optimizer, AdamW or LAMB, for matrices, whose weights decay, and for vectors. Values that are not float32 have main values
// in float32 here.
template <class Stored>
class AdamW {
  public:
    explicit AdamW(Offload offload = {}) : offload_(std::move(offload)) {}
    // LAMB, or 1-bit LAMB with the hook that it asks.
    explicit AdamW(weftTrainCompressor_t compressor) : lamb_(true), compressor_(compressor) {}

    // The pieces are the same in each step. momentum: gradients are the first moment, and the second one is frozen.
    void step(const std::vector<Piece<Stored>>& pieces, float rate, bool momentum = false) {
        prepare(pieces);
        if (momentum && !frozen_) freeze(pieces);
        for (const bool decays : {false, true}) {
            weft::train::Optimizer& optimizer = optimizers_[decays];
            int number = 0;
            for (const Piece<Stored>& piece : pieces)
                if (piece.decays == decays) optimizer.set_gradient(number++, piece.gradient);
            optimizer.step(rate);
        }
        ++steps_;
    }

    // The parts of a checkpoint: `values` of the pieces and more, their moments, and main values. States of a file are
    // copied to memory. After prepare().
    std::vector<weftTrainBox_t> boxes(const std::vector<Piece<Stored>>& pieces,
                                      const std::vector<weftTrainBox_t>& values) {
        std::vector<weftTrainBox_t> all = values;
        const auto add = [&](weftTrainBox_t box, const char* kind, float* data) {
            names_.push_back(std::string(kind) + "/" + box.name);
            box.name = names_.back().c_str();
            box.data = data;
            box.datatype = weftFloat32;
            all.push_back(box);
        };
        names_.clear();
        buffers_.clear();
        int numbers[2] = {0, 0};
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            weft::train::Optimizer& optimizer = optimizers_[pieces[i].decays];
            const int number = numbers[pieces[i].decays]++;
            for (int state = 0; state < optimizer.state_count(); ++state) {
                if (offload_.folder.empty()) {
                    const auto moment = optimizer.state(number, state);
                    add(values[i], moment.first, moment.second);
                    continue;
                }
                const std::string kind = optimizer.state_name(number, state);
                buffers_.emplace_back(pieces[i].count + 1);  // data() of an empty vector may be NULL
                optimizer.read_state(number, state, buffers_.back().data());
                add(values[i], kind == "values" ? "main" : kind.c_str(), buffers_.back().data());
            }
            if (main_ && offload_.folder.empty()) add(values[i], "main", mains_[i].data());
        }
        return all;
    }
    void prepare(const std::vector<Piece<Stored>>& pieces) {
        if (optimizers_.empty()) start(pieces);
    }
    // For boxes() after `steps` steps, of which those from number momentum_from on were on momentum.
    void prepare(const std::vector<Piece<Stored>>& pieces, std::uint64_t steps, int momentum_from) {
        prepare(pieces);
        if (steps <= std::uint64_t(momentum_from)) return;
        optimizers_ = made(pieces, 0, 1 - 1e-12);
        frozen_ = true;
    }
    // After boxes() were loaded: the steps that they have seen.
    void loaded(const std::vector<Piece<Stored>>& pieces, std::uint64_t steps) {
        auto buffer = buffers_.begin();
        int numbers[2] = {0, 0};
        for (const Piece<Stored>& piece : pieces) {
            weft::train::Optimizer& optimizer = optimizers_[piece.decays];
            const int number = numbers[piece.decays]++;
            for (int state = 0; state < optimizer.state_count() && !offload_.folder.empty(); ++state)
                optimizer.write_state(number, state, (buffer++)->data());
            optimizer.set_steps(number, frozen_ ? frozen_steps : steps);
        }
        steps_ = int(steps);
    }
    // The ratio and the factor of each layer, for 1-bit LAMB. Equal on all ranks. After prepare().
    std::vector<double> trust(const std::vector<Piece<Stored>>& pieces) const {
        std::vector<double> all;
        int numbers[2] = {0, 0};
        for (const Piece<Stored>& piece : pieces) {
            if (!compressor_) break;
            const auto trust = optimizers_[piece.decays].trust(numbers[piece.decays]++);
            all.insert(all.end(), {trust.first, trust.second});
        }
        return all;
    }
    void set_trust(const std::vector<Piece<Stored>>& pieces, const std::vector<double>& trust) {
        if (trust.size() != (compressor_ ? 2 * pieces.size() : 0))
            throw std::runtime_error("the checkpoint is of another --optimizer or --hook");
        int numbers[2] = {0, 0};
        for (std::size_t i = 0; i < trust.size(); i += 2)
            optimizers_[pieces[i / 2].decays].set_trust(numbers[pieces[i / 2].decays]++, trust[i], trust[i + 1]);
    }

  private:
    static constexpr double beta1 = 0.9, beta2 = 0.99;
    // So many that moments have no bias.
    static constexpr std::uint64_t frozen_steps = std::uint64_t(1) << 50;

    void start(const std::vector<Piece<Stored>>& pieces) {
        for (const Piece<Stored>& piece : pieces) {
            std::vector<float> values;
            for (std::size_t i = 0; main_ && i < piece.count; ++i) values.push_back(float(piece.values[i]));
            mains_.push_back(std::move(values));
        }
        optimizers_ = made(pieces, beta1, beta2);
        if (!offload_.folder.empty()) mains_.clear();
    }

    // 1-bit Adam: moments that do not change any more, without their bias.
    void freeze(const std::vector<Piece<Stored>>& pieces) {
        std::vector<weft::train::Optimizer> frozen = made(pieces, 0, 1 - 1e-12);
        const float unbiased = float(1 / (1 - std::pow(beta2, double(steps_))));
        int numbers[2] = {0, 0};
        for (const Piece<Stored>& piece : pieces) {
            const int number = numbers[piece.decays]++;
            const float* from = optimizers_[piece.decays].state(number, 1).second;
            float* to = frozen[piece.decays].state(number, 1).second;
            for (std::size_t i = 0; i < piece.count; ++i) to[i] = from[i] * unbiased;
            frozen[piece.decays].set_steps(number, frozen_steps);
        }
        optimizers_ = std::move(frozen);
        frozen_ = true;
    }

    std::vector<weft::train::Optimizer> made(const std::vector<Piece<Stored>>& pieces, double first, double second) {
        std::vector<weft::train::Optimizer> both;
        for (const bool decays : {false, true}) {
            std::vector<weftTrainPart_t> parts;
            for (std::size_t i = 0; i < pieces.size(); ++i)
                if (pieces[i].decays == decays) parts.push_back(part(pieces[i], mains_[i]));
            weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
            config.algorithm = weftTrainAdamW;
            config.beta1 = first;
            config.beta2 = second;
            config.weightDecay = decays ? 0.01 : 0;
            if (lamb_) {
                config.algorithm = compressor_ ? weftTrainOneBitLamb : weftTrainLamb;
                config.compressor = compressor_;
                config.biasCorrection = 0;
            }
            if (offload_.folder.empty()) {
                both.emplace_back(parts, config);
                continue;
            }
            for (weftTrainPart_t& part : parts) part.axes = 1;
            config.offloadFolder = offload_.folder.c_str();
            config.offloadValues = main_ ? 1 : 0;
            both.emplace_back(parts, config, std::vector<const weft::Communicator*>{offload_.comm});
        }
        return both;
    }

    static weftTrainPart_t part(const Piece<Stored>& piece, std::vector<float>& main) {
        weftTrainPart_t part = WEFT_TRAIN_PART_INITIALIZER;
        part.name = piece.name;
        part.gradient = piece.gradient;
        part.gradientType = type_of<Stored>();
        part.count = piece.count;
        static float none;  // a rank may have nothing of a parameter
        if (piece.count == 0) {
            part.values = &none;
        } else if constexpr (main_) {
            part.values = main.data();
            part.copy = piece.values;
        } else {
            part.values = piece.values;
        }
        return part;
    }

    Offload offload_;
    static constexpr bool main_ = !std::is_same<Stored, float>::value;
    std::vector<weft::train::Optimizer> optimizers_;  // of vectors, of matrices
    std::vector<std::vector<float>> mains_;
    std::deque<std::string> names_;           // of the boxes
    std::deque<std::vector<float>> buffers_;  // states of a file, in the order of the boxes
    int steps_ = 0;
    bool frozen_ = false, lamb_ = false;
    weftTrainCompressor_t compressor_ = nullptr;
};

}  // namespace train
