#include "transports/nccl_net/connection.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include "src/base/clock.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal::nccl_net {

namespace {

constexpr uint64_t blob_magic = 0x6c63636e'65770001u;
constexpr size_t handle_word = Blob::of_transport - abi::handle_bytes / sizeof(uint64_t);

}  // namespace

Blob Address::blob() const {
    Blob blob;
    blob.words[0] = blob_magic;
    blob.words[1] = uint64_t(unsigned(depth)) | uint64_t(unsigned(device)) << 32;
    blob.words[2] = slot_bytes;
    memcpy(blob.words + handle_word, handle, sizeof handle);
    return blob;
}

Address Address::of(const Blob& blob) {
    Address address;
    if (blob.words[0] != blob_magic) return address;
    address.depth = int(uint32_t(blob.words[1]));
    address.device = int(blob.words[1] >> 32);
    address.slot_bytes = blob.words[2];
    memcpy(address.handle, blob.words + handle_word, sizeof address.handle);
    return address;
}

Result<Buffers> Buffers::make(const Net& net, const ConnectionOptions& options) {
    Buffers buffers;
    buffers.depth_ = uint64_t(options.depth);
    buffers.stride_ = options.slots ? options.slot_bytes : round_to_line(std::max<size_t>(options.slot_bytes, 1));
    const size_t headers = sizeof(Header) * buffers.depth_;
    auto own = OwnMemory::allocate(net, headers + (options.slots ? 0 : buffers.stride_ * buffers.depth_));
    if (!own) return own.take_status();
    buffers.own_ = std::move(*own);
    buffers.headers_ = reinterpret_cast<Header*>(buffers.own_.data());
    buffers.slots_ = options.slots ? options.slots : buffers.own_.data() + headers;
    buffers.slot_memory_ =
        options.slots ? dynamic_cast<const NetMemory*>(options.slot_memory) : &buffers.own_.registered();
    if (!buffers.slot_memory_)
        return fail(error::internal_state, "the slots that rank {} gives for rank {} are not registered", options.self,
                    options.peer);
    return buffers;
}

Status Buffers::make_copies(const Net& net) {
    if (copies_ || slot_memory_ == &own_.registered()) return ok();
    auto made = OwnMemory::allocate(net, stride_ * depth_);
    if (!made) return made.take_status();
    copies_ = std::move(*made);
    return ok();
}

Status End::failed(const char* what, abi::Answer answer) const {
    return fail(error::transport_broken, "rank {} cannot {} rank {} over the network plugin {}: {}", options.self, what,
                options.peer, net.name(), error_text(answer))
        .about({.rank = options.peer, .peer = options.self});
}

Result<int> device_for(const Net& net, const ConnectionOptions& options, int wanted) {
    const auto* const slots = dynamic_cast<const NetMemory*>(options.slot_memory);
    const int count = int(net.devices().size());
    std::string reasons;
    for (int tried = 0; tried < count; ++tried) {
        const auto nic = size_t((wanted + tried) % count);
        const Device& device = net.devices()[nic];
        const size_t most = std::min(device.message_bytes_most ? device.message_bytes_most : SIZE_MAX,
                                     net.version() == 8 ? size_t(INT_MAX) : SIZE_MAX);
        std::string why_not = device.why_not;
        if (why_not.empty() && options.slot_bytes > most)
            why_not = fmt::format("its messages have {} bytes at most, and slots have {}", most, options.slot_bytes);
        if (why_not.empty() && slots) why_not = slots->refusal(nic);
        if (why_not.empty()) return device.index;
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", device.name, why_not);
    }
    return fail(error::transport_broken, "rank {} has no device of the network plugin {} for rank {}: {}", options.self,
                net.name(), options.peer, reasons)
        .about({.rank = options.self, .peer = options.peer});
}

static constexpr int64_t goodbye_us = 500'000;
static thread_local int64_t impatient_until_us = 0;

Patience::Patience() : until_us_(now_us() < impatient_until_us ? 0 : now_us() + goodbye_us) {}

bool Patience::lasts() const {
    if (now_us() < until_us_) return true;
    impatient_until_us = now_us() + 2 * goodbye_us;
    return false;
}

net::Digest End::proof(int sender) const {
    const int receiver = sender == options.self ? options.peer : options.self;
    const std::string purpose = fmt::format("weft nccl_net {} to {} on {}", sender, receiver, options.channel);
    return options.identity->secret.prove(purpose.data(), purpose.size());
}

}  // namespace weft::internal::nccl_net
