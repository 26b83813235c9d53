// parts.hpp: this rank's parts of parameters and gradients, as optimizers and norms read them, in blocks of fp32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

// The caller's memory. Bit i of `axes`: the tensor is sharded over the communicator number i.
struct ModelPart {
    std::string name;
    float* values = nullptr;
    void* copy = nullptr;  // the values in 16 bits, or null
    void* gradient = nullptr;
    size_t count = 0;
    weftDataType_t copy_type = weftFloat16;
    weftDataType_t gradient_type = weftFloat32;
    uint32_t axes = 0;
};

// The elements of a block: its arrays stay in the first-level cache.
inline constexpr size_t block_elements = 1024;

// Elements of float32, float16 or bfloat16 memory as fp32: in `block`, or where they lie.
const float* read_block(const void* memory, weftDataType_t type, size_t first, size_t count, float* block);
// Rounds fp32 elements to their type.
void write_block(void* memory, weftDataType_t type, size_t first, size_t count, const float* block);

// Calls body(first, count) for each block.
template <class Body>
void for_each_block(size_t count, Body&& body) {
    for (size_t first = 0; first < count; first += block_elements)
        body(first, count - first < block_elements ? count - first : block_elements);
}

// Communicators of a mesh. The caller's, who keeps them alive. Thread-bound, to all of them.
class Axes {
  public:
    explicit Axes(std::span<const weftComm_t> comms) : comms_(comms.begin(), comms.end()) {}

    int count() const { return int(comms_.size()); }
    // Reduces each number over the axes of its mask, one call for each axis. All ranks have equal masks.
    Status reduce(std::span<double> numbers, std::span<const uint32_t> masks, weftRedOp_t op) const;
    // Whether it is true on any rank of the mesh.
    Result<bool> any(bool own) const;
    // All ranks of the mesh call it with their status. If one has failed, the others fail with its sentence.
    Status agree(Status own) const;

  private:
    std::vector<weftComm_t> comms_;
};

}  // namespace weft::internal::train
