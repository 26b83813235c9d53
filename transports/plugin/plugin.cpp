// plugin.cpp: a plugin as a row of the registry: connections and registered memory.
#include "transports/plugin/plugin.hpp"

#include <algorithm>
#include <cstring>

#include "src/net/secret.hpp"

namespace weft::internal::plugin {

std::string error_text(const weftTransportPlugin_t& functions, weftResult_t result) {
    const char* text = functions.error();
    if (result < weftSuccess || result >= weftNumResults)
        return fmt::format("it returned {}, which is no result ({})", int(result), text ? text : "no reason");
    return text && *text ? text : fmt::format("it gave no reason (result {})", int(result));
}

namespace {

static_assert(uint32_t(Capability::posts) == weftTransportPosts &&
              uint32_t(Capability::offers) == weftTransportOffers &&
              uint32_t(Capability::registers) == weftTransportRegisters &&
              uint32_t(Capability::device) == weftTransportDevice &&
              uint32_t(Capability::given_slots) == weftTransportGivenSlots &&
              uint32_t(Capability::one_sided) == weftTransportOneSided &&
              uint32_t(Capability::sleeps) == weftTransportSleeps &&
              uint32_t(Capability::remote) == weftTransportRemote);
static_assert(int(RangeKind::slots) == weftTransportSlots && int(RangeKind::user) == weftTransportUser &&
              int(RangeKind::pinned) == weftTransportPinned && int(RangeKind::device) == weftTransportDeviceMemory);
constexpr uint32_t known_capabilities = 255;

class PluginMemory final : public RegisteredMemory {
  public:
    PluginMemory(const weftTransportPlugin_t& functions, const MemoryRange& range, void* memory)
        : RegisteredMemory(range), functions_(functions), memory_(memory) {}
    PluginMemory(const PluginMemory&) = delete;
    PluginMemory& operator=(const PluginMemory&) = delete;
    ~PluginMemory() override { functions_.deregisterMemory(memory_); }

    void* handle() const { return memory_; }
    std::vector<std::byte> key() const override {
        unsigned char key[WEFT_TRANSPORT_KEY_BYTES];
        size_t bytes = sizeof key;
        if ((functions_.capabilities & weftTransportOneSided) == 0 ||
            functions_.memoryKey(memory_, key, &bytes) != weftSuccess || bytes > sizeof key)
            return {};
        const auto* const begin = reinterpret_cast<const std::byte*>(key);
        return {begin, begin + bytes};
    }

  private:
    const weftTransportPlugin_t& functions_;
    void* memory_;
};

// The words of the blob before the plugin's handle.
constexpr size_t handle_word = Blob::of_transport - WEFT_TRANSPORT_HANDLE_BYTES / sizeof(uint64_t);
constexpr uint64_t blob_magic = 0x676c7066'65770001u;

class PluginTransport final : public Transport {
  public:
    explicit PluginTransport(const weftTransportPlugin_t& functions)
        : Transport(functions.name, functions.capabilities & known_capabilities), functions_(functions) {}

    // Never 0, because a plugin may be missing at one end.
    std::vector<Reached> networks() const override { return {Reached{functions_.network * 2654435761u | 1u, {}}}; }
    std::vector<Rail> rails() const override;
    std::string can_connect(const ConnectionOptions& options) const override {
        if (options.identity == nullptr) return "the communicator has no identity to prove on a network";
        if (options.host == nullptr && !can(Capability::remote)) return "the ranks are not on one host";
        return {};
    }
    Result<std::unique_ptr<Receiver>> listen(const ConnectionOptions& options, Blob& address) const override;
    Result<std::unique_ptr<Sender>> connect(const ConnectionOptions& options, const Blob& address) const override;
    Result<std::unique_ptr<RegisteredMemory>> register_memory(const MemoryRange& range) const override;

