// device.hpp: the device primitives of kernel bodies, in two forms: CUDA and PTX for the device, and ordinary threads
// for tests on the host. On the host a block is one thread or a few.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define WEFT_DEVICE __device__ __forceinline__
#define WEFT_DEVICE_COLD __device__ __noinline__
#define WEFT_UNROLL _Pragma("unroll")  // applies to the next loop
#define WEFT_NO_UNROLL _Pragma("unroll 1")
#else
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#define WEFT_DEVICE inline
#define WEFT_DEVICE_COLD __attribute__((noinline)) inline
#define WEFT_UNROLL
#define WEFT_NO_UNROLL
#endif

// WEFT_DEVICE_COLD is out of line, for code that seldom runs. Such a function is static and takes values: an object whose
// address it took would lie in local memory, and so would every member that hot code reads. A reference to the arguments
// of a kernel is harmless. It calls no other such function: a frame would need local memory.

namespace weft::internal::cuda {

#if !defined(__CUDACC__)
// The barrier of a block's threads on the host.
class TeamBarrier {
  public:
    explicit TeamBarrier(int threads) : meets_(threads, Conclude{this}) {}
    TeamBarrier(const TeamBarrier&) = delete;
    void wait() { meets_.arrive_and_wait(); }
    bool any(bool mine) {
        if (mine) said_.store(true, std::memory_order_relaxed);
        wait();
        return any_;  // valid until all threads arrive again
    }

  private:
    struct Conclude {
        TeamBarrier* self;
        void operator()() noexcept { self->any_ = self->said_.exchange(false, std::memory_order_relaxed); }
    };
    std::atomic<bool> said_{false};
    bool any_ = false;
    std::barrier<Conclude> meets_;
};
#endif

// The threads that run one block of one rank's kernel.
struct Team {
    int thread, threads;  // of the block
    int block, blocks;    // of the rank's kernel

#if defined(__CUDACC__)
    __device__ __forceinline__ void barrier() const { __syncthreads(); }
    // A barrier that returns true in all threads if any thread passes true.
    __device__ __forceinline__ bool any(bool mine) const { return __syncthreads_or(mine) != 0; }
#else
    TeamBarrier* meets = nullptr;  // null: the block has one thread
    void barrier() const {
        if (meets) meets->wait();
    }
    bool any(bool mine) const { return meets ? meets->any(mine) : mine; }
#endif
};

// Begins to load the line of the first-level cache that has the address, without a wait. The address is valid.
#if defined(__CUDACC__)
WEFT_DEVICE void prefetch(const std::byte* address) { asm volatile("prefetch.global.L1 [%0];" ::"l"(address)); }
#else
inline void prefetch(const std::byte*) {}
#endif

// Flags that other ranks read and write, at system scope. A *credit* is stored after a barrier of the block. It says that
// the block's loads have returned, or that earlier work of the stream is done, so it needs no fence on the device. Host
// threads have neither order, so on the host it is a release.
#if defined(__CUDACC__)
WEFT_DEVICE uint32_t load_relaxed(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
WEFT_DEVICE uint64_t load_relaxed(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
WEFT_DEVICE uint64_t load_acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
WEFT_DEVICE uint32_t load_acquire(const uint32_t* word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
WEFT_DEVICE void store_relaxed(uint32_t* word, uint32_t value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
WEFT_DEVICE void store_relaxed(uint64_t* word, uint64_t value) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
WEFT_DEVICE void store_release(uint64_t* word, uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
WEFT_DEVICE void store_release(uint32_t* word, uint32_t value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
template <class Word>
WEFT_DEVICE void store_credit(Word* word, Word value) {
    store_relaxed(word, value);
}
// Among the blocks of one rank. True: the word was 0 and is now `value`.
WEFT_DEVICE bool claim(uint32_t* word, uint32_t value) { return atomicCAS(word, 0u, value) == 0; }
// Returns the value before. Orders the earlier work of all blocks before the later work of the last block.
WEFT_DEVICE uint32_t count_up(uint32_t* word) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(word) : "memory");
    return before;
}
// Of counts and maxima among the blocks of one rank, which a later kernel reads.
WEFT_DEVICE void add_one(uint32_t* word) { atomicAdd(word, 1u); }
WEFT_DEVICE void raise_to(uint32_t* word, uint32_t value) { atomicMax(word, value); }
WEFT_DEVICE int count_bits(uint64_t word) { return __popcll(word); }
WEFT_DEVICE uint64_t clock_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
inline constexpr uint32_t turns_to_poll = 64, turns_to_clock = 1024;  // fruitless turns of a wait; powers of two
inline constexpr int warp_threads = 32;                               // a block has whole warps
WEFT_DEVICE void pause() {}
WEFT_DEVICE void sleep_a_little() { __nanosleep(500); }
#else
template <class Word>
Word load_relaxed(const Word* word) {
    return std::atomic_ref(const_cast<Word&>(*word)).load(std::memory_order_relaxed);
}
template <class Word>
Word load_acquire(const Word* word) {
    return std::atomic_ref(const_cast<Word&>(*word)).load(std::memory_order_acquire);
}
template <class Word, class Value>
void store_relaxed(Word* word, Value value) {
    std::atomic_ref(*word).store(Word(value), std::memory_order_relaxed);
}
template <class Word, class Value>
void store_release(Word* word, Value value) {
    std::atomic_ref(*word).store(Word(value), std::memory_order_release);
}
template <class Word>
void store_credit(Word* word, Word value) {
    store_release(word, value);
}
inline bool claim(uint32_t* word, uint32_t value) {
    uint32_t none = 0;
    return std::atomic_ref(*word).compare_exchange_strong(none, value);
}
inline uint32_t count_up(uint32_t* word) { return std::atomic_ref(*word).fetch_add(1, std::memory_order_acq_rel); }
inline void add_one(uint32_t* word) { std::atomic_ref(*word).fetch_add(1, std::memory_order_relaxed); }
inline void raise_to(uint32_t* word, uint32_t value) {
    uint32_t seen = std::atomic_ref(*word).load(std::memory_order_relaxed);
    while (seen < value && !std::atomic_ref(*word).compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}
inline int count_bits(uint64_t word) { return __builtin_popcountll(word); }
inline uint64_t clock_ns() {
    return uint64_t(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}
// Tests run more virtual ranks than cores, so one turn may take a time slice.
inline constexpr uint32_t turns_to_poll = 4, turns_to_clock = 8;
inline constexpr int warp_threads = 1;
inline void pause() { std::this_thread::yield(); }
inline void sleep_a_little() { std::this_thread::yield(); }
#endif

// `bytes` bytes at an address that is a multiple of `bytes`: one load or store of the device.
template <int bytes>
struct alignas(bytes) [[gnu::may_alias]] Pack {
    uint32_t words[bytes / 4];
};

template <int bytes>
WEFT_DEVICE Pack<bytes> load_pack(const std::byte* address) {
    return *reinterpret_cast<const Pack<bytes>*>(address);
}
template <int bytes>
WEFT_DEVICE void store_pack(std::byte* address, const Pack<bytes>& value) {
    *reinterpret_cast<Pack<bytes>*>(address) = value;
}

WEFT_DEVICE uint32_t misalignment(const void* address, uint32_t alignment) {
    return uint32_t(reinterpret_cast<uintptr_t>(address)) & (alignment - 1);
}

}  // namespace weft::internal::cuda
