#include "tests/comm/random_calls.hpp"

#include <cstring>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/reference/exact.hpp"

namespace weft::test {

namespace {

using reference::Bytes;

enum class What { all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter };
constexpr int what_count = 8;
constexpr const char* names[] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                 "reduce_scatter", "all_to_all", "gather",    "scatter"};

// One call as all ranks draw it.
struct Drawn {
    What what;
    int ranks, root;
    weftDataType_t type;
    int op;  // weftNumOps: a pre-multiplied sum
    bool whole;
    size_t count;                        // of a part
    std::vector<bool> in_place, shared;  // by rank
    std::vector<size_t> offsets;
    std::vector<Bytes> inputs, scalars;  // inputs: those parts that the rank sends

    bool reduces() const { return what == What::all_reduce || what == What::reduce || what == What::reduce_scatter; }
    // How many parts a rank sends and receives.
    int sent(int rank) const {
        switch (what) {
            case What::broadcast: return rank == root;
            case What::reduce_scatter:
            case What::all_to_all: return ranks;
            case What::scatter: return rank == root ? ranks : 0;
            default: return 1;
        }
    }
    int received(int rank) const {
        switch (what) {
            case What::reduce: return rank == root;
            case What::all_gather:
            case What::all_to_all: return ranks;
            case What::gather: return rank == root ? ranks : 0;
            default: return 1;
        }
    }
    size_t part_bytes() const { return count * size_of(type); }
    Bytes part(int rank, int index) const {
        const auto first = inputs[size_t(rank)].begin() + ptrdiff_t(size_t(index) * part_bytes());
        return {first, first + ptrdiff_t(part_bytes())};
    }

    Drawn(const Sequence& sequence, int index, int of) : ranks(of) {
        std::seed_seq seeds{sequence.seed, uint32_t(index)};
        std::mt19937 random(seeds);
        what = sequence.all_reduce_only || random() % 3 == 0 ? What::all_reduce : What(random() % what_count);
        root = int(random() % uint32_t(ranks));
        type = weftDataType_t(random() % weftNumTypes);
        op = reduces() ? int(random() % (weftNumOps + 1)) : int(weftSum);
        whole = op != weftProd && random() % 2;
        switch (random() % 8) {
            case 0: count = random() % 3; break;
            case 1: count = random() % sequence.most_elements; break;
            case 2: count = random() % (sequence.most_elements / 8); break;
            default: count = random() % 300;
        }
        if (sent(root) > 1 || received(root) > 1) count = (count + size_t(ranks) - 1) / size_t(ranks);
        const bool all_shared = random() % 3 == 0;
        for (int rank = 0; rank < ranks; ++rank) {
            in_place.push_back(random() % 2 && what != What::all_to_all);
            shared.push_back(all_shared || random() % 2);
            offsets.push_back(random() % 2 ? 0 : random() % 64);
            const size_t elements = count * size_t(sent(rank));
            inputs.push_back(whole ? reference::whole(type, elements, ranks, rank, random)
                                   : reference::mild(type, elements, random));
            if (op == weftNumOps)
                scalars.push_back(whole ? reference::whole_scalar(type, random) : reference::mild(type, 1, random));
        }
    }

    weftResult_t call(const void* send, void* receive, weftRedOp_t by, weftComm_t comm) const {
        switch (what) {
            case What::all_reduce: return weftAllReduce(send, receive, count, type, by, comm, nullptr);
            case What::reduce: return weftReduce(send, receive, count, type, by, root, comm, nullptr);
            case What::broadcast: return weftBroadcast(send, receive, count, type, root, comm, nullptr);
            case What::all_gather: return weftAllGather(send, receive, count, type, comm, nullptr);
            case What::reduce_scatter: return weftReduceScatter(send, receive, count, type, by, comm, nullptr);
            case What::all_to_all: return weftAlltoAll(send, receive, count, type, comm, nullptr);
            case What::gather: return weftGather(send, receive, count, type, root, comm, nullptr);
            case What::scatter: return weftScatter(send, receive, count, type, root, comm, nullptr);
        }
        return weftInternalError;
    }

