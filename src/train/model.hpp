// model.hpp: the registered model of a rank: parameters, buffers and settings. Its text for the check
// that all ranks registered the same, and the broadcast of values.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/bucket_layout.hpp"
#include "weft/train.h"

namespace weft::internal::train {

class Peers;
class MemorySpace;

struct Tensor {
    std::string name;
    void* data = nullptr;
    void* gradient = nullptr;  // the caller's own; null: it lives in its bucket
    TensorFacts facts;
};

struct Settings {
    size_t bucket_cap_bytes = 0;
    bool divides_by_active = false;
    bool find_unused = false;
    bool static_graph = false;
    bool broadcast_buffers = true;
    bool join = false;
    bool on_device = false;
    weftTrainHook_t hook = nullptr;
    void* hook_context = nullptr;
    std::string hook_settings;  // of a compressing hook
};

struct Model {
    std::vector<Tensor> parameters, buffers;
    Settings settings;
};

// One line for each fact that must be equal on all ranks.
std::string described(const Model& model);
std::vector<TensorFacts> facts_of(const std::vector<Tensor>& tensors);
// All ranks call it: the values of rank `root`. Small tensors in host memory share messages.
Status broadcast_values(const Peers& peers, const MemorySpace& space, std::span<const Tensor> tensors, int root);

}  // namespace weft::internal::train
