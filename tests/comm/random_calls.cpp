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

// One call as all ranks draw it.
struct Drawn {
    weftDataType_t type;
    int op;  // weftNumOps: a pre-multiplied sum
    bool whole;
    size_t count;
    std::vector<bool> in_place, shared;  // by rank
    std::vector<size_t> offsets;
    std::vector<Bytes> inputs, scalars;

    Drawn(const Sequence& sequence, int index, int ranks) {
        std::seed_seq seeds{sequence.seed, uint32_t(index)};
        std::mt19937 random(seeds);
        type = weftDataType_t(random() % weftNumTypes);
        op = int(random() % (weftNumOps + 1));
        whole = op != weftProd && random() % 2;
        switch (random() % 8) {
            case 0: count = random() % 3; break;
            case 1: count = random() % sequence.most_elements; break;
            case 2: count = random() % (sequence.most_elements / 8); break;
            default: count = random() % 300;
        }
        const bool all_shared = random() % 3 == 0;
        for (int rank = 0; rank < ranks; ++rank) {
            in_place.push_back(random() % 2);
            shared.push_back(all_shared || random() % 2);
            offsets.push_back(random() % 2 ? 0 : random() % 64);
            inputs.push_back(whole ? reference::whole(type, count, ranks, rank, random)
                                   : reference::mild(type, count, random));
            if (op == weftNumOps)
                scalars.push_back(whole ? reference::whole_scalar(type, random) : reference::mild(type, 1, random));
        }
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
                 << drawn.count << " of " << name_of(drawn.type) << ", op " << drawn.op << "): " << what;
            return text.str();
        };
        const auto self = size_t(rank);
        const size_t bytes = drawn.count * size_of(drawn.type);
        const Memory send(bytes, drawn.offsets[self], drawn.shared[self]);
        std::optional<Memory> apart;
        if (!drawn.in_place[self]) apart.emplace(bytes, drawn.offsets[self], drawn.shared[self]);
        std::byte* receive = apart ? apart->data() : send.data();
        if (bytes > 0) memcpy(send.data(), drawn.inputs[self].data(), bytes);

        auto op = weftRedOp_t(drawn.op);
        const bool scaled = drawn.op == weftNumOps;
        if (scaled && weftRedOpCreatePreMulSum(&op, drawn.scalars[self].data(), drawn.type, weftScalarHostImmediate,
                                               comm) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (weftAllReduce(send.data(), receive, drawn.count, drawn.type, op, comm, nullptr) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (scaled && weftRedOpDestroy(op, comm) != weftSuccess) return wrong(weftGetLastError(comm));

        const reference::Question question{drawn.type, scaled ? weftSum : op, &drawn.inputs,
                                           scaled ? &drawn.scalars : nullptr};
        if (const size_t first = reference::first_wrong(question, receive, drawn.whole); first != drawn.count)
            return wrong("element " + std::to_string(first) + " is wrong");
        if (apart && bytes > 0 && memcmp(send.data(), drawn.inputs[self].data(), bytes) != 0)
            return wrong("the input was changed");
        // Every rank has the same bits: the least and the greatest hash are one.
        const uint64_t hash = hash_of(receive, bytes);
        uint64_t least = hash, most = hash;
        if (weftAllReduce(&least, &least, 1, weftUint64, weftMin, comm, nullptr) != weftSuccess ||
            weftAllReduce(&most, &most, 1, weftUint64, weftMax, comm, nullptr) != weftSuccess)
            return wrong(weftGetLastError(comm));
        if (least != most) return wrong("ranks have different bits");
    }
    return "";
}

}  // namespace weft::test
