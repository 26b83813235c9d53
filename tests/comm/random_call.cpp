#include "tests/comm/random_call.hpp"

#include <cstring>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/comm/user_functions.hpp"
#include "tests/reference/exact.hpp"

namespace weft::internal::test {

using reference::Bytes;

namespace {

enum class What { all_reduce, reduce, broadcast, bcast, all_gather, reduce_scatter, all_to_all, gather, scatter };
constexpr int what_count = 9;
constexpr const char* names[] = {"all_reduce",     "reduce",     "broadcast", "bcast",  "all_gather",
                                 "reduce_scatter", "all_to_all", "gather",    "scatter"};

// Reductions beside Weft's own.
constexpr int premultiplied = weftNumOps, commuting = weftNumOps + 1, ordered = weftNumOps + 2;

// `context` says whether it got another type.
template <uint64_t (*combine)(uint64_t, uint64_t)>
void each(const void* left, const void* right, void* result, size_t count, weftDataType_t type, void* context) {
    if (type != weftUint64) *static_cast<bool*>(context) = true;
    for (size_t i = 0; i < count; ++i) {  // the buffers of the calls lie at any address
        uint64_t pair[2];
        memcpy(&pair[0], static_cast<const std::byte*>(left) + i * sizeof pair[0], sizeof pair[0]);
        memcpy(&pair[1], static_cast<const std::byte*>(right) + i * sizeof pair[1], sizeof pair[1]);
        const uint64_t combined = combine(pair[0], pair[1]);
        memcpy(static_cast<std::byte*>(result) + i * sizeof combined, &combined, sizeof combined);
    }
}

uint64_t hash_of(const std::byte* data, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ uint64_t(data[i])) * 0x100000001b3u;
    return hash;
}

}  // namespace

weftResult_t settled(weftComm_t comm, weftResult_t code) {
    while (code == weftInProgress) {
        const weftResult_t asked = weftCommGetAsyncError(comm, &code);
        if (asked != weftSuccess) return asked;
        std::this_thread::yield();
    }
    return code;
}

// One call as all ranks draw it.
struct RandomCall::Drawn {
    What what;
    int ranks, root;
    weftDataType_t type;
    int op;  // or one of those above
    bool whole;
    size_t count;                        // of a part
    std::vector<bool> in_place, shared;  // by rank
    std::vector<size_t> offsets;
    std::vector<Bytes> inputs, scalars;  // inputs: those parts that the rank sends

    bool by_function() const { return op > premultiplied; }
    bool broadcasts() const { return what == What::broadcast || what == What::bcast; }
    bool reduces() const { return what == What::all_reduce || what == What::reduce || what == What::reduce_scatter; }
    // How many parts a rank sends and receives.
    int sent(int rank) const {
        switch (what) {
            case What::broadcast:
            case What::bcast: return rank == root;
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
        if (!serves(weftRedOp_t(op), type)) op = weftSum;
        if (sequence.functions && reduces() && random() % 4 == 0) {
            op = random() % 2 ? commuting : ordered;
            type = weftUint64;
        }
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
            in_place.push_back((random() % 2 && what != What::all_to_all) || what == What::bcast);
            shared.push_back(all_shared || random() % 2);
            offsets.push_back(random() % 2 ? 0 : random() % 64);
            const size_t elements = count * size_t(sent(rank));
            inputs.push_back(whole ? reference::whole(type, elements, ranks, rank, random)
                                   : reference::mild(type, elements, random));
            if (by_function())
                for (std::byte& byte : inputs.back()) byte = std::byte(random());
            if (op == premultiplied)
                scalars.push_back(whole ? reference::whole_scalar(type, random) : reference::mild(type, 1, random));
        }
    }

    weftResult_t call(const void* send, void* receive, weftRedOp_t by, weftComm_t comm, weftStream_t stream) const {
        switch (what) {
            case What::all_reduce: return weftAllReduce(send, receive, count, type, by, comm, stream);
            case What::reduce: return weftReduce(send, receive, count, type, by, root, comm, stream);
            case What::broadcast: return weftBroadcast(send, receive, count, type, root, comm, stream);
            case What::bcast: return weftBcast(receive, count, type, root, comm, stream);
            case What::all_gather: return weftAllGather(send, receive, count, type, comm, stream);
            case What::reduce_scatter: return weftReduceScatter(send, receive, count, type, by, comm, stream);
            case What::all_to_all: return weftAlltoAll(send, receive, count, type, comm, stream);
            case What::gather: return weftGather(send, receive, count, type, root, comm, stream);
            case What::scatter: return weftScatter(send, receive, count, type, root, comm, stream);
        }
        return weftInternalError;
    }

    // The error in part `index` of the result of `rank`; empty: none.
    std::string fault(int rank, int index, const std::byte* got) const {
        if (reduces()) {
            std::vector<Bytes> contributions;
            for (int giver = 0; giver < ranks; ++giver)
                contributions.push_back(part(giver, what == What::reduce_scatter ? rank : 0));
            if (by_function()) return function_fault(contributions, got);
            const bool scaled = op == premultiplied;
            const reference::Question question{type, scaled ? weftSum : weftRedOp_t(op), &contributions,
                                               scaled ? &scalars : nullptr};
            const size_t first = reference::first_wrong(question, got, whole);
            return first == count ? "" : "element " + std::to_string(first) + " is wrong";
        }
        const bool from_root = broadcasts() || what == What::scatter;
        const Bytes right =
            part(from_root ? root : index, what == What::scatter || what == What::all_to_all ? rank : 0);
        return right.empty() || memcmp(got, right.data(), right.size()) == 0
                   ? ""
                   : "part " + std::to_string(index) + " is not what was sent";
    }

