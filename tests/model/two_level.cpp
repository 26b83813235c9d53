// two_level.cpp: the steps of one host's ranks in a two-level call (docs/design/shared-memory-protocol.md, rule 10).
// One block fills the flag block and sums; the other publishes results from other hosts on it. The blocks may be any
// distance apart.
#include <utility>

#include "tests/model/flag_block_model.hpp"

namespace weft::internal::model {

void Model::make_two_level(int rank, int index, Program& entries, Program& results) const {
    const Call& own = call(rank, index);
    if (own.shape != Shape::two_level) return;
    const bool owns = rank < owners(own);
    const int runs_ahead = scenario_.slots - (is(Fault::owners_stage_early) ? 0 : 1);
    std::vector<size_t> summed, waited;  // steps of a block until then, by tile
    const auto add = [](Program& program, Step::Kind kind, int tile, int chunk = 0, size_t after = 0) {
        program.push_back({kind, uint8_t(tile), uint8_t(chunk), uint8_t(after)});
    };
    const auto for_others = [&](auto step) {
        for (int owner = 0; owner < owners(own); ++owner)
            if (owner != rank) step(owner);
    };
    // The results block first: the entries of later tiles come after steps of it, which come after earlier entries.
    const auto add_results = [&](int tile) {
        const bool done_first = is(Fault::done_before_result) || is(Fault::done_before_last_copies);
        const auto copy_out = [&](int of) { for_others([&](int owner) { add(results, Step::copy_out, of, owner); }); };
        if (tile > 0 && !is(Fault::done_before_last_copies)) copy_out(tile - 1);
        if (done_first) add(results, Step::post_departure, tile);
        if (tile > 0 && is(Fault::done_before_last_copies)) copy_out(tile - 1);
        if (owns) add(results, Step::put_result, tile, 0, is(Fault::result_before_sum) ? 0 : summed[size_t(tile)]);
        if (!done_first) add(results, Step::post_departure, tile);
        if (!is(Fault::done_wait_dropped)) add(results, Step::wait_done, tile);
        waited.push_back(results.size());
        if (tile + 1 == own.tiles) copy_out(tile);
    };
    for (int tile = 0; tile < own.tiles; ++tile) {
        const bool held = owns && tile >= runs_ahead && !is(Fault::owners_stage_at_once);
        size_t after = held ? waited[size_t(tile - runs_ahead)] : 0;
        for_others([&](int owner) { add(entries, Step::stage, tile, owner, std::exchange(after, 0)); });
        add(entries, Step::post_arrival, tile);
        add(entries, Step::wait_entry, tile);
        if (owns) {
            for (int peer = 0; peer < scenario_.ranks; ++peer)
                if (peer != rank) add(entries, Step::read_chunk, tile, peer);
            add(entries, Step::write_sum, tile);
        }
        summed.push_back(entries.size());
        add_results(tile);
    }
    // Both have ended.
    add(entries, Step::give_back, 0, 0, results.size());
}

}  // namespace weft::internal::model
