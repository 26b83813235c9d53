// host_kernels.hpp: the kernel bodies compiled for the host, found by entry point name. Tests and the fake driver
// launch them. Not part of the library.
#pragma once
#include <string_view>
#include <thread>
#include <vector>

#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernels.hpp"

namespace weft::internal::cuda {

// Runs one thread of a block. All threads of all blocks of all ranks must run at the same time, because they wait for
// each other.
using HostKernel = void (*)(const Team& team, const KernelArguments& arguments);

// Runs `body(team)` in `threads` threads; the caller is one of them.
template <class Body>
void run_block(int threads, int block, int blocks, Body&& body) {
    if (threads == 1) return body(Team{0, 1, block, blocks});
    TeamBarrier meets(threads);
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread)
        others.emplace_back([&, thread] { body(Team{thread, threads, block, blocks, &meets}); });
    body(Team{0, threads, block, blocks, &meets});
}

// Null unless has_entry_point().
HostKernel host_kernel(Body body, weftDataType_t type, bool adds);
// Null if there is no entry point with this name.
HostKernel find_host_kernel(std::string_view entry_point);

}  // namespace weft::internal::cuda
