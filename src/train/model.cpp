#include "src/train/model.hpp"

#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/agreement.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// From here on a message of its own costs less than the copies into a shared one.
constexpr size_t direct_bytes = 64 << 10;
constexpr size_t shared_message_bytes = 1 << 20;

std::string hook_of(const Settings& settings) {
    const weftTrainHook_t hook = settings.hook;
    if (hook == weftTrainHookCompress) return settings.hook_settings;
    if (hook == weftTrainHookAverage) return "average";
    if (hook == weftTrainHookFloat16) return "float16";
    if (hook == weftTrainHookBfloat16) return "bfloat16";
    return "the caller's";
}

size_t bytes_of(const Tensor& tensor) { return tensor.facts.count * size_of(tensor.facts.type); }

// Broadcasts the tensors, which are small, as one message.
Status broadcast_together(const Peers& peers, std::vector<const Tensor*>& tensors, std::vector<std::byte>& message,
                          int root) {
    size_t bytes = 0;
    for (const Tensor* tensor : tensors) bytes += bytes_of(*tensor);
    if (bytes == 0) return ok();
    message.resize(bytes);
    size_t at = 0;
    if (peers.rank() == root)
        for (const Tensor* tensor : tensors) {
            memcpy(message.data() + at, tensor->data, bytes_of(*tensor));
            at += bytes_of(*tensor);
        }
    WEFT_TRY(peers.broadcast(message.data(), bytes, weftUint8, root));
    at = 0;
    for (const Tensor* tensor : tensors) {
        memcpy(tensor->data, message.data() + at, bytes_of(*tensor));
        at += bytes_of(*tensor);
    }
    tensors.clear();
    return ok();
}

}  // namespace

std::string described(const Model& model) {
    const Settings& settings = model.settings;
    std::string text = fmt::format(
        "the settings bucketCapBytes {}, divisor {}, findUnused {}, staticGraph {}, broadcastBuffers {}, join {}, hook "
        "{}, and a model in {} memory\n",
        settings.bucket_cap_bytes, int(settings.divides_by_active), int(settings.find_unused),
        int(settings.static_graph), int(settings.broadcast_buffers), int(settings.join), hook_of(settings),
        settings.on_device ? "device" : "host");
    for (size_t i = 0; i < model.parameters.size(); ++i)
        add_line(text, "parameter", i, model.parameters[i].name, model.parameters[i].facts);
    for (size_t i = 0; i < model.buffers.size(); ++i)
        add_line(text, "buffer", i, model.buffers[i].name, model.buffers[i].facts);
    return text;
}

std::vector<TensorFacts> facts_of(const std::vector<Tensor>& tensors) {
    std::vector<TensorFacts> facts;
    for (const Tensor& tensor : tensors) facts.push_back(tensor.facts);
    return facts;
}

Status broadcast_values(const Peers& peers, const MemorySpace& space, std::span<const Tensor> tensors, int root) {
    std::vector<const Tensor*> small;
    std::vector<std::byte> message;
    size_t small_bytes = 0;
    for (const Tensor& tensor : tensors) {
        const size_t bytes = bytes_of(tensor);
        if (bytes >= direct_bytes || (space.on_device() && bytes > 0)) {
            WEFT_TRY(peers.broadcast(tensor.data, bytes, weftUint8, root, space.stream()));
        } else if (bytes > 0) {
            small.push_back(&tensor);
            small_bytes += bytes;
            if (small_bytes < shared_message_bytes) continue;
            WEFT_TRY(broadcast_together(peers, small, message, root));
            small_bytes = 0;
        }
    }
    return broadcast_together(peers, small, message, root);
}

}  // namespace weft::internal::train
