// fake_weft.cpp: weft.h for the threads of one process, as simple as possible. The benchmarks are tested against this
// right library, and against wrong ones (FAKE_WEFT=corrupt and others).
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Put {
    size_t offset, count;
    weftDataType_t type;
};

// The ranks of one communicator, which take turns by a barrier. Thread-safe.
struct Group {
    explicit Group(int ranks) : ranks(ranks), send(size_t(ranks)), scalar(size_t(ranks)) {}
    const int ranks;
    std::vector<const void*> send;
    std::vector<double> scalar;
    std::mutex mutex;
    std::condition_variable changed;
    int arrived = 0;
    int64_t turn = 0;
    std::map<std::pair<int, int>, std::deque<std::vector<char>>> letters;  // by sender and receiver
    std::map<std::pair<int, int>, std::deque<Put>> puts;                   // likewise

    void meet() {
        std::unique_lock lock(mutex);
        if (++arrived == ranks) {
            arrived = 0;
            ++turn;
            changed.notify_all();
            return;
        }
        changed.wait(lock, [&, now = turn] { return turn != now; });
    }
};

std::mutex groups_mutex;
std::map<std::string, std::weak_ptr<Group>> groups;
std::atomic<int> ids{0};
thread_local std::string last_error;

struct Format {
    size_t bytes;
    int mantissa_bits, exponent_bits;  // 0: an integer
    bool is_signed;
};
constexpr Format formats[weftNumTypes] = {{1, 0, 0, true},   {1, 0, 0, false}, {4, 0, 0, true},  {4, 0, 0, false},
                                          {8, 0, 0, true},   {8, 0, 0, false}, {2, 10, 5, true}, {4, 23, 8, true},
                                          {8, 52, 11, true}, {2, 7, 8, true},  {1, 3, 4, true},  {1, 2, 5, true}};

// A number as the sum of its bits' weights: slow, and unlike what the benchmarks do.
double decode(const Format& format, uint64_t bits) {
    const uint64_t mantissa = bits & ((uint64_t(1) << format.mantissa_bits) - 1);
    const int exponent = int(bits >> format.mantissa_bits & ((uint64_t(1) << format.exponent_bits) - 1));
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const double scale = std::ldexp(1.0, std::max(exponent, 1) - bias - format.mantissa_bits);
    const double value = (double(mantissa) + (exponent > 0 ? std::ldexp(1.0, format.mantissa_bits) : 0)) * scale;
    return bits >> (format.bytes * 8 - 1) ? -value : value;
}

// The number whose bits are largest among those not above it: exact where the value exists in the type.
uint64_t encode(const Format& format, double value) {
    uint64_t low = 0, high = (uint64_t(1) << (format.bytes * 8 - 1)) - 1;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        if (decode(format, middle) <= std::abs(value))
            low = middle;
        else
            high = middle - 1;
    }
    return std::signbit(value) ? low | uint64_t(1) << (format.bytes * 8 - 1) : low;
}

uint64_t read(const Format& format, const void* memory, size_t index) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(memory) + index * format.bytes, format.bytes);
    return bits;
}

int64_t as_integer(const Format& format, uint64_t bits) {
    if (!format.is_signed) return int64_t(bits);
    const size_t unused = 64 - format.bytes * 8;
    return int64_t(bits << unused) >> unused;
}

uint64_t combine_integers(const Format& format, uint64_t a, uint64_t b, int op) {
    const bool less = format.is_signed ? as_integer(format, b) < as_integer(format, a) : b < a;
    switch (op) {
        case weftProd: return a * b;
        case weftMin: return less ? b : a;
        case weftMax: return less ? a : b;
        case weftBand: return a & b;
        case weftBor: return a | b;
        case weftBxor: return a ^ b;
        default: return a + b;
    }
}

double combine_numbers(double a, double b, int op) {
    switch (op) {
        case weftProd: return a * b;
        case weftMin: return std::fmin(a, b);
        case weftMax: return std::fmax(a, b);
        default: return a + b;
    }
}

uint64_t reduce(const Group& group, const Format& format, size_t index, int op) {
    const bool scaled = op >= weftNumOps;
    if (format.exponent_bits == 0) {
        uint64_t result = read(format, group.send[0], index) * (scaled ? uint64_t(group.scalar[0]) : 1);
        for (size_t r = 1; r < group.send.size(); ++r) {
            uint64_t next = read(format, group.send[r], index) * (scaled ? uint64_t(group.scalar[r]) : 1);
            result = combine_integers(format, result, next, op);
        }
        if (op == weftAvg) result = uint64_t(as_integer(format, result) / group.ranks);
        return result;
    }
    double result = decode(format, read(format, group.send[0], index)) * (scaled ? group.scalar[0] : 1);
    for (size_t r = 1; r < group.send.size(); ++r)
        result = combine_numbers(
            result, decode(format, read(format, group.send[r], index)) * (scaled ? group.scalar[r] : 1), op);
    return encode(format, op == weftAvg ? result / group.ranks : result);
}

}  // namespace

