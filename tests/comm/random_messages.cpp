#include "tests/comm/random_messages.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <tuple>

#include "src/base/datatype.hpp"

namespace weft::test {

namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t guard = 16;
constexpr std::byte untouched{0xa5};

std::byte content(uint32_t seed, size_t message, size_t index) {
    const uint64_t mix = (uint64_t(seed) << 32 | message) * 0x9e3779b97f4a7c15u + index * 0xbf58476d1ce4e5b9u;
    return std::byte(mix >> 56 ^ mix >> 24);
}
Bytes contents(uint32_t seed, size_t message, size_t bytes) {
    Bytes all(bytes);
    for (size_t i = 0; i < bytes; ++i) all[i] = content(seed, message, i);
    return all;
}

size_t draw_bytes(std::mt19937& random, size_t most) {
    switch (random() % 6) {
        case 0: return 0;
        case 1: return random() % most;
        case 2: return random() % (most / 8 + 1);
        default: return random() % 200;
    }
}

// Memory of a test's own, with something behind it that nobody may write.
class Guarded {
  public:
    Guarded(size_t bytes, size_t offset) : offset_(offset), all_(offset + bytes + guard, untouched) {}
    std::byte* data() { return all_.data() + offset_; }
    size_t size() const { return all_.size() - offset_ - guard; }
    bool intact() const {
        const auto same = [](std::byte each) { return each == untouched; };
        return std::all_of(all_.begin(), all_.begin() + ptrdiff_t(offset_), same) &&
               std::all_of(all_.end() - ptrdiff_t(guard), all_.end(), same);
    }

  private:
    size_t offset_;
    Bytes all_;
};

// A round of messages as all ranks draw it.
struct Round {
    struct Message {
        int comm, from, to;
        weftDataType_t type;
        size_t count;
        size_t bytes() const { return count * size_of(type); }
    };
    uint32_t seed;
    std::vector<Message> messages;
    std::vector<size_t> reductions;  // by communicator: how many all-reduces come between

    Round(const MessageSequence& sequence, int index, int ranks, int comms) {
        std::seed_seq seeds{sequence.seed, uint32_t(index)};
        std::mt19937 random(seeds);
        seed = uint32_t(random());
        const size_t many = 1 + random() % size_t(4 * ranks);
        for (size_t i = 0; i < many; ++i) {
            Message message{int(random() % unsigned(comms)), int(random() % unsigned(ranks)),
                            int(random() % unsigned(ranks)), weftDataType_t(random() % weftNumTypes), 0};
            // Several to one peer, now and then.
            if (!messages.empty() && random() % 4 == 0) {
                message.from = messages.back().from;
                message.to = messages.back().to;
            }
            message.count = draw_bytes(random, sequence.most_bytes) / size_of(message.type);
            messages.push_back(message);
        }
        for (int comm = 0; comm < comms; ++comm) reductions.push_back(random() % 3 == 0 ? 1 + random() % 2 : 0);
    }
};

// A rank's part of it.
class Part {
  public:
    Part(const Round& round, int rank, int ranks) : round_(round), rank_(rank), ranks_(ranks) {
        std::seed_seq seeds{round.seed, uint32_t(rank)};
        std::mt19937 random(seeds);
        for (size_t i = 0; i < round.messages.size(); ++i) {
            const Round::Message& message = round.messages[i];
            if (message.from == rank) add({'s', message.comm, message.to}, i);
            if (message.to == rank) add({'r', message.comm, message.from}, i);
            buffers_.emplace_back(message.to == rank ? message.bytes() : 0, random() % 8);
            sent_.push_back(message.from == rank ? contents(round.seed, i, message.bytes()) : Bytes());
        }
        for (size_t comm = 0; comm < round.reductions.size(); ++comm)
            for (size_t i = 0; i < round.reductions[comm]; ++i) {
                add({'a', int(comm), 0}, sums_.size());
                sums_.push_back(1 << (2 * rank % 30));
            }
        // Any order but that between two ranks, and of one communicator's collectives.
        std::vector<Key> order;
        for (const auto& [key, indices] : operations_) order.insert(order.end(), indices.size(), key);
        std::shuffle(order.begin(), order.end(), random);
        std::map<Key, size_t> next;
        for (const Key& key : order) steps_.push_back({key, operations_[key][next[key]++]});
    }

