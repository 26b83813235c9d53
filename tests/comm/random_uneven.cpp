#include "tests/comm/random_uneven.hpp"

#include <cstring>

#include "src/base/datatype.hpp"

namespace weft::internal::test {

void RandomUneven::Table::set(std::vector<size_t> of, std::mt19937& random, bool closely) {
    counts = std::move(of);
    displacements.resize(counts.size());
    const bool backwards = !closely && random() % 2;
    for (size_t i = 0; i < counts.size(); ++i) {
        const size_t part = backwards ? counts.size() - 1 - i : i;
        displacements[part] = elements += closely ? 0 : random() % 3;
        elements += counts[part];
    }
}

RandomUneven::RandomUneven(uint32_t seed, int index, int rank, int ranks, size_t most_bytes)
    : rank_(rank), ranks_(ranks), root_(index % ranks) {
    std::seed_seq seeds{seed, uint32_t(index), 1u};
    std::mt19937 alike(seeds);
    seed_ = uint32_t(alike());
    kind_ = Kind(alike() % 5);
    type_ = weftDataType_t(alike() % weftNumTypes);
    if (kind_ == Kind::reduce_scatter) type_ = alike() % 2 ? weftUint8 : weftUint64;
    const bool may_be_in_place = kind_ != Kind::all_to_all && alike() % 2;
    const size_t element = size_of(type_);
    for (int i = 0; i < ranks * ranks; ++i)
        counts_.push_back(alike() % 3 == 0 ? 0 : draw_bytes(alike, most_bytes) / element);
    // A taker wants the same of all, or a giver has the same for all.
    for (int from = 0; kind_ == Kind::reduce_scatter && from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) count(from, to) = count(0, to);
    for (int from = 0; kind_ == Kind::all_gather && from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) count(from, to) = count(from, 0);

    // From here on each rank by itself.
    std::seed_seq own_seeds{seed_, uint32_t(rank)};
    std::mt19937 random(own_seeds);
    const bool is_root = rank == root_;
    gives_all_ = kind_ == Kind::all_to_all || kind_ == Kind::reduce_scatter || (kind_ == Kind::scatter && is_root);
    takes_all_ = kind_ == Kind::all_to_all || kind_ == Kind::all_gather || (kind_ == Kind::gather && is_root);
    std::vector<size_t> to_send, to_take;
    for (int peer = 0; peer < ranks; ++peer) {
        if (gives_all_) to_send.push_back(count(rank, peer));
        if (takes_all_) to_take.push_back(count(peer, rank));
    }
    if (!gives_all_ && kind_ != Kind::scatter) to_send.push_back(count(rank, root_));
    if (!takes_all_ && kind_ != Kind::gather) to_take.push_back(count(root_, rank));
    sends_.set(std::move(to_send), random, kind_ == Kind::reduce_scatter);
    takes_.set(std::move(to_take), random, false);
    out_ = Guarded(sends_.elements * element, 0);
    in_ = Guarded(takes_.elements * element, 0);
    for (size_t part = 0; part < sends_.counts.size(); ++part)
        put(place(out_, sends_, part), rank, gives_all_ ? int(part) : root_);
    send_ = gives_all_ || sends_.counts.empty() ? out_.data() : place(out_, sends_, 0);
    take_ = takes_all_ || takes_.counts.empty() ? in_.data() : place(in_, takes_, 0);
    // In place the one part of ours is where the other buffer has it.
    const bool of_all = kind_ == Kind::all_gather || kind_ == Kind::reduce_scatter;
    if (!may_be_in_place || takes_all_ == gives_all_ || !(of_all || is_root)) return;
    if (takes_all_) put(send_ = place(in_, takes_, size_t(rank)), rank, root_);
    if (gives_all_) take_ = place(out_, sends_, size_t(rank));
}

RandomBytes RandomUneven::data(int from, int to) {
    return contents(seed_, size_t(from * ranks_ + (kind_ == Kind::all_gather ? 0 : to)),
                    count(from, to) * size_of(type_));
}

void RandomUneven::put(std::byte* at, int from, int to) {
    const RandomBytes bytes = data(from, to);
    std::copy(bytes.begin(), bytes.end(), at);
}

std::byte* RandomUneven::place(Guarded& buffer, const Table& table, size_t part) const {
    return buffer.data() + table.displacements[part] * size_of(type_);
}

weftResult_t RandomUneven::issue(weftComm_t comm, weftStream_t stream) {
    const size_t sent = count(rank_, kind_ == Kind::gather ? root_ : 0), taken = count(root_, rank_);
    const size_t *send_counts = sends_.counts.data(), *send_places = sends_.displacements.data(),
                 *take_counts = takes_.counts.data(), *take_places = takes_.displacements.data();
    switch (kind_) {
        case Kind::all_to_all:
            return weftAlltoAllv(send_, send_counts, send_places, take_, take_counts, take_places, type_, comm, stream);
        case Kind::gather:
            if (!takes_all_) return weftGatherv(send_, sent, nullptr, nullptr, nullptr, type_, root_, comm, stream);
            return weftGatherv(send_, sent, take_, take_counts, take_places, type_, root_, comm, stream);
        case Kind::scatter:
            if (!gives_all_) return weftScatterv(nullptr, nullptr, nullptr, take_, taken, type_, root_, comm, stream);
            return weftScatterv(send_, send_counts, send_places, take_, taken, type_, root_, comm, stream);
        case Kind::all_gather: return weftAllGatherv(send_, sent, take_, take_counts, take_places, type_, comm, stream);
        case Kind::reduce_scatter: return weftReduceScatterv(send_, take_, send_counts, type_, weftSum, comm, stream);
    }
    return weftInternalError;
}

// Of the parts for this rank, of any bits, which wrap.
RandomBytes RandomUneven::sum() {
    RandomBytes right(count(0, rank_) * size_of(type_));
    for (int from = 0; from < ranks_; ++from) {
        const RandomBytes bytes = data(from, rank_);
        for (size_t at = 0; at < right.size(); at += size_of(type_)) {
            uint64_t one = 0, other = 0;
            memcpy(&one, &right[at], size_of(type_));
            memcpy(&other, &bytes[at], size_of(type_));
            one += other;
            memcpy(&right[at], &one, size_of(type_));  // the low bytes come first
        }
    }
    return right;
}

std::string RandomUneven::fault() {
    if (!out_.intact() || !in_.intact()) return "something was written beside a buffer";
    if (kind_ == Kind::reduce_scatter) {
        const RandomBytes right = sum();
        return std::equal(right.begin(), right.end(), take_) ? "" : "the sum is wrong";
    }
    for (size_t part = 0; part < takes_.counts.size(); ++part) {
        const int from = takes_all_ ? int(part) : root_;
        const RandomBytes right = data(from, rank_);
        if (!std::equal(right.begin(), right.end(), takes_all_ ? place(in_, takes_, part) : take_))
            return "what came from rank " + std::to_string(from) + " is wrong";
    }
    return "";
}

const char* RandomUneven::name() const {
    constexpr const char* names[] = {"all_to_all_v", "gather_v", "scatter_v", "all_gather_v", "reduce_scatter_v"};
    return names[int(kind_)];
}

}  // namespace weft::internal::test