    // What is wrong with part `index` of what `rank` has received; empty: nothing.
    std::string fault(int rank, int index, const std::byte* got) const {
        if (reduces()) {
            std::vector<Bytes> contributions;
            for (int giver = 0; giver < ranks; ++giver)
                contributions.push_back(part(giver, what == What::reduce_scatter ? rank : 0));
            const bool scaled = op == weftNumOps;
            const reference::Question question{type, scaled ? weftSum : weftRedOp_t(op), &contributions,
                                               scaled ? &scalars : nullptr};
            const size_t first = reference::first_wrong(question, got, whole);
            return first == count ? "" : "element " + std::to_string(first) + " is wrong";
        }
        const bool from_root = what == What::broadcast || what == What::scatter;
        const Bytes right =
            part(from_root ? root : index, what == What::scatter || what == What::all_to_all ? rank : 0);
        return right.empty() || memcmp(got, right.data(), right.size()) == 0
                   ? ""
                   : "part " + std::to_string(index) + " is not what was sent";
    }
};

// Private memory or weftMemAlloc's.
class Memory {
  public:
    Memory(size_t bytes, size_t offset, bool shared) {
        if (!shared) {
            private_.resize(bytes + offset);
            begin_ = private_.data() + offset;
            return;
        }
        if (weftMemAlloc(&shared_, bytes + offset) == weftSuccess) begin_ = static_cast<std::byte*>(shared_) + offset;
    }
    Memory(const Memory&) = delete;
    ~Memory() {
        if (shared_) (void)weftMemFree(shared_);
    }
    std::byte* data() const { return begin_; }

  private:
    Bytes private_;
    void* shared_ = nullptr;
    std::byte* begin_ = nullptr;
};

uint64_t hash_of(const std::byte* data, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ uint64_t(data[i])) * 0x100000001b3u;
    return hash;
}

}  // namespace

std::string run_random_calls(weftComm_t comm, const Sequence& sequence) {
    int rank = 0, ranks = 0;
    weftCommUserRank(comm, &rank);
    weftCommCount(comm, &ranks);
    for (int index = 0; index < sequence.calls; ++index) {
        Drawn drawn(sequence, index, ranks);
        const auto wrong = [&](const std::string& what) {
            std::ostringstream text;
            text << "rank " << rank << " of " << ranks << ", seed " << sequence.seed << ", call " << index << " ("
                 << names[int(drawn.what)] << " of " << drawn.count << " " << name_of(drawn.type) << ", op " << drawn.op
                 << ", root " << drawn.root << "): " << what;
            return text.str();
        };
        const auto self = size_t(rank);
        const size_t part = drawn.part_bytes();
        const int sent = drawn.sent(rank), received = drawn.received(rank);
        const bool in_place = drawn.in_place[self];
        // In place the shorter buffer is this rank's part of the longer.
        const auto inside = [&](int own, int other) { return in_place && own < other ? self * part : 0; };
        const Memory first(part * size_t(in_place ? std::max(sent, received) : sent), drawn.offsets[self],
                           drawn.shared[self]);
        std::optional<Memory> second;
        if (!in_place) second.emplace(part * size_t(received), drawn.offsets[self], drawn.shared[self]);
        // Rooted collectives: who sends or receives nothing has no second place to begin at.
        std::byte* const send = first.data() + (sent > 0 && received > 0 ? inside(sent, received) : 0);
        std::byte* const receive =
            (second ? second->data() : first.data()) + (sent > 0 && received > 0 ? inside(received, sent) : 0);
        const Bytes& input = drawn.inputs[self];
        if (!input.empty()) memcpy(send, input.data(), input.size());

        auto op = weftRedOp_t(drawn.op);
        const bool scaled = drawn.op == weftNumOps;
        if (scaled && weftRedOpCreatePreMulSum(&op, drawn.scalars[self].data(), drawn.type, weftScalarHostImmediate,
                                               comm) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (drawn.call(sent > 0 ? send : nullptr, received > 0 ? receive : nullptr, op, comm) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (scaled && weftRedOpDestroy(op, comm) != weftSuccess) return wrong(weftGetLastError(comm));
        if (index % 16 == 0 && weftBarrier(comm, nullptr) != weftSuccess) return wrong(weftGetLastError(comm));

        for (int place = 0; place < received; ++place)
            if (const std::string fault = drawn.fault(rank, place, receive + size_t(place) * part); !fault.empty())
                return wrong(fault);
        if (!in_place && !input.empty() && memcmp(send, input.data(), input.size()) != 0)
            return wrong("the input was changed");
        if (drawn.what != What::all_reduce) continue;
        // Every rank has the same bits: the least and the greatest hash are one.
        const uint64_t hash = hash_of(receive, part);
        uint64_t least = hash, most = hash;
        if (weftAllReduce(&least, &least, 1, weftUint64, weftMin, comm, nullptr) != weftSuccess ||
            weftAllReduce(&most, &most, 1, weftUint64, weftMax, comm, nullptr) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (least != most) return wrong("ranks have different bits");
    }
    return "";
}

}  // namespace weft::test