    weftResult_t post(const std::vector<weftComm_t>& comms) {
        for (const auto& [key, index] : steps_) {
            const auto [what, comm, peer] = key;
            weftComm_t handle = comms[size_t(comm)];
            weftResult_t result = weftSuccess;
            if (what == 'a') {
                result = weftAllReduce(&sums_[index], &sums_[index], 1, weftInt32, weftSum, handle, nullptr);
            } else {
                const Round::Message& message = round_.messages[index];
                result = what == 's' ? weftSend(sent_[index].data(), message.count, message.type, peer, handle, nullptr)
                                     : weftRecv(message.count > 0 ? buffers_[index].data() : nullptr, message.count,
                                                message.type, peer, handle, nullptr);
            }
            if (result != weftSuccess) return result;
        }
        return weftSuccess;
    }

    std::string fault() {
        for (size_t i = 0; i < round_.messages.size(); ++i) {
            const Round::Message& message = round_.messages[i];
            if (!buffers_[i].intact()) return "message " + std::to_string(i) + " was written beside its buffer";
            if (message.from == rank_ && sent_[i] != contents(round_.seed, i, message.bytes()))
                return "what message " + std::to_string(i) + " sends was changed";
            for (size_t at = 0; message.to == rank_ && at < message.bytes(); ++at)
                if (buffers_[i].data()[at] != content(round_.seed, i, at))
                    return "message " + std::to_string(i) + " from rank " + std::to_string(message.from) + ", " +
                           std::to_string(message.bytes()) + " bytes, is wrong at " + std::to_string(at);
        }
        int sum = 0;
        for (int rank = 0; rank < ranks_; ++rank) sum += 1 << (2 * rank % 30);
        for (const int each : sums_)
            if (each != sum) return "an all-reduce beside the messages is wrong";
        return "";
    }

  private:
    using Key = std::tuple<char, int, int>;  // what, communicator, peer
    void add(const Key& key, size_t index) { operations_[key].push_back(index); }

    const Round& round_;
    int rank_, ranks_;
    std::map<Key, std::vector<size_t>> operations_;
    std::vector<std::pair<Key, size_t>> steps_;
    std::vector<Guarded> buffers_;
    std::vector<Bytes> sent_;
    std::vector<int> sums_;
};

// Collectives of uneven parts: what rank p has for rank q is the model's message p * ranks + q.
enum class Kind { all_to_all, gather, scatter, all_gather, reduce_scatter };

struct UnevenRound {
    uint32_t seed;
    Kind kind;
    int ranks, root;
    weftDataType_t type;
    bool in_place;
    std::vector<size_t> counts;  // by giver and taker

