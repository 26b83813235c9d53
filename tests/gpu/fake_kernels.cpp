// fake_kernels.cpp: the kernels for the fake driver: a shared object with the bodies as C++. They have the names of the
// device code's entry points and of virtual_ranks.cu, those of the benchmarks included. FAKE_CUDA_THREADS: threads of a
// block of the shipping kernels (1).
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "perf/pattern_kernels.hpp"
#include "src/gpu/kernels/access.hpp"
#include "src/gpu/kernels/host_kernels.hpp"
#include "src/gpu/kernels/messages.hpp"
#include "src/gpu/kernels/training/batch_norm.hpp"
#include "src/gpu/kernels/training/codec.hpp"
#include "src/gpu/kernels/training/convert.hpp"
#include "src/gpu/kernels/training/hooks.hpp"
#include "src/gpu/kernels/training/local_elements.hpp"
#include "src/gpu/kernels/training/optimizer.hpp"
#include "tests/fake_cuda/kernels.hpp"

namespace weft::internal::cuda {
namespace {

constexpr int kernels = body_count * weftNumTypes * 2;
constexpr Body body_of(int index) { return Body(index / 2 / weftNumTypes); }
constexpr weftDataType_t type_of(int index) { return weftDataType_t(index / 2 % weftNumTypes); }

// Of a block of a rank's kernel. More than one find what one cannot: threads that do not wait for each other.
template <class Body>
void run(const FakeBlock& block, Body&& body) {
    static const char* const given = std::getenv("FAKE_CUDA_THREADS");
    static const int threads = given ? std::max(1, std::atoi(given)) : 1;
    run_block(threads, int(block.index[0]), int(block.grid[0]), body);
}

template <int index>
void rank_kernel(FakeBlock& block, KernelArguments arguments) {
    run(block, [&](const Team& team) { host_kernel(body_of(index), type_of(index), index % 2)(team, arguments); });
}
template <int index>
void grid_kernel(FakeBlock& block, const KernelArguments* ranks, int blocks) {
    const int rank = int(block.index[0]) / blocks;
    const Team team{0, 1, int(block.index[0]) - rank * blocks, blocks};
    host_kernel(body_of(index), type_of(index), index % 2)(team, ranks[rank]);
}

void message_kernel(FakeBlock& block, MessageArguments arguments) {
    MessageBlock shared;
    run(block, [&](const Team& team) { messages(team, arguments, shared); });
}

void access_kernel(FakeBlock& block, AccessArguments arguments) {
    run(block, [&](const Team& team) { access(team, arguments); });
}

void optimizer_kernel(FakeBlock& block, OptimizerArguments arguments) {
    OptimizerBlock shared;
    run(block, [&](const Team& team) { optimizer(team, arguments, shared); });
}

void local_kernel(FakeBlock& block, LocalArguments arguments) {
    run(block, [&](const Team& team) { local_elements(NumbersOfThread(team), arguments); });
}

void batch_norm_kernel(FakeBlock& block, BatchNormArguments arguments) {
    BatchNormBlock shared;
    run(block, [&](const Team& team) { batch_norm(team, arguments, shared); });
}

void convert_kernel(FakeBlock& block, ConvertArguments arguments) {
    convert({0, 1, int(block.index[0]), int(block.grid[0])}, arguments);
}

void scale_kernel(FakeBlock& block, ScaleArguments arguments) {
    scale({0, 1, int(block.index[0]), int(block.grid[0])}, arguments);
}

void encode_kernel(FakeBlock& block, CodecArguments arguments) {
    CodecBlock shared;
    run(block, [&](const Team& team) { CodecKernel(team, arguments).encode(shared); });
}

void decode_kernel(FakeBlock& block, CodecArguments arguments) {
    run(block, [&](const Team& team) { CodecKernel(team, arguments).decode(); });
}

void hook_kernel(FakeBlock& block, HookArguments arguments) {
    HookBlock shared;
    run(block, [&](const Team& team) { hook(team, arguments, shared); });
}

template <auto body>
void pattern_kernel(FakeBlock& block, perf::PatternArguments arguments) {
    body({0, 1, block.index[0], block.grid[0]}, arguments);
}

// As many registers as their 512 threads may have, so that a multiprocessor has room for one block, as on a GPU.
FakeKernel of_whole_multiprocessor(FakeKernel kernel) {
    kernel.registers = 65536 / threads_max;
    return kernel;
}

// Of one rank, and of several in one grid.
template <int index>
void add_one(FakeKernelTable add, const std::string& grid_name) {
    if constexpr (has_entry_point(body_of(index), type_of(index), index % 2)) {
        add(fake_kernel<rank_kernel<index>>(entry_point(body_of(index), type_of(index), index % 2)));
        add(of_whole_multiprocessor(fake_kernel<grid_kernel<index>>(grid_name.c_str())));
    }
}

template <int... index>
void add_all(FakeKernelTable add, std::integer_sequence<int, index...>) {
    // Of more types than virtual_ranks.cu has, and of other reductions too.
    static std::string names[kernels];
    add(fake_kernel<message_kernel>(message_entry_point));
    add(fake_kernel<access_kernel>(access_entry_point));
    add(fake_kernel<optimizer_kernel>(optimizer_entry_point));
    add(fake_kernel<local_kernel>(local_entry_point));
    add(fake_kernel<batch_norm_kernel>(batch_norm_entry_point));
    add(fake_kernel<convert_kernel>(convert_entry_point));
    add(fake_kernel<scale_kernel>(scale_entry_point));
    add(fake_kernel<encode_kernel>(encode_entry_point));
    add(fake_kernel<decode_kernel>(decode_entry_point));
    add(fake_kernel<hook_kernel>(hook_entry_point));
    add(fake_kernel<pattern_kernel<perf::fill_pattern>>(perf::fill_entry_point));
    add(fake_kernel<pattern_kernel<perf::count_wrong_elements>>(perf::wrong_entry_point));
    ((names[index] = std::string("virtual_") + (entry_point(body_of(index), type_of(index), index % 2) + 5)), ...);
    (add_one<index>(add, names[index]), ...);
}

}  // namespace
}  // namespace weft::internal::cuda

extern "C" void fake_cuda_kernels(FakeKernelTable add) {
    weft::internal::cuda::add_all(add, std::make_integer_sequence<int, weft::internal::cuda::kernels>());
}
