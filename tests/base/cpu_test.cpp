// cpu_test.cpp: the caches of the processors that ranks run on.
#include "src/base/cpu.hpp"

#include <unistd.h>

#include <fstream>

#include "src/base/result.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"

using namespace weft::internal;

namespace {

// Processors of clusters of four threads, each cluster with a last-level cache of 32 MiB.
struct Clusters {
    test::Folder folder;
    Clusters() {
        for (int cpu = 0; cpu < 12; ++cpu) {
            const int first = cpu / 4 * 4;
            cache(cpu, 0, 1, "Data", "32K", std::to_string(cpu));
            cache(cpu, 1, 1, "Instruction", "32K", std::to_string(cpu));
            cache(cpu, 2, 2, "Unified", "1024K", fmt::format("{},{}", cpu / 2 * 2, cpu / 2 * 2 + 1));
            cache(cpu, 3, 3, "Unified", "32768K", fmt::format("{}-{}", first, first + 3));
        }
    }
    void cache(int cpu, int index, int level, const char* type, const char* size, const std::string& shared) {
        const auto path = folder.path / fmt::format("devices/system/cpu/cpu{}/cache/index{}", cpu, index);
        std::filesystem::create_directories(path);
        std::ofstream(path / "level") << level << "\n";
        std::ofstream(path / "type") << type << "\n";
        std::ofstream(path / "size") << size << "\n";
        std::ofstream(path / "shared_cpu_list") << shared << "\n";
    }
};

CpuSet cpus(std::initializer_list<int> list) {
    CpuSet set;
    for (const int cpu : list) set.add(cpu);
    return set;
}

}  // namespace

TEST_CASE("a cache that processors share counts once, and those of others do not", "[cpu]") {
    const Clusters clusters;
    const std::string sys = clusters.folder.path;
    CHECK(cache_bytes(3, cpus({0}), sys) == size_t(32) << 20);
    CHECK(cache_bytes(3, cpus({1, 3}), sys) == size_t(32) << 20);
    CHECK(cache_bytes(3, cpus({3, 4, 5, 11}), sys) == size_t(96) << 20);
    CHECK(cache_bytes(2, cpus({0, 1, 2}), sys) == size_t(2) << 20);
    CHECK(cache_bytes(3, cpus({0, 500, 1023}), sys) == size_t(32) << 20);  // those are offline
}

TEST_CASE("if the kernel shows no caches, the C library is asked", "[cpu]") {
    const test::Folder nothing;
    CHECK(cache_bytes(3, cpus({0}), nothing.path) == size_t(std::max(0l, sysconf(_SC_LEVEL3_CACHE_SIZE))));
    CHECK(cache_bytes(2, cpus({0}), nothing.path) == size_t(std::max(0l, sysconf(_SC_LEVEL2_CACHE_SIZE))));
}
