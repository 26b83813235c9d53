// device_ranks.hpp: ranks on one GPU: as the shipping kernels on a stream each, or as virtual ranks in one cooperative
// grid.
#pragma once
#include <map>
#include <memory>

#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/event.hpp"
#include "src/drivers/cuda/graph.hpp"
#include "src/drivers/cuda/kernel.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/program.hpp"
#include "src/gpu/kernels/kernels.hpp"
#include "tests/executor/local_ranks.hpp"

namespace weft::internal::test {

// Throws the failure's sentence.
void require(const Status& status);
template <class T>
T require(Result<T> result) {
    if (!result) throw std::runtime_error(result.status().sentence());
    return std::move(*result);
}

// The types that virtual_ranks.cu is compiled for, and their names there.
inline constexpr weftDataType_t virtual_types[] = {weftFloat32, weftBfloat16, weftInt8, weftFloat8e4m3};
// Ranks on one GPU have no switch.
constexpr bool is_virtual(cuda::Body body) { return body != cuda::Body::multicast; }
inline std::string virtual_entry_point(cuda::Body body, weftDataType_t type) {
    return fmt::format("virtual_{}_{}_sum", cuda::name_of(body), name_of(type));
}

// The first GPU with all kernels loaded; throws if there is none. One a process.
struct Gpu {
    Gpu();
    static Gpu& get();

    const cuda::Driver& driver;
    cuda::DeviceProperties properties;
    cuda::Context context;
    std::map<std::string, cuda::Kernel> kernels;  // by entry point; virtual ones too
    cuda::Kernel& kernel(const std::string& name);

  private:
    std::unique_ptr<cuda::ContextScope> scope_;
    std::vector<char> virtual_code_;
};

enum class Placing { streams, grid };

// Staging memory of one rank that is bound to a multicast object.
struct SwitchedStaging {
    std::byte *own, *object;
    size_t bytes;
};

struct DeviceLaunch {
    cuda::Body body = cuda::Body::packet_one_shot;
    int blocks = 1;  // of each rank; steps: as the schedule says
    int threads = 256;
    bool staged = false;
    Placing placing = Placing::streams;
    bool exports_buffers = false;               // staged: ranks tell each other where their buffers are
    const SwitchedStaging* switched = nullptr;  // of Body::multicast
};

// Their memory, and launches on it. Buffers of up to `bytes_max`, with all their parts.
class DeviceRanks {
  public:
    DeviceRanks(int ranks, size_t bytes_max);

    int ranks() const { return ranks_; }
    void set_timeout_ms(int64_t timeout_ms) { timeout_ns_ = uint64_t(timeout_ms) * 1'000'000; }
    void abort(int rank);
    const cuda::FailureReport& report(int rank) const;
    bool failed() const;

    // Binds a call: inputs are copied to the device, arguments made.
    void bind(const Call& call, const DeviceLaunch& launch);
    // The same without data, for benchmarks: `bytes` a part of any content. Of an all-reduce, or of `call_of`: its
    // collective and, of steps, its algorithm, channels and tiles.
    void bind_bytes(weftDataType_t type, size_t bytes, const DeviceLaunch& launch, const Call* call_of = nullptr);
    int blocks() const { return blocks_; }  // of each rank, as bound
    // The next launch of one rank differs from the bound call. Does not wait.
    void change_call(int rank, size_t bytes) {
        arguments_[size_t(rank)].bytes = bytes;
        arguments_[size_t(rank)].fingerprint ^= uint32_t(bytes);
    }
    // The bound call, once, on one rank's stream or, as a grid, on rank 0's.
    void launch_rank(int rank);
    void launch();
    void synchronize();
    cuda::Stream& stream(int rank) { return streams_[size_t(rank)]; }
    std::vector<Bytes> results();
    std::vector<Bytes> run(const Call& call, const DeviceLaunch& launch);

  private:
    void make_arguments(Operation operation);
    void make_program(const Call& call);
    CUdeviceptr buffer(const cuda::DeviceMemory& memory, int rank) const {
        return memory.address() + stride_ * size_t(rank);
    }

    static constexpr size_t staging_bytes = 4 << 20, slot_bytes = 128 << 10, margin = 64;
    Gpu& gpu_;
    int ranks_;
    size_t stride_;
    uint64_t timeout_ns_ = 120'000'000'000;  // only a hang meets it
    cuda::DeviceMemory send_, receive_, words_, packets_, staging_, arguments_memory_, programs_;
    cuda::PinnedMemory pinned_;
    std::vector<cuda::Stream> streams_;
    std::vector<cuda::DeviceMemory> connections_;
    std::map<std::string, std::vector<cuda::ConnectionEnd>> connected_;
    std::vector<cuda::KernelArguments> arguments_;
    DeviceLaunch launch_;
    cuda::Kernel* kernel_ = nullptr;
    size_t send_offset_ = 0, receive_offset_ = 0;
    std::vector<size_t> result_bytes_;  // by rank
    std::vector<bool> in_place_;
    int blocks_ = 1;
};

}  // namespace weft::internal::test