struct weftComm {
    std::shared_ptr<Group> group;
    int rank;
    double scalar = 1;              // of the pre-multiplied sum made last
    char* window_memory = nullptr;  // the window made last
    std::string algorithm = {};     // that calls ask for
};

namespace {

int last_rank(weftComm_t comm) { return comm->group->ranks - 1; }

// Applies the fault that FAKE_WEFT names, after the call, to the rank's results.
weftResult_t damage(weftComm_t comm, const void* send, void* receive, size_t part_bytes, size_t element_bytes,
                    size_t parts, int culprit) {
    const char* const request = std::getenv("FAKE_WEFT");
    const std::string fault = request ? request : "";
    if (fault == "failure") return last_error = "rank 1 died in all_reduce", weftRemoteError;
    char* const bytes = static_cast<char*>(receive);
    char* const last_part = bytes + (parts - 1) * part_bytes;
    if (comm->rank == culprit && parts > 0) {
        if (fault == "corrupt" || (fault == "corrupt_ring" && comm->algorithm == "ring"))
            last_part[777 * element_bytes] ^= 1;
        // Two blocks change places.
        if (fault == "misplace")
            std::rotate(last_part, last_part + 64 * element_bytes, last_part + 128 * element_bytes);
        if (fault == "swap") std::swap_ranges(bytes, bytes + part_bytes, last_part);
        if (fault == "overrun") bytes[parts * part_bytes] = 0;
        if (fault == "scribble" && send) const_cast<char*>(static_cast<const char*>(send))[element_bytes] ^= 1;
    }
    // Where it has nothing to say.
    if (fault == "intrude" && parts == 0 && bytes) bytes[0] = 0;
    return weftSuccess;
}

// Every element of the parts that this rank receives is `element(part, index)` of what all have sent.
template <class ElementOf>
weftResult_t collect(weftComm_t comm, const void* send, void* receive, size_t count, weftDataType_t type, size_t parts,
                     int culprit, ElementOf element) {
    Group& group = *comm->group;
    const size_t element_bytes = formats[type].bytes;
    group.send[size_t(comm->rank)] = send;
    group.scalar[size_t(comm->rank)] = comm->scalar;
    group.meet();
    std::vector<char> result(parts * count * element_bytes);
    for (size_t i = 0; i < parts * count; ++i) {
        const uint64_t bits = element(i / count, i % count);
        std::memcpy(&result[i * element_bytes], &bits, element_bytes);
    }
    group.meet();  // all have read before anyone writes: the call may be in place
    if (!result.empty()) std::memcpy(receive, result.data(), result.size());
    // The benchmarks' own exchanges are short; parts of 1000 elements are what the tests send.
    if (count != 1000) return weftSuccess;
    return damage(comm, send, receive, count * element_bytes, element_bytes, parts, culprit);
}

}  // namespace

extern "C" {

weftResult_t weftGetVersion(int* version) { return *version = WEFT_VERSION_CODE, weftSuccess; }
const char* weftGetErrorString(weftResult_t) { return "an error of the fake"; }
const char* weftGetLastError(weftComm_t) { return last_error.c_str(); }
weftResult_t weftGroupStart() { return weftSuccess; }
weftResult_t weftGroupEnd() { return weftSuccess; }

weftResult_t weftGetUniqueId(weftUniqueId* id) {
    std::memset(id, 0, sizeof *id);
    std::strcpy(id->internal, std::to_string(++ids).c_str());
    return weftSuccess;
}

weftResult_t weftCommInitRankConfig(weftComm_t* comm, int ranks, weftUniqueId id, int rank, const weftConfig_t*) {
    std::lock_guard lock(groups_mutex);
    std::shared_ptr<Group> group = groups[id.internal].lock();
    if (!group) groups[id.internal] = group = std::make_shared<Group>(ranks);
    *comm = new weftComm{group, rank};
    return weftSuccess;
}

weftResult_t weftCommInitFromEnvironment(weftComm_t* comm, const weftConfig_t* config) {
    weftUniqueId id;
    const weftResult_t result = weftGetUniqueId(&id);
    if (result != weftSuccess) return result;
    return weftCommInitRankConfig(comm, 1, id, 0, config);
}

weftResult_t weftCommDestroy(weftComm_t comm) { return delete comm, weftSuccess; }
weftResult_t weftCommAbort(weftComm_t comm) { return delete comm, weftSuccess; }
weftResult_t weftCommGetAsyncError(weftComm_t, weftResult_t* error) { return *error = weftSuccess, weftSuccess; }
weftResult_t weftCommCount(const weftComm_t comm, int* count) { return *count = comm->group->ranks, weftSuccess; }
weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) { return *rank = comm->rank, weftSuccess; }

weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t datatype, weftScalarResidence_t,
                                      weftComm_t comm) {
    const Format& format = formats[datatype];
    const uint64_t bits = read(format, scalar, 0);
    comm->scalar = format.exponent_bits ? decode(format, bits) : double(as_integer(format, bits));
    *op = weftRedOp_t(weftNumOps + 1);
    return weftSuccess;
}
weftResult_t weftRedOpDestroy(weftRedOp_t, weftComm_t) { return weftSuccess; }

weftResult_t weftAllReduce(const void* send, void* receive, size_t count, weftDataType_t datatype, weftRedOp_t op,
                           weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, 1, last_rank(comm),
                   [&](size_t, size_t i) { return reduce(*comm->group, formats[datatype], i, int(op)); });
}
weftResult_t weftReduceScatter(const void* send, void* receive, size_t count, weftDataType_t datatype, weftRedOp_t op,
                               weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, 1, last_rank(comm), [&](size_t, size_t i) {
        return reduce(*comm->group, formats[datatype], size_t(comm->rank) * count + i, int(op));
    });
}
weftResult_t weftReduce(const void* send, void* receive, size_t count, weftDataType_t datatype, weftRedOp_t op,
                        int root, weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, comm->rank == root ? 1 : 0, root,
                   [&](size_t, size_t i) { return reduce(*comm->group, formats[datatype], i, int(op)); });
}
weftResult_t weftBroadcast(const void* send, void* receive, size_t count, weftDataType_t datatype, int root,
                           weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, 1, last_rank(comm),
                   [&](size_t, size_t i) { return read(formats[datatype], comm->group->send[size_t(root)], i); });
}
weftResult_t weftAllGather(const void* send, void* receive, size_t count, weftDataType_t datatype, weftComm_t comm,
                           weftStream_t) {
    return collect(comm, send, receive, count, datatype, size_t(comm->group->ranks), last_rank(comm),
                   [&](size_t part, size_t i) { return read(formats[datatype], comm->group->send[part], i); });
}
weftResult_t weftAlltoAll(const void* send, void* receive, size_t count, weftDataType_t datatype, weftComm_t comm,
                          weftStream_t) {
    return collect(comm, send, receive, count, datatype, size_t(comm->group->ranks), last_rank(comm),
                   [&](size_t part, size_t i) {
                       return read(formats[datatype], comm->group->send[part], size_t(comm->rank) * count + i);
                   });
}
weftResult_t weftGather(const void* send, void* receive, size_t count, weftDataType_t datatype, int root,
                        weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, comm->rank == root ? size_t(comm->group->ranks) : 0, root,
                   [&](size_t part, size_t i) { return read(formats[datatype], comm->group->send[part], i); });
}
weftResult_t weftScatter(const void* send, void* receive, size_t count, weftDataType_t datatype, int root,
                         weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, 1, last_rank(comm), [&](size_t, size_t i) {
        return read(formats[datatype], comm->group->send[size_t(root)], size_t(comm->rank) * count + i);
    });
}

