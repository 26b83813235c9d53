// embedding.hpp: embeds a schedule among hosts in one among their ranks: maps hosts to ranks, and chunks and buffers to
// the outer schedule's chunks and buffers.
#pragma once
#include "src/schedule/builder.hpp"

namespace weft::internal {

// The ranks by host, and the position of one of them.
struct Hosts {
    // `first`: the rank that comes first on its host; -1: the lowest one.
    explicit Hosts(const Layout& layout, int first = -1);
    // If rails are known, each host's ranks are ordered round-robin over its rails. The first k ranks then use as many
    // links as possible, and ranks at the same position of equal hosts share a rail.
    static Hosts by_rails(const Layout& layout, int first = -1);

    int count() const { return int(ranks_.size()); }
    std::span<const int32_t> operator[](int of) const {
        return ordered_.empty() || ordered_[size_t(of)].empty() ? ranks_[size_t(of)] : ordered_[size_t(of)];
    }
    std::vector<int32_t> local() const { return {(*this)[host].begin(), (*this)[host].end()}; }
    // The ranks at this position on each host.
    std::vector<int32_t> column(int at) const;

    int host, place;  // of the rank, and its position on its host

  private:
    void find_place(int rank);

    RanksByHost ranks_;
    std::vector<std::vector<int32_t>> ordered_;  // by host; empty: as in ranks_
};

// The layout that a schedule among hosts sees: one rank per host.
Layout layout_of_hosts(const Layout& layout);

// Made from one schedule that uses connections only; reentrant.
class Embedding {
  public:
    struct Chunks {
        int first, count;
    };
    struct EmbeddingMap {
        std::vector<int32_t> ranks;  // by rank of the inner schedule: the rank that takes its part
        std::vector<Chunks>
            chunks;         // by chunk of the inner schedule: its images; a single entry: the other chunks follow it
        int chunks_in_all;  // chunks of the outer schedule; cyclic ranges wrap at this number
        Buffer input = Buffer::input, output = Buffer::output, scratch = Buffer::scratch;
    };
    Embedding(const Schedule& inner, const EmbeddingMap& where);

    // The number of steps after which all of it is done.
    size_t ends() const { return ends_.size(); }
    // Appends its blocks to `schedule`. They begin after `begin`, if there is such a step. Returns the final steps.
    std::vector<Dependency> emit(Builder& schedule, Dependency begin = {}) const;

  private:
    void embed(int inner_block, const Schedule& inner, const EmbeddingMap& where);
    void append(const Instruction& instruction, const EmbeddingMap& where);
    bool awaited(const Dependency& step) const;

    std::vector<Block> blocks_;
    // By block and step of the inner schedule: the last step that it became; no step: its effect is already there.
    std::vector<std::vector<Dependency>> moved_;
    std::vector<Dependency> ends_;
};

// The most chunks in a message of any rank, if hosts' chunks are `counts` and inner messages hold `span` of them.
int largest_span(const std::vector<int>& counts, int span);

}  // namespace weft::internal
