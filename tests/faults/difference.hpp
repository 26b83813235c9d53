// difference.hpp: how the calls of ranks can differ, on one host and on several, and what they are told then.
#pragma once
#include <vector>

#include "tests/faults/job.hpp"

namespace weft::test {

struct Difference {
    const char* what;
    Steps usual, odd;          // calls of all ranks but one, and of that one
    const char *theirs, *its;  // as the sentence names them
    const char* algo = "";
};

// What differs everywhere, and what only a test of its own knows.
inline std::vector<Difference> with_common(std::vector<Difference> own) {
    std::vector<Difference> all{
        {"count", {"reduce=1000"}, {"reduce=1001"}, "all_reduce of 1000 int32, sum", "all_reduce of 1001 int32, sum"},
        {"type", {"reduce=1000"}, {"reduce=1000,7"}, "all_reduce of 1000 int32, sum", "all_reduce of 1000 float, sum"},
        {"operation",
         {"reduce=1000"},
         {"reduce=1000,2,2"},
         "all_reduce of 1000 int32, sum",
         "all_reduce of 1000 int32, max"},
    };
    all.insert(all.end(), own.begin(), own.end());
    return all;
}

}  // namespace weft::test
