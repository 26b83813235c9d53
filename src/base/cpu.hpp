// cpu.hpp: the processor that this thread runs on, a prefetch, and the machine's cores and caches.
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

// A thread-local load if glibc has registered restartable sequences, otherwise a vDSO call.
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

// Fetches a cache line for writing soon, which invalidates other copies. The compiler's builtin falls back to a read
// prefetch for unknown processors. Every x86-64 processor has this instruction or ignores it.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
}

// Processors that this thread may run on, as a set that fits in shared memory. There is at least one.
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

// The size of all caches of a level, 2 or 3, of these processors, each counted once; 0 if unknown. `sys` is for tests.
size_t cache_bytes(int level, CpuSet cpus, const std::string& sys = "/sys");

// Processor time, in cores, that a control group allows all of its members together.
struct CpuQuota {
    uint64_t group = 0;  // the group with the limit; unique on this machine
    double cores = 0;    // 0: no limit is known
};

// Resources that several ranks of a machine may use together: processors, and time if all of them are limited.
struct CpuShare {
    CpuSet cpus;
    std::map<uint64_t, double> quotas;  // by group
    bool unlimited = false;             // some rank has no limit

    void add(const CpuSet& set, const CpuQuota& quota) {
        cpus |= set;
        if (quota.cores > 0)
            quotas[quota.group] = quota.cores;
        else
            unlimited = true;
    }
    CpuShare& operator|=(const CpuShare& other);
    // Whole cores, at least 1.
    int cores() const;
};

// Sizes of a core's last-level and second-level cache, 0 if unknown.
size_t last_level_cache_bytes();
size_t second_level_cache_bytes();
std::string cpu_model();
// Of the text of /proc/cpuinfo.
std::string cpu_model(const std::string& cpuinfo);

}  // namespace weft::internal
