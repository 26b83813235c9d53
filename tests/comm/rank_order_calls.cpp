#include "tests/comm/rank_order_calls.hpp"

#include <cstring>
#include <random>
#include <vector>

#include "src/base/arithmetic.hpp"

namespace weft::internal::test {
namespace {

using Bytes = std::vector<std::byte>;

// Numbers of very different size, so that a sum in another order, or rounded between, is another sum.
template <weftDataType_t type>
typename Arithmetic<type>::Element draw(std::mt19937& random) {
    using A = typename Arithmetic<type>::Accumulator;
    if constexpr (std::is_integral_v<A>) {
        return A(uint64_t(random()) << 32 | random());
    } else {
        const A mantissa = A(1) + A(random() % 65536) / A(65536), sign = random() % 2 ? A(1) : A(-1);
        return Arithmetic<type>::round(sign * mantissa * A(1 << random() % 4));
    }
}

template <weftDataType_t type>
class Calls {
  public:
    using A = Arithmetic<type>;
    using Element = typename A::Element;
    using Elements = std::vector<Element>;

    Calls(weftComm_t comm, std::mt19937& random, RankOrderResult& result) : comm_(comm), result_(result) {
        (void)weftCommUserRank(comm, &rank_);
        (void)weftCommCount(comm, &ranks_);
        for (int rank = 0; rank < ranks_; ++rank) scalars_.push_back(draw<type>(random));
    }

    // All calls with `count` elements a part.
    void run(size_t count, weftRedOp_t op, std::mt19937& random) {
        std::vector<Elements> inputs;
        for (int rank = 0; rank < ranks_; ++rank) {
            inputs.emplace_back(count * size_t(ranks_));
            for (Element& element : inputs.back()) element = draw<type>(random);
        }
        const int root = int(random() % unsigned(ranks_));
        const Elements& own = inputs[size_t(rank_)];
        const Elements expected = reduced(inputs, op);
        weftRedOp_t made = op;
        if (op == weftNumOps &&
            !went(weftRedOpCreatePreMulSum(&made, &scalars_[size_t(rank_)], type, weftScalarHostImmediate, comm_)))
            return;
        const auto mine = expected.begin() + ptrdiff_t(count) * rank_;
        const Elements own_part(mine, mine + ptrdiff_t(count));
        Elements got(expected.size()), part(count), gathered(expected.size());
        if (went(weftAllReduce(own.data(), got.data(), got.size(), type, made, comm_, nullptr))) compare(got, expected);
        got = own;
        if (went(weftAllReduce(got.data(), got.data(), got.size(), type, made, comm_, nullptr))) compare(got, expected);
        if (went(weftReduce(own.data(), got.data(), got.size(), type, made, root, comm_, nullptr)) && rank_ == root)
            compare(got, expected);
        if (went(weftReduceScatter(own.data(), part.data(), count, type, made, comm_, nullptr)))
            compare(part, own_part);
        // Reduce-scatter and all-gather are an all-reduce.
        if (went(weftAllGather(part.data(), gathered.data(), count, type, comm_, nullptr))) compare(gathered, expected);
        const std::vector<size_t> counts(size_t(ranks_), count);
        if (went(weftReduceScatterv(own.data(), part.data(), counts.data(), type, made, comm_, nullptr)))
            compare(part, own_part);
        if (op == weftNumOps) went(weftRedOpDestroy(made, comm_));
    }

  private:
    Elements reduced(const std::vector<Elements>& inputs, weftRedOp_t op) const {
        Elements all(inputs[0].size());
        const auto contribution = [&](size_t rank, size_t i) {
            const auto value = A::widen(inputs[rank][i]);
            if (op != weftNumOps) return value;
            return A::widen(A::round(combine<weftProd>(A::widen(scalars_[rank]), value)));
        };
        for (size_t i = 0; i < all.size(); ++i) {
            auto value = contribution(0, i);
            for (size_t rank = 1; rank < inputs.size(); ++rank)
                value = op == weftProd ? combine<weftProd>(value, contribution(rank, i))
                                       : combine<weftSum>(value, contribution(rank, i));
            all[i] = A::round(op == weftAvg ? average(value, uint32_t(ranks_)) : value);
        }
        return all;
    }
    bool went(weftResult_t code) {
        if (code != weftSuccess && result_.wrong.empty()) result_.wrong = weftGetLastError(comm_);
        return code == weftSuccess;
    }
    void compare(const Elements& got, const Elements& expected) {
        ++result_.calls;
        result_.differing += memcmp(got.data(), expected.data(), got.size() * sizeof(Element)) != 0;
    }

    weftComm_t comm_;
    RankOrderResult& result_;
    int rank_ = 0, ranks_ = 0;
    Elements scalars_;
};

template <weftDataType_t type>
void run_type(weftComm_t comm, uint32_t seed, size_t most_elements, RankOrderResult& result) {
    std::mt19937 random(seed + uint32_t(type));
    Calls<type> calls(comm, random, result);
    int ranks = 1;
    (void)weftCommCount(comm, &ranks);
    // Of a part.
    for (const size_t count :
         {size_t(1), size_t(1 + random() % 20), size_t(1 + random() % 1000), most_elements / size_t(ranks)})
        for (const int op : {int(weftSum), int(weftAvg), int(weftProd), int(weftNumOps)})
            if (result.wrong.empty() && (count <= 1000 || op == weftSum || op == weftAvg))
                calls.run(count, weftRedOp_t(op), random);
}

}  // namespace

RankOrderResult run_rank_order_calls(weftComm_t comm, uint32_t seed, size_t most_elements) {
    RankOrderResult result;
    run_type<weftFloat32>(comm, seed, most_elements, result);
    run_type<weftBfloat16>(comm, seed, most_elements, result);
    run_type<weftFloat16>(comm, seed, most_elements / 4, result);
    run_type<weftFloat64>(comm, seed, most_elements / 8, result);
    run_type<weftFloat8e5m2>(comm, seed, most_elements / 8, result);
    run_type<weftInt32>(comm, seed, most_elements / 8, result);
    return result;
}

}  // namespace weft::internal::test
