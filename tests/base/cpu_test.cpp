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

TEST_CASE("the model of a processor is its name or, on 64-bit Arm, its numbers", "[cpu]") {
    CHECK(cpu_model("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Xeon 8480\n"
                    "model name\t: other\n") == "Xeon 8480");
    const auto arm = [](const std::string& part) {
        return "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: "
               "0x3\nCPU part\t: " +
               part + "\nCPU revision\t: 1\n\nprocessor\t: 1\nCPU implementer\t: 0x51\nCPU part\t: 0xd4f\n";
    };
    CHECK(cpu_model(arm("0xd0c")) == "Arm implementer 0x41 variant 0x3 part 0xd0c");
    CHECK(cpu_model(arm("0xd4f")) == "Arm implementer 0x41 variant 0x3 part 0xd4f");
    for (const char* text : {"", "model name", "model name\t:", "model name\t:\n", ":", "\n\n"})
        CHECK(cpu_model(text) == "unknown processor");
}

TEST_CASE("if the kernel shows no caches, the C library is asked", "[cpu]") {
    const test::Folder nothing;
    CHECK(cache_bytes(3, cpus({0}), nothing.path) == size_t(std::max(0l, sysconf(_SC_LEVEL3_CACHE_SIZE))));
    CHECK(cache_bytes(2, cpus({0}), nothing.path) == size_t(std::max(0l, sysconf(_SC_LEVEL2_CACHE_SIZE))));
}
