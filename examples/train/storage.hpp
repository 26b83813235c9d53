// storage.hpp: the types in which parameters and gradients are stored and sent, and AdamW for both.
#pragma once

#include <weft/train.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
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
    Stored* values;
    const Stored* gradient;
    std::size_t count;
    bool decays;  // matrices only
};

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019). Values that are not float32 have main
// values in float32 here.
template <class Stored>
class AdamW {
  public:
    // The pieces are the same in each step. `step` counts from 1.
    void step(const std::vector<Piece<Stored>>& pieces, int step, float rate) {
        if (states_.empty()) start(pieces);
        const float correction1 = 1 - std::pow(beta1, float(step)), correction2 = 1 - std::pow(beta2, float(step));
        for (std::size_t number = 0; number < pieces.size(); ++number) {
            const Piece<Stored>& piece = pieces[number];
            State& state = states_[number];
            const float decay = piece.decays ? 1 - rate * 0.01f : 1;
            for (std::size_t i = 0; i < piece.count; ++i) {
                const float gradient = float(piece.gradient[i]);
                float& m = state.m[i];
                float& v = state.v[i];
                m = beta1 * m + (1 - beta1) * gradient;
                v = beta2 * v + (1 - beta2) * gradient * gradient;
                const float before = main_ ? state.main[i] : float(piece.values[i]);
                const float after = before * decay - rate * (m / correction1) / (std::sqrt(v / correction2) + 1e-8f);
                if (main_) state.main[i] = after;
                piece.values[i] = Stored(after);
            }
        }
    }

  private:
    static constexpr bool main_ = !std::is_same<Stored, float>::value;
    static constexpr float beta1 = 0.9f, beta2 = 0.99f;
    struct State {
        std::vector<float> main, m, v;
    };

    void start(const std::vector<Piece<Stored>>& pieces) {
        for (const Piece<Stored>& piece : pieces) {
            State state;
            if (main_)
                std::transform(piece.values, piece.values + piece.count, std::back_inserter(state.main), to_float);
            state.m.resize(piece.count);
            state.v.resize(piece.count);
            states_.push_back(std::move(state));
        }
    }
    static float to_float(Stored value) { return float(value); }

    std::vector<State> states_;
};

}  // namespace train
