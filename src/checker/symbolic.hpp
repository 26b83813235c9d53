// symbolic.hpp: the content of a chunk as the expression that made it and its contributions, in place of numbers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::internal {

struct Value {
    uint64_t expression = 0;  // hash: equal if and only if made in the same way
    uint64_t weight = 0;      // sum of the contributions' weights
    uint32_t count = 0;       // contributions; 0: never written
    uint32_t tile : 31 = 0;   // of the whole sequence of operations: the tile of this message
    uint32_t finished : 1 = 0;

    bool defined() const { return count != 0; }
};

inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

// The contributions of `ranks` ranks to chunks, each with a weight. A sum of weights identifies its contributions.
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
    // Adds an operand to a sum that is rounded only at its end. This is another expression than a chain of sums.
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
    // The fault of an incomplete value: "lacks the contribution of rank 2".
    std::string fault(const Value& value, int chunk) const;

  private:
    // Odd, so that each contribution counts. Of as many contributions as ranks, only one of each to that chunk add up
    // to the value in complete().
    static uint64_t scale(uint32_t chunk) { return 2 * uint64_t(chunk) + 1; }

    int ranks_;
    std::vector<uint64_t> weights_;
    uint64_t all_ = 0;
};

}  // namespace weft::internal
