// program.hpp: a program on CUDA's devices, through CUDA's own functions: memory, streams, and an exception
// when something fails that should not.
#pragma once
#include <cuda.h>
#include <weft/weft.h>

#include "tests/reference/exact.hpp"

namespace weft::internal::test {

using reference::Bytes;

void demand(CUresult result);
void demand(weftResult_t result, weftComm_t comm = nullptr);

int devices();
CUcontext context_of(int device);  // its primary context, kept until the process ends

// Makes a device current in this scope.
struct Current {
    explicit Current(int device);
    Current(const Current&) = delete;
    ~Current();
};

// Memory of a device; also what a test knows how to misuse; and, for the same calls there, of the host: the process's own,
// or weftHostAlloc's.
class DeviceBuffer {
  public:
    // weft: of weftMemAlloc; pieces: of cuMemCreate, side by side in one range, which processes can pass to others
    // or, if they are closed, cannot; the device alone reaches them.
    enum class Kind { plain, managed, pool, weft, pieces, closed_pieces, host, host_shared };
    DeviceBuffer(int device, size_t bytes, size_t offset = 0, Kind kind = Kind::plain);
    DeviceBuffer(const DeviceBuffer&) = delete;
    ~DeviceBuffer();
    static bool on_host(Kind kind) { return kind == Kind::host || kind == Kind::host_shared; }
    void* data() const { return reinterpret_cast<void*>(base_ + offset_); }
    void write(const void* from, size_t bytes) const;
    Bytes read(size_t bytes) const;

  private:
    static constexpr size_t piece_bytes = size_t(2) << 20;
    void map_pieces(size_t bytes);

    int device_;
    size_t offset_;
    Kind kind_;
    CUdeviceptr base_ = 0;
    size_t pieces_bytes_ = 0;
};

// Numbers that kernels read.
struct Numbers {
    Numbers(int device, const std::vector<size_t>& values) : on(device, values.size() * sizeof(size_t)) { set(values); }
    void set(const std::vector<size_t>& values) const { on.write(values.data(), values.size() * sizeof(size_t)); }
    const size_t* data() const { return static_cast<const size_t*>(on.data()); }
    DeviceBuffer on;
};

struct Stream {
    explicit Stream(int device, unsigned flags = CU_STREAM_NON_BLOCKING);
    Stream(const Stream&) = delete;
    ~Stream();
    weftStream_t weft() const { return reinterpret_cast<weftStream_t>(handle); }
    void finish() const;
    int device;
    CUstream handle = nullptr;
};

}  // namespace weft::internal::test
