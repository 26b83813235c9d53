#include "algorithms/embedding.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

namespace weft::internal {

Hosts::Hosts(const Layout& layout, int first)
    : host(layout.host_of(layout.rank)), place(0), ranks_(layout.ranks_by_host()) {
    if (first >= 0) {
        ordered_.resize(size_t(count()));
        std::vector<int32_t>& turned = ordered_[size_t(layout.host_of(first))];
        turned = layout.ranks_of(layout.host_of(first));
        std::rotate(turned.begin(), std::find(turned.begin(), turned.end(), first), turned.end());
    }
    find_place(layout.rank);
}

void Hosts::find_place(int rank) {
    const auto own = (*this)[host];
    place = int(std::find(own.begin(), own.end(), rank) - own.begin());
}

// Sorts by rail from `first_rail` on, cyclically and stably.
static void order_by_rails(std::vector<int32_t>& ranks, const std::vector<int32_t>& rails, int32_t first_rail) {
    const int32_t all = 1 + std::max(0, *std::max_element(rails.begin(), rails.end()));
    std::map<int32_t, int32_t> seen;  // by rail
    std::vector<std::tuple<int32_t, int32_t, int32_t>> keys;
    for (const int32_t rank : ranks) {
        const int32_t rail = std::max(0, rails[size_t(rank)]);
        keys.emplace_back(seen[rail]++, (rail - first_rail + all) % all, rank);
    }
    std::stable_sort(keys.begin(), keys.end(), [](const auto& one, const auto& other) {
        return std::pair(std::get<0>(one), std::get<1>(one)) < std::pair(std::get<0>(other), std::get<1>(other));
    });
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = std::get<2>(keys[i]);
}

Hosts Hosts::by_rails(const Layout& layout, int first) {
    Hosts hosts(layout, first);
    if (layout.rails.empty()) return hosts;
    const int32_t first_rail = first >= 0 ? std::max(0, layout.rails[size_t(first)]) : 0;
    hosts.ordered_.resize(size_t(hosts.count()));
    for (int of = 0; of < hosts.count(); ++of) {
        std::vector<int32_t>& ranks = hosts.ordered_[size_t(of)];
        if (ranks.empty()) ranks = layout.ranks_of(of);
        order_by_rails(ranks, layout.rails, first_rail);
    }
    hosts.find_place(layout.rank);
    return hosts;
}

std::vector<int32_t> Hosts::column(int at) const {
    std::vector<int32_t> found;
    found.reserve(size_t(count()));
    for (int of = 0; of < count(); ++of) found.push_back((*this)[of][size_t(at)]);
    return found;
}

Layout layout_of_hosts(const Layout& layout) {
    return layout_in_blocks(layout.host_count(), layout.host_count(), layout.host_of(layout.rank));
}

static Buffer standing_for(Buffer buffer, const Embedding::EmbeddingMap& where) {
    return buffer == Buffer::input     ? where.input
           : buffer == Buffer::output  ? where.output
           : buffer == Buffer::scratch ? where.scratch
                                       : buffer;
}

static uint8_t all_standing_for(uint8_t targets, const Embedding::EmbeddingMap& where) {
    uint8_t all = 0;
    for (const Buffer each : {Buffer::output, Buffer::scratch})
        if (targets & each) all |= standing_for(each, where);
    return all;
}

Embedding::Embedding(const Schedule& inner, const EmbeddingMap& where) {
    assert(inner.shared_ranks.empty() && inner.tiles == 1 && inner.scratch == 0);
    for (int block = 0; block < int(inner.blocks.size()); ++block) embed(block, inner, where);
    for (Block& block : blocks_)
        for (Instruction& it : block.instructions) {
            if (it.after == Dependency()) continue;
            const Dependency moved = moved_[size_t(it.after.block)][size_t(it.after.step)];
            assert(moved.block >= 0 || it.after.ago == 0);
            it.after = {moved.block, moved.step, moved.block < 0 ? 0 : it.after.ago};
        }
    for (int block = 0; block < int(blocks_.size()); ++block) {
        const Dependency last{block, int(blocks_[size_t(block)].instructions.size()) - 1};
        if (!awaited(last)) ends_.push_back(last);
    }
}

void Embedding::embed(int inner_block, const Schedule& inner, const EmbeddingMap& where) {
    const Block& from = inner.blocks[size_t(inner_block)];
    const auto rank_on = [&](int host) { return host < 0 ? -1 : where.ranks[size_t(host)]; };
    blocks_.push_back({from.channel, rank_on(from.source), rank_on(from.target), {}});
    const auto& instructions = blocks_.back().instructions;
    std::vector<Dependency>& moved = moved_.emplace_back();
    for (Instruction it : from.instructions) {
        it.source = standing_for(it.source, where);
        it.targets = all_standing_for(it.targets, where);
        // A copy onto itself is dropped.
        if (it.opcode != Opcode::copy || it.source != it.targets) append(it, where);
        moved.push_back(instructions.empty() ? Dependency()
                                             : Dependency{int(blocks_.size()) - 1, int(instructions.size()) - 1});
    }
    if (instructions.empty()) blocks_.pop_back();
}

void Embedding::append(const Instruction& instruction, const EmbeddingMap& where) {
    auto& instructions = blocks_.back().instructions;
    if (where.chunks.size() == 1) {
        instructions.push_back(instruction);
        instructions.back().chunk.base += where.chunks[0].first;
        return;
    }
    for (int iteration = 0; iteration < instruction.repeat; ++iteration) {
        Instruction& it = instructions.emplace_back(instruction);
        if (iteration > 0) it.after = {};
        const int first = where.chunks[size_t(instruction.chunk.at(iteration))].first, all = where.chunks_in_all;
        it.repeat = 1;
        it.count = 0;
        for (int offset = 0; offset < instruction.count; ++offset) {
            const Chunks& chunks = where.chunks[size_t(instruction.chunk.at(iteration, offset))];
            assert(chunks.first == (first + it.count) % all);
            it.count += chunks.count;
        }
        it.chunk = first + it.count > all ? Index{0, first, all, 0} : Index{first, 0, 1, 0};
    }
}

// Whether some step always follows this one.
bool Embedding::awaited(const Dependency& step) const {
    for (const Block& block : blocks_)
        for (const Instruction& it : block.instructions)
            if (it.after == step) return true;
    return false;
}

std::vector<Dependency> Embedding::emit(Builder& schedule, Dependency begin) const {
    const int before = schedule.blocks();
    // A block that first waits for a step of an earlier tile has no room there for a second dependency.
    const auto nops = [&](int block) {
        const Dependency& after = blocks_[size_t(block)].instructions[0].after;
        return begin != Dependency() && after.ago > 0 ? 1 : 0;
    };
    const auto in_schedule = [&](const Dependency& of) {
        return Dependency{of.block + before, of.step + nops(of.block), of.ago};
    };
    for (int b = 0; b < int(blocks_.size()); ++b) {
        const Block& from = blocks_[size_t(b)];
        BlockBuilder block = schedule.block({from.channel, from.source, from.target});
        if (nops(b)) block.nop().after(begin);
        for (Instruction it : from.instructions) {
            if (it.after != Dependency())
                it.after = in_schedule(it.after);
            else if (block.size() == 0)
                it.after = begin;
            block.append(it);
        }
    }
    std::vector<Dependency> ends;
    for (const Dependency& end : ends_) ends.push_back(in_schedule(end));
    return ends;
}

int largest_span(const std::vector<int>& counts, int span) {
    int largest = 0;
    for (size_t first = 0; first < counts.size(); ++first) {
        int chunks = 0;
        for (int offset = 0; offset < span; ++offset) chunks += counts[(first + size_t(offset)) % counts.size()];
        largest = std::max(largest, chunks);
    }
    return largest;
}

}  // namespace weft::internal
