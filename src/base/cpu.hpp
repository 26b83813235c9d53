// cpu.hpp: the processor this thread runs on, a word to it, and what the machine has: cores, caches.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#if defined(__linux__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define WEFT_HAS_RSEQ 1
#endif
#include <sched.h>

namespace weft::internal {

// A thread-local load where glibc has registered restartable sequences, else a call of the vDSO.
inline int current_cpu() {
#if defined(WEFT_HAS_RSEQ) && defined(__x86_64__)
    if (__rseq_size > 0) {
        auto* area =
            reinterpret_cast<volatile struct rseq*>(static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset);
        const int cpu = int(area->cpu_id);
        if (cpu >= 0) return cpu;
    }
#endif
    return sched_getcpu();
}

// Has the line of memory brought here to be written soon; others lose it. The compiler's own word for it only reads where
// it does not know the processor; all of x86-64 has this one, or takes it for nothing.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
}

// Processors that this thread may run on: a set that fits shared memory, and how many there are in it, at least 1.
struct CpuSet {
    static constexpr int cpus_most = 1024;
    unsigned long long words[cpus_most / 64] = {};
    void add(int cpu) { words[cpu / 64] |= 1ull << (cpu % 64); }
    void take(int cpu) { words[cpu / 64] &= ~(1ull << (cpu % 64)); }
    auto operator<=>(const CpuSet&) const = default;
    CpuSet& operator|=(const CpuSet& other) {
        for (int i = 0; i < 16; ++i) words[i] |= other.words[i];
        return *this;
    }
    int count() const {
        int bits = 0;
        for (const auto word : words) bits += __builtin_popcountll(word);
        return bits > 0 ? bits : 1;
    }
    int first() const {  // -1: none
        for (int i = 0; i < 16; ++i)
            if (words[i] != 0) return 64 * i + __builtin_ctzll(words[i]);
        return -1;
    }
};
CpuSet allowed_cpus();
inline int allowed_cores() { return allowed_cpus().count(); }

// Of all caches of a level, 2 or 3, that these processors have, each counted once; 0 if unknown. `sys` is for tests.
size_t cache_bytes(int level, CpuSet cpus, const std::string& sys = "/sys");

// Cores' worth of time that a control group leaves all who are in it together.
struct CpuQuota {
    uint64_t group = 0;  // that limits; no other one of this machine has the number
    double cores = 0;    // 0: no limit is known
};

// What several ranks of a machine may use together: processors, and time where all of them are limited.
struct CpuShare {
    CpuSet cpus;
    std::map<uint64_t, double> quotas;  // by group
    bool unlimited = false;             // some rank is

    void add(const CpuSet& set, const CpuQuota& quota) {
        cpus |= set;
        if (quota.cores > 0)
            quotas[quota.group] = quota.cores;
        else
            unlimited = true;
    }
    CpuShare& operator|=(const CpuShare& other);
    // Whole ones, at least 1.
    int cores() const;
};

// The last-level and second-level cache of a core, 0 if unknown.
size_t last_level_cache_bytes();
size_t second_level_cache_bytes();
std::string cpu_model();
// Whether the kernel shall copy messages between processes: as `asked` by WEFT_CROSS_MEMORY, or, if that is negative,
// unless two cores pass data through slots faster. Measured: perf/results: the kernel copies 12 GB/s on AMD's EPYC, two
// cores pass on 30; on Intel's Xeon it copies 20.
bool cma_messages_wanted(int asked);

}  // namespace weft::internal