    // In rank order, which one of the two does not need.
    std::string function_fault(const std::vector<Bytes>& contributions, const std::byte* got) const {
        for (size_t i = 0; i < count; ++i) {
            const auto element = [i](const std::byte* bytes) {
                uint64_t value;
                memcpy(&value, bytes + i * sizeof value, sizeof value);
                return value;
            };
            uint64_t right = element(contributions[0].data());
            for (size_t giver = 1; giver < contributions.size(); ++giver) {
                const uint64_t given = element(contributions[giver].data());
                right = op == ordered ? compose(right, given) : circle(right, given);
            }
            if (element(got) != right) return "element " + std::to_string(i) + " is wrong";
        }
        return "";
    }
};

// Private memory or weftHostAlloc's.
class RandomCall::Memory {
  public:
    Memory(size_t bytes, size_t offset, bool shared) {
        if (!shared) {
            private_.resize(bytes + offset);
            begin_ = private_.data() + offset;
            return;
        }
        if (weftHostAlloc(&shared_, bytes + offset) == weftSuccess) begin_ = static_cast<std::byte*>(shared_) + offset;
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

RandomCall::RandomCall(const Sequence& sequence, int index, int rank, int ranks)
    : rank_(rank), index_(index), seed_(sequence.seed), drawn_(new Drawn(sequence, index, ranks)) {
    const auto self = size_t(rank);
    const size_t part = drawn_->part_bytes();
    const int sent = drawn_->sent(rank), received = drawn_->received(rank);
    const bool in_place = drawn_->in_place[self];
    // In place the shorter buffer is this rank's part of the longer.
    const auto inside = [&](int own, int other) { return in_place && own < other ? self * part : 0; };
    first_ = std::make_unique<Memory>(part * size_t(in_place ? std::max(sent, received) : sent), drawn_->offsets[self],
                                      drawn_->shared[self]);
    if (!in_place)
        second_ = std::make_unique<Memory>(part * size_t(received), drawn_->offsets[self], drawn_->shared[self]);
    // Rooted collectives: a rank that sends or receives nothing has no second offset.
    send_ = first_->data() + (sent > 0 && received > 0 ? inside(sent, received) : 0);
    receive_ = (second_ ? second_->data() : first_->data()) + (sent > 0 && received > 0 ? inside(received, sent) : 0);
}

RandomCall::~RandomCall() = default;

weftResult_t RandomCall::make_reduction(weftRedOp_t* op, weftComm_t comm) {
    if (drawn_->op == premultiplied)
        return weftRedOpCreatePreMulSum(op, drawn_->scalars[size_t(rank_)].data(), drawn_->type,
                                        weftScalarHostImmediate, comm);
    return weftRedOpCreate(op, drawn_->op == ordered ? each<compose> : each<circle>, &misled_, drawn_->type,
                           drawn_->op != ordered, comm);
}

weftResult_t RandomCall::issue(weftComm_t comm, weftStream_t stream, bool in_group) {
    const Bytes& input = drawn_->inputs[size_t(rank_)];
    if (!input.empty()) memcpy(send_, input.data(), input.size());
    auto op = weftRedOp_t(drawn_->op);
    if (drawn_->op >= premultiplied) {
        if (const weftResult_t made = make_reduction(&op, comm); made != weftSuccess) return made;
        made_ = op;
    }
    const weftResult_t called = drawn_->call(drawn_->sent(rank_) > 0 ? send_ : nullptr,
                                             drawn_->received(rank_) > 0 ? receive_ : nullptr, op, comm, stream);
    // A call on a stream or a prepared one needs the reduction later, and an open group refuses its end.
    return (rank_ + index_) % 2 == 0 && !in_group && called == weftSuccess ? end(comm) : called;
}

weftResult_t RandomCall::end(weftComm_t comm) {
    if (!made_) return weftSuccess;
    const weftRedOp_t op = *made_;
    made_.reset();
    return weftRedOpDestroy(op, comm);
}

std::string RandomCall::fault() const {
    const size_t part = drawn_->part_bytes();
    for (int place = 0; place < drawn_->received(rank_); ++place)
        if (std::string wrong = drawn_->fault(rank_, place, receive_ + size_t(place) * part); !wrong.empty())
            return wrong;
    if (misled_) return "the user's function was told another type";
    const Bytes& input = drawn_->inputs[size_t(rank_)];
    if (second_ && !input.empty() && memcmp(send_, input.data(), input.size()) != 0) return "the input was changed";
    return "";
}

std::string RandomCall::differing_bits(weftComm_t comm) const {
    if (drawn_->what != What::all_reduce) return "";
    // The least and the greatest hash are one.
    const uint64_t hash = hash_of(receive_, drawn_->part_bytes());
    uint64_t least = hash, most = hash;
    for (const auto& [value, op] : {std::pair(&least, weftMin), std::pair(&most, weftMax)})
        if (settled(comm, weftAllReduce(value, value, 1, weftUint64, op, comm, nullptr)) != weftSuccess)
            return weftGetLastError(comm);
    return least == most ? "" : "ranks have different bits";
}

std::string RandomCall::name() const {
    std::ostringstream text;
    text << "rank " << rank_ << " of " << drawn_->ranks << ", seed " << seed_ << ", call " << index_ << " ("
         << names[int(drawn_->what)] << " of " << drawn_->count << " " << name_of(drawn_->type) << ", op " << drawn_->op
         << ", root " << drawn_->root << ")";
    return text.str();
}

}  // namespace weft::internal::test
