#include "src/train/model.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/datatype.hpp"
#include "src/train/memory_space.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// From here on a message of its own costs less than the copies into a shared one.
constexpr size_t direct_bytes = 64 << 10;
constexpr size_t shared_message_bytes = 1 << 20;

const char* name_of(weftTrainHook_t hook) {
    if (hook == weftTrainHookAverage) return "average";
    if (hook == weftTrainHookFloat16) return "float16";
    if (hook == weftTrainHookBfloat16) return "bfloat16";
    return "the caller's";
}

void add_line(std::string& text, const char* kind, size_t number, const Tensor& tensor) {
    std::string name = tensor.name;
    std::replace(name.begin(), name.end(), '\n', ' ');  // lines end with it
    text += fmt::format("{} {}, \"{}\", with {} elements of {}\n", kind, number, name, tensor.facts.count,
                        internal::name_of(tensor.facts.type));
}

// FNV-1a.
uint64_t hash_of(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char letter : text) hash = (hash ^ uint8_t(letter)) * 0x100000001b3u;
    return hash;
}

// The ranks compare it before they send texts.
struct Digest {
    uint64_t bytes = 0, hash = 0, failed = 0;
    bool operator==(const Digest&) const = default;
};

std::string line_at(const std::string& text, size_t begin) {
    if (begin >= text.size()) return "nothing more";
    return text.substr(begin, text.find('\n', begin) - begin);
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
        int(settings.static_graph), int(settings.broadcast_buffers), int(settings.join), name_of(settings.hook),
        settings.on_device ? "device" : "host");
    for (size_t i = 0; i < model.parameters.size(); ++i) add_line(text, "parameter", i, model.parameters[i]);
    for (size_t i = 0; i < model.buffers.size(); ++i) add_line(text, "buffer", i, model.buffers[i]);
    return text;
}

Difference first_difference(const std::string& left, const std::string& right) {
    const auto ends = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
    const size_t at = size_t(ends.first - left.begin());
    const size_t before = at == 0 ? std::string::npos : left.rfind('\n', at - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    return {line_at(left, begin), line_at(right, begin)};
}

Status check_agreement(const Peers& peers, const Model& model, Status failure) {
    const std::string own = failure ? described(model) : failure.sentence();
    const Digest digest{own.size(), hash_of(own), failure ? 0u : 1u};
    std::vector<Digest> all(size_t(peers.ranks()));
    Status gathered = peers.all_gather(&digest, all.data(), sizeof digest);
    if (!gathered) return failure ? std::move(gathered) : std::move(failure);
    const auto failed = std::find_if(all.begin(), all.end(), [](const Digest& each) { return each.failed != 0; });
    if (failed != all.end()) {
        const int rank = int(failed - all.begin());
        std::string text = own;
        text.resize(failed->bytes);
        Status sent = peers.broadcast(text.data(), text.size(), weftUint8, rank);
        if (!failure) return failure;
        WEFT_TRY(std::move(sent));
        return fail(error::train_model, "rank {} could not register its model: {}", rank, text).about({.rank = rank});
    }
    const auto other = std::find_if(all.begin(), all.end(), [&](const Digest& each) { return each != all[0]; });
    if (other == all.end()) return ok();
    const int rank = int(other - all.begin());
    std::string texts[2];
    for (const int root : {0, rank}) {
        std::string& text = texts[root == 0 ? 0 : 1];
        text = own;
        text.resize(all[size_t(root)].bytes);
        WEFT_TRY(peers.broadcast(text.data(), text.size(), weftUint8, root));
    }
    const auto [left, right] = first_difference(texts[0], texts[1]);
    return fail(error::train_model,
                "the ranks registered different models: rank 0 has {}, but rank {} has {}. Register the same names, "
                "counts, types and settings in the same order on all ranks",
                left, rank, right)
        .about({.rank = rank, .peer = 0});
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
