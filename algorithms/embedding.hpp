// embedding.hpp: a schedule among hosts as part of one among their ranks: which ranks stand for hosts, which chunks for
// its chunks, which buffers for its buffers.
#pragma once
#include "src/schedule/builder.hpp"

namespace weft::internal {

// The ranks by host, and where one of them is.
struct Hosts {
    // `first`: the first of its host; -1: the lowest rank is.
    explicit Hosts(const Layout& layout, int first = -1);
    // EmbeddingMap rails are known each host's in their order, one of each and then the next of each: the first so many use as
    // many links as there are, and who is in one place has one rail on all hosts that are alike.
    static Hosts by_rails(const Layout& layout, int first = -1);

    int count() const { return int(ranks_.size()); }
    std::span<const int32_t> operator[](int of) const {
        return ordered_.empty() || ordered_[size_t(of)].empty() ? ranks_[size_t(of)] : ordered_[size_t(of)];
    }
    std::vector<int32_t> local() const { return {(*this)[host].begin(), (*this)[host].end()}; }
    // The ranks that are in this place on each host.
    std::vector<int32_t> column(int at) const;

    int host, place;  // of the rank, and its own among its host's

  private:
    void find_place(int rank);

    RanksByHost ranks_;
    std::vector<std::vector<int32_t>> ordered_;  // by host; empty: as in ranks_
};

// What such a schedule sees of a layout: a rank for each host.
Layout layout_of_hosts(const Layout& layout);

// Made of one schedule, of connections alone; reentrant.
class Embedding {
  public:
    struct Chunks {
        int first, count;
    };
    struct EmbeddingMap {
        std::vector<int32_t> ranks;  // by rank of the schedule: who does its part
        std::vector<Chunks> chunks;  // by chunk of the schedule: those that stand for it; or one: they follow it
        int chunks_in_all;           // of the other schedule; what goes round, goes round there
        Buffer input = Buffer::input, output = Buffer::output, scratch = Buffer::scratch;
    };
    Embedding(const Schedule& inner, const EmbeddingMap& where);

    // Steps after which all of it is done.
    size_t ends() const { return ends_.size(); }
    // Its blocks, behind those that `schedule` has, which begin after that step, if there is one. The ends.
    std::vector<Dependency> emit(Builder& schedule, Dependency begin = {}) const;

  private:
    void embed(int inner_block, const Schedule& inner, const EmbeddingMap& where);
    void append(const Instruction& instruction, const EmbeddingMap& where);
    bool awaited(const Dependency& step) const;

    std::vector<Block> blocks_;
    // By block and step of the inner schedule: where it has gone, the last of it; no step: what it would do is done.
    std::vector<std::vector<Dependency>> moved_;
    std::vector<Dependency> ends_;
};

// The most chunks in a message of any rank's, where hosts' chunks are `counts` and inner messages hold `span` of them.
int largest_span(const std::vector<int>& counts, int span);

}  // namespace weft::internal
