#include "src/schedule/early_receives.hpp"

#include "src/schedule/each_chunk.hpp"

namespace weft::internal {

namespace {

// How often a chunk of the output is written, and how often the same chunk of the input is read.
struct Uses {
    int writes = 0, reads = 0;
};

std::vector<Uses> uses_of(const Schedule& schedule) {
    std::vector<Uses> uses(size_t(schedule.chunks));
    for (const Block& block : schedule.blocks)
        for (const Instruction& it : block.instructions) {
            if (writes_targets(it.opcode) && (it.targets & Buffer::output))
                each_chunk(it, it.moves ? it.into : it.chunk, [&](size_t chunk) { ++uses[chunk].writes; });
            if ((reads_source(it.opcode) && it.source == Buffer::input) || it.opcode == Opcode::reduce)
                each_chunk(it, it.chunk, [&](size_t chunk) { ++uses[chunk].reads; });
        }
    return uses;
}

// A chunk that is written once is not read before. In place its input must not be needed any more when the data comes.
// The result of an all-reduce contains this rank's contribution, so it comes after the only read of that.
Early early(const Instruction& it, const std::vector<Uses>& uses, Collective collective) {
    const bool only_output = it.targets == Buffer::output && !it.moves;
    if ((it.opcode != Opcode::recv && it.opcode != Opcode::recv_copy_send) || !only_output) return Early::no;
    const int reads_most = collective == Collective::all_reduce ? 1 : 0;
    Early found = facts_of(collective).transposes ? Early::out_of_place : Early::always;
    each_chunk(it, it.chunk, [&](size_t chunk) {
        if (uses[chunk].reads > reads_most && found == Early::always) found = Early::out_of_place;
        if (uses[chunk].writes > 1) found = Early::no;
    });
    return found;
}

}  // namespace

EarlyReceives find_early_receives(const Schedule& schedule) {
    if (schedule.fifo_depth == 0 || schedule.tiles > 1 || schedule.wide > 1) return {};
    const std::vector<Uses> uses = uses_of(schedule);
    EarlyReceives found;
    bool any = false;
    for (const Block& block : schedule.blocks) {
        found.emplace_back();
        for (const Instruction& it : block.instructions) {
            found.back().push_back(early(it, uses, schedule.collective));
            any |= found.back().back() != Early::no;
        }
    }
    return any ? found : EarlyReceives();
}

}  // namespace weft::internal