  private:
    static weftTransportOptions_t translated(const ConnectionOptions& options, int sender);
    weftTransportPlugin_t functions_;
};

std::vector<Rail> PluginTransport::rails() const {
    std::vector<Rail> rails;
    constexpr int most = 64;
    for (int index = 0; functions_.rail && index < most; ++index) {
        weftTransportRail_t rail{};
        rail.size = sizeof rail;
        if (functions_.rail(index, &rail) != weftSuccess) break;
        rail.name[sizeof rail.name - 1] = rail.detail[sizeof rail.detail - 1] = rail.whyNot[sizeof rail.whyNot - 1] = 0;
        rails.push_back({rail.name, rail.detail, rail.mbps, rail.whyNot});
    }
    return rails;
}

weftTransportOptions_t PluginTransport::translated(const ConnectionOptions& options, int sender) {
    weftTransportOptions_t all{};
    all.size = sizeof all;
    all.rank = options.self;
    all.peer = options.peer;
    all.channel = options.channel;
    all.depth = options.depth;
    all.slotBytes = options.slot_bytes;
    all.slots = options.slots;
    all.slotMemory = handle_of(options.slot_memory);
    const int receiver = sender == options.self ? options.peer : options.self;
    const std::string purpose = fmt::format("weft transport plugin {} to {} on {}", sender, receiver, options.channel);
    const net::Digest secret = options.identity->secret.prove(purpose.data(), purpose.size());
    static_assert(sizeof secret == sizeof all.secret);
    memcpy(all.secret, secret.data(), sizeof all.secret);
    return all;
}

Result<std::unique_ptr<Receiver>> PluginTransport::listen(const ConnectionOptions& options, Blob& address) const {
    const weftTransportOptions_t all = translated(options, options.peer);
    void* receiver = nullptr;
    unsigned char handle[WEFT_TRANSPORT_HANDLE_BYTES] = {};
    const weftResult_t result = functions_.listen(&all, handle, &receiver);
    if (result != weftSuccess || !receiver)
        return fail(error::transport_broken, "rank {} cannot listen to rank {} over {}: {}", options.self, options.peer,
                    name, error_text(functions_, result))
            .about({.rank = options.self, .peer = options.peer});
    address.words[0] = blob_magic;
    address.words[1] = uint64_t(options.depth);
    address.words[2] = options.slot_bytes;
    memcpy(address.words + handle_word, handle, sizeof handle);
    return make_receiver(functions_, options, receiver);
}

Result<std::unique_ptr<Sender>> PluginTransport::connect(const ConnectionOptions& options, const Blob& address) const {
    if (address.words[0] != blob_magic || address.words[1] != uint64_t(options.depth) ||
        address.words[2] != options.slot_bytes)
        return fail(error::mismatch_algorithm,
                    "rank {} listens to rank {} with {} slots of {} bytes, but rank {} expects {} of {} over {}: the "
                    "ranks chose differently",
                    options.peer, options.self, address.words[1], address.words[2], options.self, options.depth,
                    options.slot_bytes, name)
            .about({.rank = options.peer, .peer = options.self});
    const weftTransportOptions_t all = translated(options, options.self);
    void* sender = nullptr;
    const auto* const handle = reinterpret_cast<const unsigned char*>(address.words + handle_word);
    const weftResult_t result = functions_.connect(&all, handle, &sender);
    if (result != weftSuccess || !sender)
        return fail(error::transport_broken, "rank {} cannot connect to rank {} over {}: {}", options.self,
                    options.peer, name, error_text(functions_, result))
            .about({.rank = options.self, .peer = options.peer});
    return make_sender(functions_, options, sender);
}

Result<std::unique_ptr<RegisteredMemory>> PluginTransport::register_memory(const MemoryRange& range) const {
    if (!functions_.registerMemory || (range.kind == RangeKind::device && !can(Capability::device)))
        return Transport::register_memory(range);
    weftTransportMemory_t memory{};
    memory.size = sizeof memory;
    memory.data = range.data;
    memory.bytes = range.bytes;
    memory.kind = weftTransportMemoryKind_t(range.kind);
    memory.device = range.device;
    memory.dmaBuf = range.dma_buf;
    memory.dmaBufOffset = range.dma_buf_offset;
    void* handle = nullptr;
    if (const weftResult_t result = functions_.registerMemory(&memory, &handle); result != weftSuccess)
        return fail(error::transport_broken, "{} cannot register {} bytes of memory: {}", name, range.bytes,
                    error_text(functions_, result));
    return std::unique_ptr<RegisteredMemory>(new PluginMemory(functions_, range, handle));
}

}  // namespace

void* handle_of(const RegisteredMemory* memory) {
    const auto* const own = dynamic_cast<const PluginMemory*>(memory);
    return own ? own->handle() : nullptr;
}

std::unique_ptr<Transport> make_transport(const weftTransportPlugin_t& functions) {
    return std::make_unique<PluginTransport>(functions);
}

}  // namespace weft::internal::plugin
