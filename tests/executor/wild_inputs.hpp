// wild_inputs.hpp: random elements of every kind, drawn once and cut to size, for drawing costs more than reducing.
#pragma once
#include <fmt/core.h>

#include <stdexcept>

#include "src/schedule/text.hpp"
#include "tests/amount.hpp"
#include "tests/executor/local_ranks.hpp"

namespace weft::internal::test {

class WildInputs {
  public:
    static constexpr size_t most_elements = 6000;

    explicit WildInputs(std::mt19937& random) : pools_(weftNumTypes) {
        for (int type = 0; type < weftNumTypes; ++type)
            with_datatype(weftDataType_t(type), [&](auto t) {
                constexpr weftDataType_t constant = decltype(t)::value;
                for (int i = 0; i < 16384; ++i) {
                    const Element<constant> element = random_element<constant>(random);
                    const auto* first = reinterpret_cast<const std::byte*>(&element);
                    pools_[size_t(type)].insert(pools_[size_t(type)].end(), first, first + sizeof element);
                }
            });
    }
    Bytes take(weftDataType_t type, size_t count, std::mt19937& random) const {
        const Bytes& pool = pools_[size_t(type)];
        const size_t size = size_of(type);
        Bytes taken;
        while (count > 0) {
            const size_t some = std::min(count, most_elements);
            const size_t first = random() % (pool.size() / size - some) * size;
            taken.insert(taken.end(), pool.begin() + ptrdiff_t(first), pool.begin() + ptrdiff_t(first + some * size));
            count -= some;
        }
        return taken;
    }
    // Fills in the call's inputs and, if it wants them, scalars.
    void fill(Call& call, int ranks, size_t count, std::mt19937& random) const {
        call.inputs.clear();
        call.scalars.clear();
        const int parts = parts_of(call.collective(), ranks);
        for (int rank = 0; rank < ranks; ++rank) {
            const int held = parts_held(input_of(call.collective(), rank, call.root), parts);
            call.inputs.push_back(take(call.type, count * size_t(held), random));
            if (call.op == premul) call.scalars.push_back(take(call.type, 1, random));
        }
    }

  private:
    std::vector<Bytes> pools_;  // by type
};

inline std::vector<bool> random_flags(int ranks, std::mt19937& random) {
    std::vector<bool> flags;
    for (int rank = 0; rank < ranks; ++rank) flags.push_back(random() % 2 == 0);
    return flags;
}

// Each type and reduction by schedules of one's own, some ranks in place, several tiles: tries them one after the other.
template <class Try>
void each_reduction(const std::vector<Schedule>& written, const WildInputs& inputs, std::mt19937& random,
                    Try&& attempt) {
    const int ranks = int(written.size());
    for (int type = 0; type < weftNumTypes; ++type)
        for (const int op : reductions_of(type)) {
            Call call;
            call.written = &written;
            call.type = weftDataType_t(type);
            call.op = op;
            inputs.fill(call, ranks, random() % 900, random);
            call.in_place = random_flags(ranks, random);
            call.tile_bytes = 1024;
            attempt(call);
        }
}

// A reduce-scatter of two ranks that keep their input in two places at once, one of which, in place, is where it is.
inline std::vector<Schedule> two_places() {
    std::vector<Schedule> all;
    for (const int rank : {0, 1}) {
        auto read =
            read_text(fmt::format("schedule x reduce_scatter rank {0} of 2 channels 1 chunks 2 fifo 2\n"
                                  "block channel 0 source {1} target {1}\n"
                                  "copy input[{0}] -> output scratch into {0}\n"
                                  "send input[{1}]\n"
                                  "recv_reduce_copy scratch[{0}] -> output{2} finish\n",
                                  rank, 1 - rank, rank == 0 ? " left" : ""));
        if (!read) throw std::logic_error(std::string(read.status().sentence()));
        all.push_back(*read);
    }
    return all;
}

}  // namespace weft::internal::test
