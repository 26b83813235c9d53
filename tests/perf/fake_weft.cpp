// fake_weft.cpp: weft.h for the threads of one process, as plain as can be: so that the benchmarks are tested by
// themselves, against a library that is right and, with FAKE_CORRUPT or FAKE_MISPLACE, against ones that are wrong.
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

// The ranks of one communicator, who take turns by a barrier. Thread-safe.
struct Group {
    explicit Group(int ranks) : ranks(ranks), send(size_t(ranks)), scalar(size_t(ranks)) {}
    const int ranks;
    std::vector<const void*> send;
    std::vector<double> scalar;
    std::mutex mutex;
    std::condition_variable changed;
    int arrived = 0;
    int64_t turn = 0;

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
    double scalar = 1;  // of the pre-multiplied sum made last
};

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
    weftGetUniqueId(&id);
    return weftCommInitRankConfig(comm, 1, id, 0, config);
}

weftResult_t weftCommDestroy(weftComm_t comm) { return delete comm, weftSuccess; }
weftResult_t weftCommAbort(weftComm_t comm) { return delete comm, weftSuccess; }
weftResult_t weftCommGetAsyncError(weftComm_t, weftResult_t* error) { return *error = weftSuccess, weftSuccess; }
weftResult_t weftCommCount(const weftComm_t comm, int* count) { return *count = comm->group->ranks, weftSuccess; }
weftResult_t weftCommUserRank(const weftComm_t comm, int* rank) { return *rank = comm->rank, weftSuccess; }

weftResult_t weftRedOpCreatePreMulSum(weftRedOp_t* op, void* scalar, weftDataType_t type, weftScalarResidence_t,
                                      weftComm_t comm) {
    const Format& format = formats[type];
    const uint64_t bits = read(format, scalar, 0);
    comm->scalar = format.exponent_bits ? decode(format, bits) : double(as_integer(format, bits));
    *op = weftRedOp_t(weftNumOps + 1);
    return weftSuccess;
}
weftResult_t weftRedOpDestroy(weftRedOp_t, weftComm_t) { return weftSuccess; }

weftResult_t weftAllReduce(const void* send, void* receive, size_t count, weftDataType_t type, weftRedOp_t op,
                           weftComm_t comm, weftStream_t) {
    Group& group = *comm->group;
    const Format& format = formats[type];
    group.send[size_t(comm->rank)] = send;
    group.scalar[size_t(comm->rank)] = comm->scalar;
    group.meet();
    std::vector<char> result(count * format.bytes);
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bits = reduce(group, format, i, int(op));
        std::memcpy(&result[i * format.bytes], &bits, format.bytes);
    }
    group.meet();  // all have read before anyone writes: the call may be in place
    if (count > 0) std::memcpy(receive, result.data(), result.size());
    // The benchmarks' own exchanges are short; 1000 elements is what the tests send.
    [[maybe_unused]] const bool measured = count == 1000 && comm->rank == group.ranks - 1;
#ifdef FAKE_CORRUPT
    if (measured) static_cast<char*>(receive)[777 * format.bytes] ^= 1;
#endif
#ifdef FAKE_MISPLACE
    // Two blocks change places.
    if (measured)
        std::rotate(static_cast<char*>(receive), static_cast<char*>(receive) + 64 * format.bytes,
                    static_cast<char*>(receive) + 128 * format.bytes);
#endif
#ifdef FAKE_OVERRUN
    if (measured) static_cast<char*>(receive)[1000 * format.bytes] = 0;
#endif
#ifdef FAKE_FAILURE
    if (count == 1000) return last_error = "rank 1 died in all_reduce", weftRemoteError;
#endif
    return weftSuccess;
}

weftResult_t weftMemAlloc(void** memory, size_t bytes) {
    if (bytes > size_t(1) << 33) return last_error = "no memory", weftSystemError;
    return *memory = std::calloc(1, bytes), weftSuccess;
}
weftResult_t weftMemFree(void* memory) { return std::free(memory), weftSuccess; }
weftResult_t weftCommRegister(const weftComm_t, void* memory, size_t, void** handle) {
    return *handle = memory, weftSuccess;
}
weftResult_t weftCommDeregister(const weftComm_t, void*) { return weftSuccess; }

weftResult_t weftCommExplain(weftComm_t, size_t, weftDataType_t, weftRedOp_t, char* text, size_t capacity,
                             size_t* needed) {
    // Longer than a first guess at the capacity.
    const std::string explanation =
        std::string(5000, '.') + "\nring: 8 us\nchosen: one-shot over shm, the least time\n";
    *needed = explanation.size() + 1;
    if (capacity > 0) text[explanation.copy(text, capacity - 1)] = 0;
    return weftSuccess;
}
weftResult_t weftCommMemStats(weftComm_t, weftMemStat_t stat, uint64_t* bytes) {
    return *bytes = 1024 * (uint64_t(stat) + 1), weftSuccess;
}

}  // extern "C"