    UnevenRound(const MessageSequence& sequence, int index, int of) : ranks(of) {
        std::seed_seq seeds{sequence.seed, uint32_t(index), 1u};
        std::mt19937 random(seeds);
        seed = uint32_t(random());
        kind = Kind(random() % 5);
        root = index % ranks;
        type = weftDataType_t(random() % weftNumTypes);
        if (kind == Kind::reduce_scatter) type = random() % 2 ? weftUint8 : weftUint64;
        in_place = kind != Kind::all_to_all && random() % 2;
        for (int i = 0; i < ranks * ranks; ++i)
            counts.push_back(random() % 3 == 0 ? 0 : draw_bytes(random, sequence.most_bytes) / size_of(type));
        // A taker wants the same of all, or a giver has the same for all.
        for (int from = 0; kind == Kind::reduce_scatter && from < ranks; ++from)
            for (int to = 0; to < ranks; ++to) count(from, to) = count(0, to);
        for (int from = 0; kind == Kind::all_gather && from < ranks; ++from)
            for (int to = 0; to < ranks; ++to) count(from, to) = count(from, 0);
    }
    size_t& count(int from, int to) { return counts[size_t(from * ranks + to)]; }
    Bytes data(int from, int to) {
        return contents(seed, size_t(from * ranks + (kind == Kind::all_gather ? 0 : to)),
                        count(from, to) * size_of(type));
    }
};

// Parts in the order of ranks or against it, with gaps between.
struct Table {
    std::vector<size_t> counts, displacements;
    size_t elements = 0;
    Table(const std::vector<size_t>& of, std::mt19937& random) : counts(of), displacements(of.size()) {
        const bool backwards = random() % 2;
        for (size_t i = 0; i < of.size(); ++i) {
            const size_t place = backwards ? of.size() - 1 - i : i;
            displacements[place] = elements += random() % 3;
            elements += of[place];
        }
    }
};

// Sums of any bits, which wrap.
template <class T>
std::string reduce_fault(UnevenRound& round, int rank, weftComm_t comm) {
    std::vector<size_t> counts;
    std::vector<T> in;
    size_t place = 0;
    for (int to = 0; to < round.ranks; ++to) {
        if (to == rank) place = in.size();
        counts.push_back(round.count(rank, to));
        const Bytes bytes = round.data(rank, to);
        in.resize(in.size() + counts.back());
        memcpy(in.data() + in.size() - counts.back(), bytes.data(), bytes.size());
    }
    std::vector<T> own(counts[size_t(rank)]), right(own.size());
    for (int from = 0; from < round.ranks; ++from) {
        const Bytes bytes = round.data(from, rank);
        for (size_t i = 0; i < right.size(); ++i) {
            T value;
            memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
            right[i] = T(right[i] + value);
        }
    }
    T* const out = round.in_place ? in.data() + place : own.data();
    if (weftReduceScatterv(in.data(), out, counts.data(), round.type, weftSum, comm, nullptr) != weftSuccess)
        return weftGetLastError(comm);
    return std::equal(right.begin(), right.end(), out) ? "" : "the sum is wrong";
}

std::string uneven_fault(UnevenRound& round, int rank, weftComm_t comm) {
    if (round.kind == Kind::reduce_scatter)
        return round.type == weftUint8 ? reduce_fault<uint8_t>(round, rank, comm)
                                       : reduce_fault<uint64_t>(round, rank, comm);
    std::seed_seq seeds{round.seed, uint32_t(rank)};
    std::mt19937 random(seeds);
    const size_t element = size_of(round.type);
    const int ranks = round.ranks, root = round.root;
    const Kind kind = round.kind;
    const bool gives_all = kind == Kind::all_to_all || (kind == Kind::scatter && rank == root),
               takes_all =
                   kind == Kind::all_to_all || kind == Kind::all_gather || (kind == Kind::gather && rank == root);
    std::vector<size_t> to_send, to_take;
    for (int peer = 0; peer < ranks; ++peer) {
        if (gives_all) to_send.push_back(round.count(rank, peer));
        if (takes_all) to_take.push_back(round.count(peer, rank));
    }
    if (!gives_all && kind != Kind::scatter) to_send.push_back(round.count(rank, root));
    if (!takes_all && kind != Kind::gather) to_take.push_back(round.count(root, rank));
    const Table sends(to_send, random), takes(to_take, random);
    Guarded out(sends.elements * element, 0), in(takes.elements * element, 0);
    const auto place = [&](Guarded& buffer, const Table& table, size_t part) {
        return buffer.data() + table.displacements[part] * element;
    };
    const auto put = [&](std::byte* at, int from, int to) {
        const Bytes bytes = round.data(from, to);
        std::copy(bytes.begin(), bytes.end(), at);
    };
    for (size_t part = 0; part < to_send.size(); ++part)
        put(place(out, sends, part), rank, gives_all ? int(part) : root);
    // One part of ours: where it begins, or, in place, where the other buffer has it.
    const bool in_place = round.in_place && (takes_all != gives_all) && (kind == Kind::all_gather || rank == root);
    const auto own = size_t(rank);
    std::byte* send = gives_all || to_send.empty() ? out.data() : place(out, sends, 0);
    std::byte* take = takes_all || to_take.empty() ? in.data() : place(in, takes, 0);
    if (in_place && takes_all) put(send = place(in, takes, own), rank, root);
    if (in_place && gives_all) take = place(out, sends, own);

    weftResult_t result = weftInternalError;
    const size_t sent = round.count(rank, kind == Kind::gather ? root : 0), taken = round.count(root, rank);
    switch (kind) {
        case Kind::all_to_all:
            result = weftAlltoAllv(send, sends.counts.data(), sends.displacements.data(), take, takes.counts.data(),
                                   takes.displacements.data(), round.type, comm, nullptr);
            break;
        case Kind::gather:
            result = weftGatherv(send, sent, takes_all ? take : nullptr, takes_all ? takes.counts.data() : nullptr,
                                 takes_all ? takes.displacements.data() : nullptr, round.type, root, comm, nullptr);
            break;
        case Kind::scatter:
            result = weftScatterv(gives_all ? send : nullptr, gives_all ? sends.counts.data() : nullptr,
                                  gives_all ? sends.displacements.data() : nullptr, take, taken, round.type, root, comm,
                                  nullptr);
            break;
        case Kind::all_gather:
            result = weftAllGatherv(send, sent, take, takes.counts.data(), takes.displacements.data(), round.type, comm,
                                    nullptr);
            break;
        case Kind::reduce_scatter: break;
    }
    if (result != weftSuccess) return weftGetLastError(comm);
    if (!out.intact() || !in.intact()) return "something was written beside a buffer";
    for (size_t part = 0; part < to_take.size(); ++part) {
        const int from = takes_all ? int(part) : root;
        const std::byte* at = takes_all ? place(in, takes, part) : take;
        const Bytes right = round.data(from, rank);
        if (!std::equal(right.begin(), right.end(), at))
            return "what came from rank " + std::to_string(from) + " is wrong";
    }
    return "";
}

// Outside groups: all pass something on around a ring, then two and two talk, the lower first.
std::string ring_fault(uint32_t seed, int rank, int ranks, weftComm_t comm) {
    std::mt19937 random(seed);
    const size_t bytes = draw_bytes(random, 100'000);
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    Bytes out = contents(seed, size_t(rank), bytes), in(bytes);
    if (weftSendRecv(out.data(), bytes, next, in.data(), bytes, previous, weftUint8, comm, nullptr) != weftSuccess)
        return weftGetLastError(comm);
    if (in != contents(seed, size_t(previous), bytes)) return "what went around the ring is wrong";
    const int partner = rank ^ 1;
    if (partner >= ranks) return "";
    const auto send = [&] { return weftSend(out.data(), bytes, weftUint8, partner, comm, nullptr); };
    const auto receive = [&] { return weftRecv(in.data(), bytes, weftUint8, partner, comm, nullptr); };
    for (int i = 0; i < 3; ++i) {
        const bool first = rank < partner;
        if ((first ? send() : receive()) != weftSuccess || (first ? receive() : send()) != weftSuccess)
            return weftGetLastError(comm);
        if (in != contents(seed, size_t(partner), bytes)) return "what the partner sent is wrong";
    }
    return "";
}

std::string wrong(const MessageSequence& sequence, int round, int rank, int ranks, const std::string& what) {
    std::ostringstream text;
    text << "rank " << rank << " of " << ranks << ", seed " << sequence.seed << ", round " << round << ": " << what;
    return text.str();
}

}  // namespace

std::string run_random_messages(const std::vector<weftComm_t>& comms, const MessageSequence& sequence) {
    int rank = 0, ranks = 0;
    weftCommUserRank(comms[0], &rank);
    weftCommCount(comms[0], &ranks);
    for (int index = 0; index < sequence.rounds; ++index) {
        const auto in_words = [&](const std::string& what) { return wrong(sequence, index, rank, ranks, what); };
        const Round round(sequence, index, ranks, int(comms.size()));
        Part part(round, rank, ranks);
        if (weftGroupStart() != weftSuccess || part.post(comms) != weftSuccess)
            return weftGroupEnd(), in_words(weftGetLastError(nullptr));
        if (weftGroupEnd() != weftSuccess) return in_words(weftGetLastError(nullptr));
        if (const std::string fault = part.fault(); !fault.empty()) return in_words(fault);
        weftComm_t comm = comms[size_t(index) % comms.size()];
        UnevenRound uneven(sequence, index, ranks);
        if (const std::string fault = uneven_fault(uneven, rank, comm); !fault.empty())
            return in_words("a collective of kind " + std::to_string(int(uneven.kind)) + ": " + fault);
        if (const std::string fault = ring_fault(round.seed, rank, ranks, comm); !fault.empty()) return in_words(fault);
    }
    return "";
}

std::string run_random_messages_of_all(const std::vector<std::vector<weftComm_t>>& comms,
                                       const MessageSequence& sequence) {
    const int ranks = int(comms.size());
    for (int index = 0; index < sequence.rounds; ++index) {
        const Round round(sequence, index, ranks, int(comms[0].size()));
        std::vector<Part> parts;
        for (int rank = 0; rank < ranks; ++rank) parts.emplace_back(round, rank, ranks);
        weftResult_t result = weftGroupStart();
        for (int rank = 0; rank < ranks && result == weftSuccess; ++rank)
            result = parts[size_t(rank)].post(comms[size_t(rank)]);
        if (result != weftSuccess) return weftGroupEnd(), wrong(sequence, index, 0, ranks, weftGetLastError(nullptr));
        if (weftGroupEnd() != weftSuccess) return wrong(sequence, index, 0, ranks, weftGetLastError(nullptr));
        for (int rank = 0; rank < ranks; ++rank)
            if (const std::string fault = parts[size_t(rank)].fault(); !fault.empty())
                return wrong(sequence, index, rank, ranks, fault);
    }
    return "";
}

}  // namespace weft::test