// From `source` to this rank.
weftResult_t weftSendRecv(const void* send, size_t, int, void* receive, size_t count, int source,
                          weftDataType_t datatype, weftComm_t comm, weftStream_t) {
    return collect(comm, send, receive, count, datatype, 1, last_rank(comm),
                   [&](size_t, size_t i) { return read(formats[datatype], comm->group->send[size_t(source)], i); });
}
// A ping-pong's calls: ranks in pairs, the even one first, so both are in these calls at the same time. A rank without
// a partner is in neither.
weftResult_t weftSend(const void* send, size_t count, weftDataType_t datatype, int peer, weftComm_t comm,
                      weftStream_t) {
    std::unique_lock lock(comm->group->mutex);
    std::deque<std::vector<char>>& letters = comm->group->letters[{comm->rank, peer}];
    const auto* bytes = static_cast<const char*>(send);
    letters.emplace_back(bytes, bytes + count * formats[datatype].bytes);
    comm->group->changed.notify_all();
    if (count != 1000) return weftSuccess;
    const char* const fault = std::getenv("FAKE_WEFT");
    if (fault && !std::strcmp(fault, "scribble") && comm->rank == 1)
        const_cast<char*>(bytes)[formats[datatype].bytes] ^= 1;
    return weftSuccess;
}
weftResult_t weftRecv(void* receive, size_t count, weftDataType_t datatype, int peer, weftComm_t comm, weftStream_t) {
    std::unique_lock lock(comm->group->mutex);
    std::deque<std::vector<char>>& letters = comm->group->letters[{peer, comm->rank}];
    comm->group->changed.wait(lock, [&] { return !letters.empty(); });
    if (count > 0) std::memcpy(receive, letters.front().data(), letters.front().size());
    letters.pop_front();
    if (count != 1000) return weftSuccess;
    return damage(comm, nullptr, receive, count * formats[datatype].bytes, formats[datatype].bytes, 1, 1);
}
// Data of a put stays in a message until it is waited for.
weftResult_t weftCommWindowRegister(weftComm_t comm, void* memory, size_t, weftWindow_t* window, int) {
    comm->group->meet();
    comm->window_memory = static_cast<char*>(memory);
    return *window = reinterpret_cast<weftWindow_t>(memory), weftSuccess;
}
weftResult_t weftCommWindowDeregister(weftComm_t comm, weftWindow_t) { return comm->group->meet(), weftSuccess; }
weftResult_t weftPutSignal(const void* memory, size_t count, weftDataType_t datatype, int peer, weftWindow_t,
                           size_t offset, int, int, unsigned, weftComm_t comm, weftStream_t stream) {
    {
        std::lock_guard lock(comm->group->mutex);
        comm->group->puts[{comm->rank, peer}].push_back({offset, count, datatype});
    }
    return weftSend(memory, count, datatype, peer, comm, stream);
}
weftResult_t weftWaitSignal(int, const weftWaitSignalDesc_t* signal, weftComm_t comm, weftStream_t stream) {
    Group& group = *comm->group;
    Put put;
    {
        std::unique_lock lock(group.mutex);
        std::deque<Put>& puts = group.puts[{signal->peer, comm->rank}];
        group.changed.wait(lock, [&] { return !puts.empty(); });
        put = puts.front();
        puts.pop_front();
    }
    return weftRecv(comm->window_memory + put.offset, put.count, put.type, signal->peer, comm, stream);
}
// Places are those of equal parts of the largest count, which a rank has for itself.
weftResult_t weftAlltoAllv(const void* send, const size_t counts[], const size_t[], void* receive,
                           const size_t receive_counts[], const size_t[], weftDataType_t datatype, weftComm_t comm,
                           weftStream_t) {
    Group& group = *comm->group;
    const size_t part = counts[comm->rank], bytes = formats[datatype].bytes;
    group.send[size_t(comm->rank)] = send;
    group.meet();
    for (size_t from = 0; from < size_t(group.ranks); ++from)
        std::memcpy(static_cast<char*>(receive) + from * part * bytes,
                    static_cast<const char*>(group.send[from]) + size_t(comm->rank) * part * bytes,
                    receive_counts[from] * bytes);
    group.meet();
    if (part != 1000) return weftSuccess;
    return damage(comm, send, receive, part * bytes, bytes, size_t(group.ranks), last_rank(comm));
}

weftResult_t weftHostAlloc(void** memory, size_t bytes) {
    if (bytes > size_t(1) << 33) return last_error = "no memory", weftSystemError;
    return *memory = std::calloc(1, bytes), weftSuccess;
}
weftResult_t weftMemAlloc(void** memory, size_t) {
    return *memory = nullptr, last_error = "there is no device", weftSystemError;
}
weftResult_t weftMemFree(void* memory) { return std::free(memory), weftSuccess; }
weftResult_t weftCommRegister(const weftComm_t, void* memory, size_t, void** handle) {
    return *handle = memory, weftSuccess;
}
weftResult_t weftCommDeregister(const weftComm_t, void*) { return weftSuccess; }

weftResult_t weftCommExplainCollective(weftComm_t, const char*, size_t, weftDataType_t, weftRedOp_t, int, char* text,
                                       size_t capacity, size_t* needed) {
    // Longer than a first guess at the capacity.
    const std::string explanation =
        std::string(5000, '.') +
        "\ncandidate ring: 8.00 us predicted; a: round\ncandidate one-shot: 2.00 us predicted; at once\n"
        "candidate tree: 1.00 us predicted, out: excluded by WEFT_ALGO; up and down\n"
        "chosen: one-shot over shm, the least time\n";
    *needed = explanation.size() + 1;
    if (capacity > 0) text[explanation.copy(text, capacity - 1)] = 0;
    return weftSuccess;
}
weftResult_t weftCommSetCallConfig(weftComm_t comm, const weftCallConfig_t* config) {
    return comm->algorithm = config ? config->algo : "", weftSuccess;
}
weftResult_t weftCommMemStats(weftComm_t, weftMemStat_t stat, uint64_t* bytes) {
    return *bytes = 1024 * (uint64_t(stat) + 1), weftSuccess;
}

}  // extern "C"
