#include "src/schedule/stable_sends.hpp"

#include "src/schedule/each_chunk.hpp"

namespace weft::internal {

namespace {

// How often a chunk of the output is written, and how often by something else than a copy of the same chunk of the
// input. Such a copy changes nothing in place.
struct Writes {
    int all = 0, changing = 0;
};

std::vector<Writes> writes_of(const Schedule& schedule) {
    std::vector<Writes> writes(size_t(schedule.chunks));
    for (const Block& block : schedule.blocks)
        for (const Instruction& it : block.instructions) {
            if (!(it.targets & Buffer::output)) continue;
            const bool keeps = it.opcode == Opcode::copy && it.source == Buffer::input && !it.moves && !it.finish;
            each_chunk(it, it.moves ? it.into : it.chunk, [&](size_t chunk) {
                ++writes[chunk].all;
                writes[chunk].changing += !keeps;
            });
        }
    return writes;
}

bool is_stable(const Instruction& it, const std::vector<Writes>& writes, bool in_place) {
    if (!sends(it.opcode)) return false;
    const bool from_source = !receives(it.opcode), from_input = from_source && it.source == Buffer::input,
               from_output = from_source ? it.source == Buffer::output : it.targets == Buffer::output;
    if (!from_input && !from_output) return false;
    bool all = true;
    // A read of the output follows a write there, so a chunk that is written once is final.
    each_chunk(it, it.chunk, [&](size_t chunk) {
        all &= from_input ? !in_place || writes[chunk].changing == 0 : writes[chunk].all <= 1;
    });
    return all;
}

}  // namespace

std::vector<std::vector<bool>> find_stable_sends(const Schedule& schedule) {
    if (schedule.fifo_depth == 0 || schedule.tiles > 1) return {};
    const std::vector<Writes> writes = writes_of(schedule);
    const bool in_place = !facts_of(schedule.collective).transposes;  // may be
    std::vector<std::vector<bool>> found;
    bool any = false;
    for (const Block& block : schedule.blocks) {
        found.emplace_back();
        for (const Instruction& it : block.instructions) {
            found.back().push_back(is_stable(it, writes, in_place));
            any |= found.back().back();
        }
    }
    return any ? found : std::vector<std::vector<bool>>();
}

}  // namespace weft::internal
