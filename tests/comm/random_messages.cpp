#include "tests/comm/random_messages.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <tuple>
#include <utility>

#include "src/base/datatype.hpp"
#include "tests/comm/random_uneven.hpp"

namespace weft::internal::test {

namespace {

using Bytes = RandomBytes;

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

// A message's send buffer: private memory, or weftHostAlloc memory that the receiver may read.
class Sent {
  public:
    explicit Sent(const Bytes& bytes, bool shared) : own_(bytes) {
        if (!shared || bytes.empty() || weftHostAlloc(&shared_, bytes.size()) != weftSuccess) return;
        std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(shared_));
    }
    Sent(Sent&& other) noexcept : own_(std::move(other.own_)), shared_(std::exchange(other.shared_, nullptr)) {}
    ~Sent() { (void)weftMemFree(shared_); }
    const void* data() const { return shared_ ? shared_ : own_.data(); }
    bool is(const Bytes& bytes) const { return bytes.empty() || memcmp(data(), bytes.data(), bytes.size()) == 0; }

  private:
    Bytes own_;
    void* shared_ = nullptr;
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
            sent_.emplace_back(message.from == rank ? contents(round.seed, i, message.bytes()) : Bytes(),
                               random() % 3 == 0);
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
            if (message.from == rank_ && !sent_[i].is(contents(round_.seed, i, message.bytes())))
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
    std::vector<Sent> sent_;
    std::vector<int> sums_;
};

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
    (void)weftCommUserRank(comms[0], &rank);
    (void)weftCommCount(comms[0], &ranks);
    for (int index = 0; index < sequence.rounds; ++index) {
        const auto in_words = [&](const std::string& what) { return wrong(sequence, index, rank, ranks, what); };
        const Round round(sequence, index, ranks, int(comms.size()));
        Part part(round, rank, ranks);
        if (weftGroupStart() != weftSuccess || part.post(comms) != weftSuccess)
            return (void)weftGroupEnd(), in_words(weftGetLastError(nullptr));
        if (weftGroupEnd() != weftSuccess) return in_words(weftGetLastError(nullptr));
        if (const std::string fault = part.fault(); !fault.empty()) return in_words(fault);
        weftComm_t comm = comms[size_t(index) % comms.size()];
        RandomUneven uneven(sequence.seed, index, rank, ranks, sequence.most_bytes);
        if (uneven.issue(comm, nullptr) != weftSuccess) return in_words(weftGetLastError(comm));
        if (const std::string fault = uneven.fault(); !fault.empty())
            return in_words(std::string(uneven.name()) + ": " + fault);
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
        if (result != weftSuccess)
            return (void)weftGroupEnd(), wrong(sequence, index, 0, ranks, weftGetLastError(nullptr));
        if (weftGroupEnd() != weftSuccess) return wrong(sequence, index, 0, ranks, weftGetLastError(nullptr));
        for (int rank = 0; rank < ranks; ++rank)
            if (const std::string fault = parts[size_t(rank)].fault(); !fault.empty())
                return wrong(sequence, index, rank, ranks, fault);
    }
    return "";
}

}  // namespace weft::internal::test
