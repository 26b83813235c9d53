// call_path_fake.cpp: a made-up library whose all-reduce enters functions of every kind that tools/call_path
// distinguishes.
#include <functional>
#include <vector>

#include "weft/weft.h"

namespace {

struct Counter {
    int count = 0;
    int value() const { return count; }  // on one line
};

template <class T>
T add_one(T value) {
    value += 1;
    return value;
}

int wait_for_other(Counter& counter) {
    ++counter.count;
    return counter.value();
}

int reduce(Counter& counter) {
    const std::function<int(int)> again = [&](int value) {
        // Part of reduce().
        return value + add_one(value);
    };
    std::vector<int> values{1, 2};
    for (int& value : values) value = again(value);
    static int calls = 0;
    if (++calls % 2 == 0) wait_for_other(counter);
    return add_one(int(add_one(double(values.size()))));
}

int never_entered() {
    Counter counter;
    return counter.value();
}

}  // namespace

extern "C" {
weftResult_t weftAllReduce(const void*, void*, size_t count, weftDataType_t, weftRedOp_t, weftComm_t, weftStream_t) {
    Counter counter;
    return reduce(counter) > 0 && count > 0 ? weftSuccess : weftResult_t(never_entered());
}
weftResult_t weftGetUniqueId(weftUniqueId*) { return weftSuccess; }
weftResult_t weftCommInitRank(weftComm_t*, int, weftUniqueId, int) { return weftSuccess; }
weftResult_t weftCommDestroy(weftComm_t) { return weftSuccess; }
const char* weftGetLastError(weftComm_t) { return ""; }
}
