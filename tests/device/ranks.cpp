#include "tests/device/ranks.hpp"

#include <cstdlib>
#include <cstring>

namespace weft::internal::test {

std::vector<int> spread(int ranks) {
    std::vector<int> placing;
    for (int rank = 0; rank < ranks; ++rank) placing.push_back(rank % devices());
    return placing;
}

bool on_copies() {
    const char* const machine = std::getenv("FAKE_CUDA");
    return machine && contains(machine, "version");
}

weftConfig_t with_algo(const char* algo) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.algo = algo;
    return config;
}

static weftUniqueId new_unique_id() {
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    return id;
}

Ranks::Ranks(const std::vector<int>& where, const weftConfig_t* config)
    : Ranks(new_unique_id(), int(where.size()), 0, where, config) {}

Ranks::Ranks(const weftUniqueId& id, int ranks, int from, const std::vector<int>& where, const weftConfig_t* config)
    : of(ranks), first(from), placing(where), comms(where.size()) {
    demand(weftGroupStart());
    for (int rank = 0; rank < count(); ++rank) {
        const Current current(placing[size_t(rank)]);
        demand(weftCommInitRankConfig(&comms[size_t(rank)], of, id, first + rank, config));
        streams.push_back(std::make_unique<Stream>(placing[size_t(rank)]));
    }
    demand(weftGroupEnd());
}

Ranks::~Ranks() {
    for (weftComm_t comm : comms) (void)weftCommDestroy(comm);
}

void Ranks::group(const std::function<weftResult_t(int)>& call) const {
    demand(weftGroupStart());
    weftResult_t first = weftSuccess;
    for (int rank = 0; rank < count() && first == weftSuccess; ++rank) first = call(rank);
    const std::string why = weftGetLastError(nullptr);
    const weftResult_t ended = weftGroupEnd();
    if (first != weftSuccess) throw std::runtime_error(why);
    demand(ended);
}

void Ranks::failing_group(weftResult_t failure, const std::function<weftResult_t(int)>& call) const {
    demand(weftGroupStart());
    for (int rank = 0; rank < count(); ++rank) CHECK(call(rank) == weftSuccess);
    const weftResult_t ended = weftGroupEnd();
    if (ended != failure) demand(ended);
}

void Ranks::check_healthy() const {
    for (weftComm_t comm : comms) {
        weftResult_t state = weftInternalError;
        CHECK(weftCommGetAsyncError(comm, &state) == weftSuccess);
        CHECK(state == weftSuccess);
    }
}

weftResult_t Ranks::await_failure(int rank) const {
    weftResult_t state = weftSuccess;
    (void)eventually([&] {
        demand(weftCommGetAsyncError(comms[size_t(rank)], &state));
        return state != weftSuccess;
    });
    return state;
}

std::string Question::text() const {
    return std::string(op < weftNumOps ? reduction_names[op] : "scaled sum") + " of " + std::to_string(count) + " " +
           name_of(type) + (in_place ? ", in place" : "") + ", offset " + std::to_string(offset);
}

namespace {

// Any NaN equals any other.
bool is_nan(weftDataType_t type, const std::byte* at) {
    uint64_t bits = 0;
    memcpy(&bits, at, size_of(type));
    switch (type) {
        case weftFloat16: return (bits & 0x7fff) > 0x7c00;
        case weftBfloat16: return (bits & 0x7fff) > 0x7f80;
        case weftFloat32: return (bits & 0x7fffffff) > 0x7f800000;
        case weftFloat64: return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
        case weftFloat8e4m3: return (bits & 0x7f) == 0x7f;
        case weftFloat8e5m2: return (bits & 0x7f) > 0x7c;
        default: return false;
    }
}

}  // namespace

std::string compare(const Ranks& ranks, const Question& question, std::mt19937& random) {
    const size_t size = size_of(question.type), bytes = question.count * size;
    const int n = ranks.count();
    std::vector<Bytes> inputs, scalars, host_results(ranks.comms.size(), Bytes(bytes));
    std::vector<weftRedOp_t> ops(ranks.comms.size(), weftRedOp_t(question.op));
    std::vector<std::unique_ptr<DeviceBuffer>> sends, receives;
    for (int rank = 0; rank < n; ++rank) {
        inputs.push_back(reference::mild(question.type, question.count, random));
        const int device = ranks.placing[size_t(rank)];
        sends.push_back(std::make_unique<DeviceBuffer>(device, bytes, question.offset));
        if (!question.in_place) receives.push_back(std::make_unique<DeviceBuffer>(device, bytes, question.offset));
        sends.back()->write(inputs.back().data(), bytes);
        if (question.op < weftNumOps) continue;
        scalars.push_back(reference::mild(question.type, 1, random));
        demand(weftRedOpCreatePreMulSum(&ops[size_t(rank)], scalars.back().data(), question.type,
                                        weftScalarHostImmediate, ranks.comms[size_t(rank)]));
    }
    const auto& targets = question.in_place ? sends : receives;
    ranks.group([&](int rank) {
        const auto r = size_t(rank);
        return weftAllReduce(sends[r]->data(), targets[r]->data(), question.count, question.type, ops[r],
                             ranks.comms[r], ranks.streams[r]->weft());
    });
    ranks.group([&](int rank) {
        const auto r = size_t(rank);
        return weftAllReduce(inputs[r].data(), host_results[r].data(), question.count, question.type, ops[r],
                             ranks.comms[r], nullptr);
    });
    ranks.finish();
    ranks.check_healthy();
    for (int rank = 0; rank < n; ++rank) {
        const Bytes got = targets[size_t(rank)]->read(bytes);
        for (size_t i = 0; i < question.count; ++i) {
            const std::byte *ours = got.data() + i * size, *theirs = host_results[size_t(rank)].data() + i * size;
            if (memcmp(ours, theirs, size) != 0 && !(is_nan(question.type, ours) && is_nan(question.type, theirs)))
                return "rank " + std::to_string(rank) + ", element " + std::to_string(i) + ": " + question.text();
        }
        if (!question.in_place && sends[size_t(rank)]->read(bytes) != inputs[size_t(rank)])
            return "rank " + std::to_string(rank) + ": the input was changed: " + question.text();
        if (question.op >= weftNumOps) demand(weftRedOpDestroy(ops[size_t(rank)], ranks.comms[size_t(rank)]));
    }
    return {};
}

}  // namespace weft::internal::test
