#include "tests/comm/random_calls.hpp"

#include "tests/comm/random_call.hpp"

namespace weft::internal::test {

std::string run_random_calls(weftComm_t comm, const Sequence& sequence) {
    int rank = 0, ranks = 0;
    (void)weftCommUserRank(comm, &rank);
    (void)weftCommCount(comm, &ranks);
    for (int index = 0; index < sequence.calls; ++index) {
        RandomCall call(sequence, index, rank, ranks);
        if (call.issue(comm, nullptr) != weftSuccess || (index % 16 == 0 && weftBarrier(comm, nullptr) != weftSuccess))
            return call.name() + ": " + weftGetLastError(comm);
        if (call.end(comm) != weftSuccess) return call.name() + ": " + weftGetLastError(comm);
        std::string wrong = call.fault();
        if (wrong.empty()) wrong = call.differing_bits(comm);
        if (!wrong.empty()) return call.name() + ": " + wrong;
    }
    return "";
}

}  // namespace weft::internal::test
