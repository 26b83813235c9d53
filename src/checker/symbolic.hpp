// symbolic.hpp: what a chunk holds, not as numbers but as the expression that made them and the contributions in it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal {

struct Value {
    uint64_t expression = 0;  // hash: equal if and only if made alike
    uint64_t weight = 0;      // sum of the contributions' weights
    uint32_t count = 0;       // contributions; 0: nothing was ever written here
    uint32_t tile : 31 = 0;   // of the whole sequence of operations: which message's part this is
    uint32_t finished : 1 = 0;

    bool defined() const { return count != 0; }
};

inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

// The contributions of `ranks` ranks to chunks, each with a weight; a sum of weights tells which are in it.
class Contributions {
  public:
    explicit Contributions(int ranks);
    Value leaf(int rank, uint32_t tile, uint32_t chunk) const {
        const uint64_t what = (uint64_t(tile) << 32 | chunk) * 0x9e3779b97f4a7c15u;
        return {mix(what + weights_[rank]), weights_[rank] * scale(chunk), 1, tile, 0};
    }
    // left + right, rounded.
    static Value sum(const Value& left, const Value& right) {
        return {mix(mix(left.expression) + 3 * right.expression), left.weight + right.weight, left.count + right.count,
                left.tile, 0};
    }
    // Adds one more operand to a sum that is rounded only at its end: another expression than a chain of sums.
    static void accumulate(Value& value, const Value& operand) {
        value.expression = mix(mix(value.expression ^ 0x2545f4914f6cdd1du) + 5 * operand.expression);
        value.weight += operand.weight;
        value.count += operand.count;
    }
    static void finish(Value& value) {
        value.expression = mix(value.expression ^ 0x94d049bb133111ebu);
        value.finished = 1;
    }
    bool complete(const Value& value, int chunk) const {
        return value.count == uint32_t(ranks_) && value.weight == all_ * scale(uint32_t(chunk));
    }
    // What is wrong with an incomplete one: "lacks the contribution of rank 2".
    std::string fault(const Value& value, int chunk) const;

  private:
    // Odd, so a contribution that is there counts: of as many as there are ranks only one of each to that chunk add up to
    // what complete() asks for.
    static uint64_t scale(uint32_t chunk) { return 2 * uint64_t(chunk) + 1; }

    int ranks_;
    std::vector<uint64_t> weights_;
    uint64_t all_ = 0;
};

}  // namespace weft::internal
