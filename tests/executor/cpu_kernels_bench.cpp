// cpu_kernels_bench.cpp: how fast each set of CPU kernels is on this machine: GB/s of sources read plus results written, the best
// of some short loops. Nothing here passes or fails.
//   cpu_kernels_bench [TYPE [OP]]   as in `cpu_kernels_bench half sum`; float, half, bfloat16 and sum if none is given
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "src/base/datatype.hpp"
#include "src/kernels/cpu_kernels.hpp"

namespace weft::internal {
namespace {

// Nanoseconds of one call: the least of seven loops of some 200 us each.
template <class Call>
double nanoseconds(Call&& call) {
    using Clock = std::chrono::steady_clock;
    const auto elapsed = [&](long calls) {
        const auto start = Clock::now();
        for (long i = 0; i < calls; ++i) call();
        return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    };
    const double once = std::max(elapsed(3) / 3, 1.0);
    const long calls = std::max(1L, long(200e3 / once));
    double least = 1e18;
    for (int round = 0; round < 7; ++round) least = std::min(least, elapsed(calls) / double(calls));
    return least;
}

// Zeros would be as fast as other numbers, but untouched memory would be one page.
using Buffers = std::vector<std::vector<char>>;
Buffers make_buffers(size_t count, size_t bytes) { return Buffers(count, std::vector<char>(bytes + 64, 1)); }
char* line_of(std::vector<char>& buffer) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(buffer.data()) + 63) & ~uintptr_t(63));
}

void bench_reduce(const CpuKernels& set, weftDataType_t type, weftRedOp_t op) {
    constexpr size_t sizes[] = {8, 64, 1024, 16384, 262144, 4 << 20};
    std::printf("%-7s %-8s %-5s |", set.isa, name_of(type), name_of(op));
    for (const size_t bytes : sizes) std::printf("%9zu B", bytes);
    std::printf("   (8 and 64 B: ns; others: GB/s)\n");
    for (const int sources : {2, 3, 4, 8, 9}) {
        std::printf("%11d sources     |", sources);
        Buffers buffers = make_buffers(size_t(sources) + 1, sizes[std::size(sizes) - 1]);
        std::vector<const void*> from;
        for (size_t j = 1; j < buffers.size(); ++j) from.push_back(line_of(buffers[j]));
        void* const to[] = {line_of(buffers[0])};
        for (const size_t bytes : sizes) {
            const uint32_t divisor = op == weftAvg ? uint32_t(sources) : 0;
            const ReduceJob job = {to, 1, from.data(), sources, bytes / size_of(type), divisor, Stores::ordinary};
            const double ns = nanoseconds([&] { set.reduce[type][op](job); });
            std::printf("%11.1f", bytes <= 64 ? ns : double(bytes) * (sources + 1) / ns);
        }
        std::printf("\n");
    }
}

void bench_copy(const CpuKernels& set) {
    std::printf("%-7s copy, bytes: ns", set.isa);
    Buffers buffers = make_buffers(2, 16 << 20);
    for (const size_t bytes : {8, 48, 64, 256, 4096, 65536, 1 << 20, 16 << 20}) {
        CopyJob job = {line_of(buffers[0]), line_of(buffers[1]), bytes, Stores::ordinary};
        const double ordinary = nanoseconds([&] { set.copy(job); });
        job.stores = Stores::streaming;
        std::printf(" | %zu: %.1f, streaming %.1f", bytes, ordinary, nanoseconds([&] { set.copy(job); }));
    }
    std::printf("\n");
}

// The tile loop of a two-shot on large messages: staging and results as long as the `ranks` - 1 other chunks.
void bench_fused(const CpuKernels& set, int ranks) {
    constexpr size_t total = 64 << 20;
    const size_t tile = 128 << 10, chunk = tile / size_t(ranks);
    std::vector<char> input(total, 1), output(total, 1);
    Buffers slots = make_buffers(size_t(ranks), 4 * tile);
    const auto walk = [&](auto&& step) {
        for (size_t offset = 0; offset < total; offset += tile) {
            std::vector<const void*> from = {input.data() + offset};
            for (size_t j = 1; j < size_t(ranks); ++j) from.push_back(line_of(slots[j]) + offset % (4 * tile));
            char* slot = line_of(slots[0]) + offset % (4 * tile);
            void* const to[] = {output.data() + offset, slot};
            const CopyJob staging = {slot + chunk, input.data() + offset + chunk, tile - chunk, Stores::ordinary};
            std::vector<CopyJob> results;
            for (size_t j = 1; j < size_t(ranks); ++j) {
                results.push_back({output.data() + offset + j * chunk,
                                   line_of(slots[j]) + offset % (4 * tile) + j * chunk, chunk, Stores::streaming});
            }
            step(staging, ReduceJob{to, 2, from.data(), ranks, chunk / 4, 0, Stores::streaming, 1}, results);
        }
    };
    const double apart = nanoseconds([&] {
        walk([&](const CopyJob& staging, const ReduceJob& reduction, const std::vector<CopyJob>& results) {
            set.copy(staging);
            set.reduce[weftFloat32][weftSum](reduction);
            for (const CopyJob& job : results) set.copy(job);
        });
    });
    const double fused = nanoseconds([&] {
        walk([&](const CopyJob& staging, const ReduceJob& reduction, const std::vector<CopyJob>& results) {
            set.fused[weftFloat32][weftSum](&staging, 1, reduction, results.data(), int(results.size()));
        });
    });
    std::printf("%-7s tiles of a two-shot, 64 MiB, %d ranks: apart %.1f ms, fused %.1f ms, ratio %.2f\n", set.isa,
                ranks, apart / 1e6, fused / 1e6, fused / apart);
}

}  // namespace
}  // namespace weft::internal

int main(int argument_count, char** arguments) {
    using namespace weft::internal;
    const std::string type_wanted = argument_count > 1 ? arguments[1] : "",
                      op_wanted = argument_count > 2 ? arguments[2] : "sum";
    for (const CpuKernels* set : all_cpu_kernels()) {
        for (int type = 0; type < weftNumTypes; ++type) {
            const std::string name = datatype_names[type];
            const bool usual = name == "float" || name == "half" || name == "bfloat16";
            if (type_wanted.empty() ? !usual : type_wanted != name) continue;
            for (int op = 0; op < weftNumOps; ++op) {
                if (op_wanted == reduction_names[op] && serves(weftRedOp_t(op), weftDataType_t(type)))
                    bench_reduce(*set, weftDataType_t(type), weftRedOp_t(op));
            }
        }
    }
    if (!type_wanted.empty()) return 0;
    for (const CpuKernels* set : all_cpu_kernels()) {
        bench_copy(*set);
        for (const int ranks : {2, 4}) bench_fused(*set, ranks);
    }
}
