// two_level.hpp: two-level collectives: a schedule among hosts, embedded in one inside each host over its flag block or
// (rails.cpp) its connections.
#pragma once
#include "algorithms/algorithm.hpp"
#include "algorithms/embedding.hpp"

namespace weft::internal {

struct TwoLevel {
    const char* name;
    Schedule (*between_hosts)(const Layout& layout, const Parameters& parameters);  // over connections only
    double (*between_hosts_us)(const Layout& layout, const LinkCosts& costs, size_t bytes);
    int owners_most;  // ranks of a host that exchange with other hosts, each its share; capped by the host's ranks
};

// The phases of a tile on the flag block.
inline constexpr int entry = 0, done = 1;

// A slot is reused after this many tiles. A rank that has waited for the departure flags of the tile after it knows
// that all ranks have read the slot (docs/design/shared-memory-protocol.md, rule 10).
inline constexpr int slots_of_flag_block = 4, runs_ahead = slots_of_flag_block - 1;

// Delays the first step that passes through it until several other steps, possibly emitted later, are done. Nops before
// it carry all dependencies but the last.
class Gate {
  public:
    explicit Gate(size_t others) : others_(others) {}
    template <class Emit>
    StepBuilder pass(BlockBuilder& block, Emit&& emit) {
        if (!steps_.empty()) return emit();
        for (size_t i = 0; i + 1 < others_; ++i) steps_.push_back(block.nop());
        steps_.push_back(emit());
        return steps_.back();
    }
    void after(const std::vector<Dependency>& others, int runs_ago = 0) {
        for (size_t i = 0; i < others.size(); ++i)
            steps_[i].after(Dependency{others[i].block, others[i].step, runs_ago});
    }

  private:
    size_t others_;
    std::vector<StepBuilder> steps_;
};

// The step begins after all of these.
template <class Emit>
StepBuilder after_all(BlockBuilder& block, const std::vector<Dependency>& others, Emit&& emit) {
    Gate gate(others.size());
    StepBuilder step = gate.pass(block, emit);
    gate.after(others);
    return step;
}

// The join of several steps: the first block that asks waits for all of them, the other blocks wait for that block.
class JoinedSteps {
  public:
    explicit JoinedSteps(std::vector<Dependency> ends) : ends_(std::move(ends)) {
        if (ends_.size() == 1) all_ = ends_[0];
    }
    // The dependency of the block's next step; nothing, if the block itself waits.
    Dependency in(BlockBuilder& block) {
        if (all_ != Dependency()) return all_;
        all_ = after_all(block, ends_, [&] { return block.nop(); }).dependency();
        return {};
    }

  private:
    std::vector<Dependency> ends_;
    Dependency all_;
};

// Cost between hosts, if `at_once` ranks of each host have a buffer of `bytes` each and share its link and processors.
double between_hosts_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes,
                        double at_once);
// Tiles overlap: the flag block processes one while another travels.
double overlapped_us(double flag_block_us, double between_us, const LinkCosts& costs, size_t bytes);

// Ranks are numbered host by host, with the same number on each: row h is host h, column l holds the ranks at position
// l.
struct Grid {
    explicit Grid(const Layout& layout)
        : hosts(layout), rank(layout.rank), ranks(layout.ranks), rows(hosts.count()), columns(ranks / rows) {}

    Hosts hosts;
    int rank, ranks, rows, columns;
    int rank_at(int row, int column) const { return row * columns + column; }
    // Moves down a column, from this row on.
    Chunk down(int column, int row = 0) const { return Chunk{0, rank_at(row, column), ranks}.then(columns); }
    Embedding of_column(const Schedule& inner, Buffer input, Buffer scratch) const {
        Embedding::EmbeddingMap where{hosts.column(hosts.place), {}, ranks, input, Buffer::output, scratch};
        for (int row = 0; row < rows; ++row) where.chunks.push_back({rank_at(row, hosts.place), 1});
        return {inner, where};
    }
};

size_t owners_of(const TwoLevel& levels, const Layout& layout);

}  // namespace weft::internal
