// host_kernels.hpp: the kernels' bodies compiled for the host, found by the names of their entry points: what tests and
// the fake driver launch. Not part of the library.
#pragma once
#include <string_view>
#include <thread>
#include <vector>

#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernels.hpp"

namespace weft::internal::cuda {

// Runs one thread of a block. Blocks of a rank wait for the same blocks of other ranks, those of `steps` for each other
// too, and the threads of a block for each other: all have to run at the same time.
using HostKernel = void (*)(const Team& team, const KernelArguments& arguments);

// Runs a block: `body(team)` in so many threads, of which this is one.
template <class Body>
void run_block(int threads, int block, int blocks, Body&& body) {
    if (threads == 1) return body(Team{0, 1, block, blocks});
    TeamBarrier meets(threads);
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread)
        others.emplace_back([&, thread] { body(Team{thread, threads, block, blocks, &meets}); });
    body(Team{0, threads, block, blocks, &meets});
}

HostKernel host_kernel(Body body, weftDataType_t type, bool adds);
// By the name of its entry point. Null if there is no such entry point.
HostKernel find_host_kernel(std::string_view entry_point);

}  // namespace weft::internal::cuda
