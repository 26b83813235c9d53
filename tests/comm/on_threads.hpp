// on_threads.hpp: a communicator whose ranks are threads of the test. Clients' interface only.
#pragma once
#include <weft/weft.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

namespace weft::internal::test {

// The errors that body(comm, rank) returns, by rank. Under one algorithm, or any. With `devices` rank r has the CUDA device
// r % devices.
template <class Body>
std::vector<std::string> on_threads(int ranks, const char* algo, Body&& body, int devices = 0) {
    weftUniqueId id;
    REQUIRE(weftGetUniqueId(&id) == weftSuccess);
    std::vector<std::string> wrong{size_t(ranks)};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            weftConfig_t config = WEFT_CONFIG_INITIALIZER;
            config.algo = algo;
            if (devices > 0) config.device = rank % devices;
            weftComm_t comm = nullptr;
            if (weftCommInitRankConfig(&comm, ranks, id, rank, &config) != weftSuccess) {
                wrong[size_t(rank)] = weftGetLastError(nullptr);
                return;
            }
            wrong[size_t(rank)] = body(comm, rank);
            (void)weftCommDestroy(comm);
        });
    for (std::thread& thread : threads) thread.join();
    return wrong;
}

}  // namespace weft::internal::test
